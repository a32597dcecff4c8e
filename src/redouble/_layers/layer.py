"""Layer, the base class of everything that wraps a function, and Pipeline: layers in order, outermost first.

A layer implements `around` for plain functions, `around_async` for coroutine functions, `around_stream` for
generator functions and `around_async_stream` for async generator functions. This module finds out the kind of
a function, and handles methods, partials, callable objects, names, docstrings and `policy_of` for all layers.
The optional hooks are declared here and called by `analysis`, `redouble.stats` and `config`.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, ParamSpec, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from redouble._internal.callables import CallableKind, callable_kind, display_name, reject_uncallable
from redouble._internal.public import public
from redouble._internal.validation import instance
from redouble._telemetry.registry import LAYER_SECTIONS, LayerSection, register

if TYPE_CHECKING:
    from redouble._layers.analysis import Traits, WorstCase

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

AROUND_METHODS: dict[CallableKind, str] = {
    "plain": "around",
    "coroutine": "around_async",
    "generator": "around_stream",
    "async generator": "around_async_stream",
}

AsyncGeneratorFunction: TypeAlias = Callable[P, AsyncGenerator[T, S]]
Layers: TypeAlias = "tuple[Layer, ...]"
Reference: TypeAlias = "Callable[[], Layer | None]"

# Kept in a table and not on the functions: a decorated function gains no attribute but __wrapped__. A layer
# that its wrappers refer to, as all of ours, is kept by a weak reference: a layer that can reach its wrapper
# (its observer is a method of the object that has the wrapper) would otherwise never be freed.
_decorated: WeakKeyDictionary[Callable[..., Any], Decoration] = WeakKeyDictionary()

# The most layers around a function. A layer takes up to eight of the thousand frames that Python allows, and
# the caller needs some too.
MAX_DEPTH = 50
MAX_WRAPPERS = 1000  # functions around a function, which may be a cycle


class Decoration(NamedTuple):
    """What a decorated function is decorated by, the parts of that, and the number of layers around it."""

    layer: Reference
    parts: list[Reference]
    depth: int


@public("redouble")
class Layer:
    """Something that wraps a function: write ``around`` and its variants, and it is a decorator.

    ``layer(fn)`` decorates, ``layer.call(fn, *args)`` calls once, ``outer | inner`` makes a pipeline.

    All other methods are optional hooks. `Pipeline.explain` calls ``describe`` and ``worst_case``,
    `Pipeline.check` calls ``lint`` and ``traits``, a reload of the configuration calls ``can_reconfigure``
    and ``reconfigure``, and `redouble.stats` calls ``snapshot`` of layers that ``register`` has registered.
    """

    name: str | None = None
    """The name of the layer in events, metrics and `redouble.stats`."""

    _kept_by_wrapper: ClassVar[bool] = False
    """True if every wrapper holds a strong reference to its layer: `policy_of` may refer to it weakly."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {"_kept_by_wrapper", *AROUND_METHODS.values()}
        first = next(base for base in cls.__mro__ if not vars(base).keys().isdisjoint(own))
        if "_kept_by_wrapper" not in vars(first):
            cls._kept_by_wrapper = False  # the wrappers of a subclass or mixin may not refer to the layer

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped, for a plain function."""
        raise self._unsupported(fn, "a plain function")

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped, for a coroutine function."""
        raise self._unsupported(fn, "a coroutine function")

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` wrapped, for a generator function."""
        raise self._unsupported(fn, "a generator function")

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` wrapped, for an async generator function."""
        raise self._unsupported(fn, "an async generator function")

    def _unsupported(self, fn: object, kind: str) -> TypeError:
        return TypeError(f"{type(self).__name__} cannot wrap {display_name(fn)}, which is {kind}")

    def describe(self) -> str:
        """Return a few words for `Pipeline.explain`: what the layer does, and its limits."""
        return ""

    def traits(self) -> Traits:
        """Return the properties of this layer that other layers need, for `Pipeline.check`."""
        from redouble._layers.analysis import Traits  # noqa: PLC0415  only analysis needs it

        return Traits()

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        """Return the worst case of a call through this layer, given that of the inner function."""
        return inner

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterable[str]:  # noqa: ARG002
        """Return the known problems of this layer at its place, each as a sentence with its reason.

        outer: the layers around this one, outermost first.
        inner: the layers inside, outermost first.
        worst: the worst case of the inner function.
        """
        return ()

    def can_reconfigure(self, other: Any, /) -> bool:  # noqa: ARG002
        """Return True if this layer can adopt the settings of ``other``, which has the same class.

        This method changes nothing.
        """
        return False

    def reconfigure(self, other: Any, /) -> None:
        """Adopt the settings of ``other`` and keep the state: called if `can_reconfigure` returned True.

        Calls may be in flight in other threads. It must not raise: a reload replaces everything or nothing.
        """

    def snapshot(self) -> Mapping[str, Any]:
        """Return the current state, for `redouble.stats`: names, and values that JSON can represent."""
        return {}

    def register(self, section: LayerSection = "layers") -> None:
        """List this layer in ``redouble.stats()[section]`` for as long as it lives, if it has a name.

        Call it in ``__init__``. Metrics read the section ``breakers`` (by the ``state`` of a snapshot), and
        the ``limit``, ``in_use``, ``queued`` and ``rate`` of the others, if a snapshot has them.
        """
        kind = type(self).__name__
        instance(self.name, f"{kind} name", str | None, "a text, or None")
        if section not in LAYER_SECTIONS:
            raise ValueError(f"{kind}.register({section!r}): write one of {', '.join(LAYER_SECTIONS)}")
        register(self, section)

    def _parts(self) -> Layers:
        """Return the layers that this one consists of: of a proxy, those that it is a proxy of."""
        return (self,)

    def _repr(self, *options: str, **more: object) -> str:
        """Return the repr of a layer with these options; ``more``, and its name: only if they are set."""
        more = {**more, "name": self.name}
        named = (f"{option}={value!r}" for option, value in more.items() if value is not None)
        return f"{type(self).__name__}({', '.join((*options, *named))})"

    def _around(self, fn: Any) -> Any:
        """Return ``fn`` wrapped, whatever kind of function it is."""
        return getattr(self, AROUND_METHODS[callable_kind(fn)])(fn)

    def __call__(self, fn: F, /) -> F:
        """Decorate ``fn``: the result has its type, name and signature."""
        target: Any = fn
        if isinstance(target, staticmethod | classmethod):
            method = cast("Any", target)
            return cast("F", type(method)(self(method.__func__)))
        reject_uncallable(target, "decorate")
        wrapped: Any = self._around(target)
        if wrapped is not target:
            depth = _refuse_depth(self, target)
            functools.update_wrapper(wrapped, target)
            parts = [_reference(part) for part in flattened(self)]
            _decorated[wrapped] = Decoration(_reference(self), parts, depth)
        return cast("F", wrapped)

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` through this layer and return what it returns: await it if ``fn`` is async."""
        reject_uncallable(fn, "call")
        _refuse_depth(self, fn)
        return cast("T", self._around(fn)(*args, **kwargs))

    def __or__(self, inner: Layer, /) -> Pipeline:
        """Put ``inner`` inside this layer."""
        operand: object = inner
        # A class or a budget is passed on: Pipeline() raises a TypeError with advice.
        if not isinstance(operand, Layer | type) and not hasattr(operand, "spend"):
            return NotImplemented
        return Pipeline(self, inner)


