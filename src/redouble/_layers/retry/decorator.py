"""`redouble.retry` and `redouble.variant`: functions that take the options of `Retry` and decorate.

The options are declared once, in `Options`; a ParamSpec passes them on with their types.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CoroutineType, MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from redouble._failures.transient import Transient
from redouble._internal.callables import display_name
from redouble._layers.layer import Layer, Pipeline, policy_of
from redouble._layers.retry.retry import Retry

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")


class _Decorate(Generic[P]):
    """`redouble.retry`: a decorator without arguments, or with the options of `Retry`."""

    def __init__(self, make: Callable[P, Retry]) -> None:
        self._make = make
        self._default = cast("Callable[[], Retry]", make)()

    @overload
    def __call__(self, *args: P.args, **options: P.kwargs) -> Retry: ...
    @overload
    def __call__(self, fn: F, /) -> F: ...
    def __call__(self, *args: Any, **options: Any) -> Any:
        if not args:
            return self._make(*args, **options)
        fn: object = args[0]
        is_option = not hasattr(fn, "__get__") and not callable(fn)  # 3, (OSError,), "5s", ...
        is_rule = isinstance(fn, Transient) or (isinstance(fn, type) and issubclass(fn, BaseException))
        if options or len(args) > 1 or (is_option and not isinstance(fn, CoroutineType)) or is_rule:
            raise TypeError("write @retry, or @retry(on=..., attempts=...): options are keywords")
        return self._default(cast("Callable[..., object]", fn))

    def __repr__(self) -> str:
        return "redouble.retry"


class _Variant(Generic[P]):
    """`redouble.variant`: returns a decorated function with some options of its `Retry` replaced."""

    def __init__(self, make: Callable[P, Retry]) -> None:
        self._make = make

    def __call__(self, fn: F, /, *args: P.args, **options: P.kwargs) -> F:
        if args:
            raise TypeError("write variant(fn, attempts=1): options are keywords")
        layer = policy_of(fn)
        if layer is None:
            raise TypeError(f"{display_name(fn)} is not decorated by a policy")
        decorated: Any = getattr(fn, "__func__", fn)
        changed: Any = _with_options(layer, options)(decorated.__wrapped__)
        return cast("F", MethodType(changed, fn.__self__) if isinstance(fn, MethodType) else changed)

    def __repr__(self) -> str:
        return "redouble.variant"


def _with_options(layer: Layer, options: dict[str, Any]) -> Layer:
    if isinstance(layer, Retry):
        from dataclasses import replace  # noqa: PLC0415  takes long to import

        return replace(layer, **options)
    if isinstance(layer, Pipeline) and sum(isinstance(part, Retry) for part in layer.layers) == 1:
        return Pipeline(
            *(_with_options(part, options) if isinstance(part, Retry) else part for part in layer.layers)
        )
    raise TypeError(f"{layer!r} has no single Retry whose options could vary")


retry = _Decorate(Retry)
variant = _Variant(Retry)
