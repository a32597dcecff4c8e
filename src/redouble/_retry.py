"""Retry: the options, in every shape a call can have.

One frozen value; a decorator, `call`, `run`, a ``for`` and an ``async for`` loop. Deciding is the
engine's business and waiting the drivers'; this file only chooses which driver.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import FrozenInstanceError, replace
from inspect import iscoroutine
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar, cast, overload

from redouble._ambient import ambient
from redouble._block import AsyncAttempts, attempts
from redouble._callable import done, is_async, refuse, spelled
from redouble._drive import Args, Kwargs, acall, adrive, aoutcome, call, drive, outcome
from redouble._ending import error_of
from redouble._events import teller
from redouble._layer import Layer, Pipeline, decoration
from redouble._options import Options
from redouble._report import Outcome
from redouble._run import Run
from redouble._shape import shaped
from redouble._time import cancelling

__all__ = ["Retry", "retry", "variant"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")


class Retry(Options, Layer):
    """A retry policy: an immutable value that many calls, threads and event loops can share.

    >>> policy = Retry(on=ConnectionError, attempts=5, give_up_after=10)

    Use it as a decorator, by ``policy.call(fn, ...)``, by ``policy.run(fn, ...)`` for an `Outcome`
    instead of an exception, or around a block::

        for attempt in policy:
            with attempt:
                ...

    on: an exception type, a tuple of them, a rule ``exc -> Answer``, an object with
        ``judge(ended)``, or a list of these; the first that does not answer None decides.
    until: a rule for results: truthy accepts, falsy means "not yet, try again", a `Verdict` decides.
    attempts: how many in total, the first included; None for no limit but time.
    backoff: seconds to wait, as a `Backoff` or any iterable; or a mapping of `Kind` to these.
    give_up_after: begin no attempt and no delay that could not start within this many seconds.
    timeout: the limit of the whole call; so far it gates like ``give_up_after`` and cuts nothing.
    work_timeout: the same for the sum of the time spent inside attempts, without delays and observers.
    hints: how to treat a delay asked for by the other side.
    budget: an allowance for retries, shared by passing the same object to many policies.
    before_attempt, on_success, on_failure, on_retry, on_give_up: functions of one event.
    nested: what to do about an error on which an inner policy already gave up.
    wrap: raise a `RetryError` from your error instead of your error.
    name, labels: for events and reports; the name is the function's unless given.
    clock, random: time and chance, for tests.
    """

    @property
    def _held(self) -> bool:
        return True

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` retried."""
        return self._shaped(fn, aio=False, call=_call, drive=drive)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` retried, for a coroutine function."""
        return self._shaped(fn, aio=True, call=acall, drive=adrive)

    def _shaped(
        self, fn: Callable[..., Any], *, aio: bool, **drivers: Callable[..., Any]
    ) -> Callable[..., Any]:
        return shaped(
            fn,
            is_async=aio,
            straight=self._plain,
            ambient=ambient,
            now=self._time.anow if aio else self._time.now,
            Run=Run,
            error_of=error_of,
            policy=self,
            name=self.name or spelled(fn),
            cancelling=cancelling if aio else None,
            tell=None if self._silent else teller(self),
            **drivers,
        )

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` with retries and return what it returns: await it if ``fn`` is async."""
        refuse(fn, "call")
        name = self.name or spelled(fn)
        if is_async(fn):
            return cast("T", acall(self, name, cast("Any", fn), args, kwargs))
        return _call(self, name, fn, args, kwargs)

    @overload
    def run(  # type: ignore[overload-overlap]  # a coroutine function is a function too: order decides
        self, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, Outcome[T]]: ...
    @overload
    def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Outcome[T]: ...
    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call ``fn`` with retries and return an `Outcome`: nothing of yours is raised."""
        refuse(fn, "run")
        name = self.name or spelled(fn)
        if is_async(fn):
            return aoutcome(self, name, fn, args, kwargs)
        return _done(fn, outcome(self, name, fn, args, kwargs))

    def __aiter__(self) -> AsyncAttempts:
        return AsyncAttempts(self)

    __iter__ = attempts

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"a policy never changes: write dataclasses.replace(policy, {name}=...)")


def _call(policy: Options, name: str, fn: Callable[..., T], args: Args, kwargs: Kwargs) -> T:
    return done(fn, call(policy, name, fn, args, kwargs))


def _done(fn: object, ended: Outcome[T]) -> Outcome[T]:
    done(fn, ended.value)
    return ended


class _Decorate(Generic[P]):
    """`redouble.retry`: bare, or with the options of `Retry`, which are written there only."""

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
        an_option = not hasattr(fn, "__get__") and not callable(fn)  # 3, (OSError,), "5s", ...
        is_coroutine = iscoroutine(cast("Any", fn))
        an_error = isinstance(fn, type) and issubclass(fn, BaseException)
        if options or len(args) > 1 or (an_option and not is_coroutine) or an_error:
            raise TypeError("write @retry, or @retry(on=..., attempts=...): options are keywords")
        return self._default(cast("Callable[..., object]", fn))

    def __repr__(self) -> str:
        return "redouble.retry"


class _Variant(Generic[P]):
    """`redouble.variant`: the same function, retried with some options changed."""

    def __init__(self, make: Callable[P, Retry]) -> None:
        self._make = make

    def __call__(self, fn: F, /, *args: P.args, **options: P.kwargs) -> F:
        if args:
            raise TypeError("write variant(fn, attempts=1): options are keywords")
        layer, original = decoration(fn)
        changed: Any = _with_options(layer, options)(original)
        if isinstance(fn, MethodType):
            return cast("F", MethodType(changed, fn.__self__))
        return cast("F", changed)

    def __repr__(self) -> str:
        return "redouble.variant"


def _with_options(layer: Layer, options: dict[str, Any]) -> Layer:
    if isinstance(layer, Retry):
        return replace(layer, **options)
    if isinstance(layer, Pipeline) and sum(isinstance(part, Retry) for part in layer.layers) == 1:
        return Pipeline(
            *(_with_options(part, options) if isinstance(part, Retry) else part for part in layer.layers)
        )
    raise TypeError(f"{layer!r} has no single Retry whose options could vary")


retry = _Decorate(Retry)
variant = _Variant(Retry)