class LayerProxy(Layer):
    """A layer in place of others, such as a policy named in a configuration: its hooks combine theirs."""

    resolved_by_name = False
    """True if the layers are looked up by name in the configuration, and a reload may replace them."""

    def _target_layers(self) -> Layers:
        """Return the layers it is a proxy of, outermost first; none if they are not known yet."""
        return ()

    def _parts(self) -> Layers:
        return tuple(chain.from_iterable(layer._parts() for layer in self._target_layers()))

    def describe(self) -> str:
        """Return the descriptions of its layers, in one line."""
        from redouble._layers import analysis  # noqa: PLC0415  only analysis needs it

        return analysis.describe(self._target_layers())

    def traits(self) -> Traits:
        """Return the traits that its layers have together."""
        from redouble._layers import analysis  # noqa: PLC0415  only analysis needs it

        return analysis.combined_traits(self._target_layers())

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        """Return the worst case of a call through all of its layers."""
        from redouble._layers import analysis  # noqa: PLC0415  only analysis needs it

        return analysis.combined_worst_case(self._target_layers(), inner)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterable[str]:
        """Return the problems that its layers report, outermost first."""
        from redouble._layers import analysis  # noqa: PLC0415  only analysis needs it

        return [*chain.from_iterable(analysis.lint(self._target_layers(), outer, inner, worst))]


@public("redouble")
class Pipeline(LayerProxy):
    """Layers in order, outermost first; pipelines inside it are flattened."""

    _kept_by_wrapper = True  # if not, `policy_of` makes an equal one

    def __init__(self, *layers: Layer) -> None:
        for layer in layers:
            if not isinstance(layer, Layer):
                raise TypeError(f"{layer!r} is not a layer{_suggestion(layer)}")
        self.layers: Layers = tuple(part for layer in layers for part in flattened(layer))
        if len(self.layers) > MAX_DEPTH:
            raise _too_deep(len(self.layers), " in a pipeline")

    def _target_layers(self) -> Layers:
        return self.layers

    def explain(self) -> str:
        """Return a drawing of the layers, with what each does and the worst case of a call."""
        from redouble._layers import analysis  # noqa: PLC0415  only analysis needs it

        return analysis.explain(self, self.layers)

    def check(self) -> list[str]:
        """Return the known problems, each as a sentence with its reason; an empty list if there are none."""
        from redouble._layers import analysis  # noqa: PLC0415  only analysis needs it

        return list(analysis.check(self, self.layers))

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return self._wrap_inside_out(fn, "around")

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        return cast("Callable[P, Coroutine[Any, Any, T]]", self._wrap_inside_out(fn, "around_async"))

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        return self._wrap_inside_out(fn, "around_stream")

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        return self._wrap_inside_out(fn, "around_async_stream")

    def _wrap_inside_out(self, fn: F, method: str) -> F:
        wrapped: Any = fn
        for layer in reversed(self.layers):
            wrapped = getattr(layer, method)(wrapped)
            if wrapped is not fn:
                functools.update_wrapper(wrapped, fn)  # the next layer reads its name and its kind
        return cast("F", wrapped)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.layers == other.layers

    def __hash__(self) -> int:
        return hash(self.layers)

    def __repr__(self) -> str:
        return " | ".join(repr(layer) for layer in self.layers) or "Pipeline()"


def flattened(layer: Layer) -> Layers:
    """Return the layers of a pipeline, or the layer itself as the only one."""
    return layer.layers if isinstance(layer, Pipeline) else (layer,)


def _refuse_depth(layer: Layer, fn: object) -> int:
    """Return the number of layers around a function that the layer wraps; raise ValueError for too many."""
    depth = _depth(layer) + _depth_around(fn)
    if depth > MAX_DEPTH:
        raise _too_deep(depth, f" around {display_name(fn)}")
    return depth


def _depth(layer: Layer) -> int:
    """Return the number of layers that a call passes through, with those inside a proxy."""
    inside = (part._target_layers() for part in flattened(layer) if isinstance(part, LayerProxy))
    return len(flattened(layer)) + sum(_depth(part) for part in chain.from_iterable(inside))


def _depth_around(fn: Any) -> int:
    """Return the number of layers that are around a function already, also behind other decorators."""
    for _ in range(MAX_WRAPPERS):
        if (entry := _decoration(fn)) is not None:
            return entry.depth
        if isinstance(fn, functools.partial):
            fn = fn.func
        elif isinstance(fn, FunctionType) and "__wrapped__" in fn.__dict__:
            fn = fn.__dict__["__wrapped__"]
        else:
            break
    return 0


def _too_deep(depth: int, where: str) -> ValueError:
    return ValueError(
        f"{depth} layers{where}: a call through that many can exceed the recursion limit of Python; use "
        f"{MAX_DEPTH} or fewer"
    )


def _decoration(fn: Any) -> Decoration | None:
    try:
        return _decorated.get(getattr(fn, "__func__", fn))
    except TypeError:  # not hashable, or without weak references: not decorated
        return None


def _suggestion(thing: object) -> str:
    """Return what to write instead of ``thing``, which is no layer."""
    if isinstance(thing, type):
        return f": write {thing.__name__}(...)"
    if hasattr(thing, "spend"):
        return ": pass a budget to the policy, as in Retry(budget=...)"
    return ": write Pipeline(*layers)" if isinstance(thing, list | tuple) else ""


def _reference(layer: Layer) -> Reference:
    return ref(layer) if layer._kept_by_wrapper else lambda: layer


@public("redouble")
def policy_of(fn: object, /) -> Layer | None:
    """Return the layer that decorates ``fn`` (the outermost one), or None."""
    entry = _decoration(fn)
    if entry is None:
        return None
    parts = tuple(part for reference in entry.parts if (part := reference()) is not None)
    return entry.layer() or Pipeline(*parts)
