"""Layers: something that wraps a function. A pipeline: layers in order, outermost first.

A layer says how it wraps a plain function (`around`), a coroutine function (`around_async`), a generator
function (`around_stream`) and an async generator function (`around_async_stream`). Finding out which one it
is, methods, partials, callable objects, names, docstrings and `policy_of` are dealt with here, once. The
hooks of a layer are declared here, and called in `_explain`, `_stats` and `config`.

Layers that stand for other layers, such as those that a configuration has under a name.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from redouble._internal.callables import CallableKind, callable_kind, display_name, reject_uncallable
from redouble._internal.public import public
from redouble._internal.validation import instance
from redouble._telemetry.registry import LAYER_SECTIONS, LayerSection, register

if TYPE_CHECKING:
    from redouble._layers.analysis import Traits, WorstCase

__all__ = ["Layer", "LayerProxy", "Pipeline", "decoration", "policy_of"]


F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

AROUND: dict[CallableKind, str] = {
    "plain": "around",
    "coroutine": "around_async",
    "generator": "around_stream",
    "async generator": "around_async_stream",
}

Reference: TypeAlias = "Callable[[], Layer | None]"

# Kept beside the functions and not on them: what you decorate gains no attribute but __wrapped__. The
# layers are referred to weakly where their wrappers hold them, as ours do: a layer that can reach the
# wrapper (its observer is a method of the object that has the wrapper) would otherwise live for ever.
_decorated: WeakKeyDictionary[Callable[..., Any], tuple[Reference, list[Reference]]] = WeakKeyDictionary()


@public("redouble")
class Layer:
    """Something that wraps a function: write ``around`` and its variants, and it is a decorator.

    ``layer(fn)`` decorates, ``layer.call(fn, *args)`` calls once, ``outer | inner`` makes a pipeline.

    All other methods are optional hooks. `Pipeline.explain` calls ``describe`` and ``worst_case``,
    `Pipeline.check` calls ``lint`` and ``traits``, a reload of the configuration calls ``can_reconfigure``
    and ``reconfigure``, and `redouble.stats` calls ``snapshot`` of layers that ``register`` has registered.
    """

    name: str | None = None
    """What the layer is called in events, metrics and `redouble.stats`."""

    @property
    def _kept_by_wrapper(self) -> bool:
        """True if every wrapper holds a strong reference to its layer: `policy_of` may refer to it weakly."""
        return False

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped, for a plain function."""
        raise self._no(fn, "a plain function")

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped, for a coroutine function."""
        raise self._no(fn, "a coroutine function")

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` wrapped, for a generator function."""
        raise self._no(fn, "a generator function")

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        """Return ``fn`` wrapped, for an async generator function."""
        raise self._no(fn, "an async generator function")

    def _no(self, fn: object, kind: str) -> TypeError:
        return TypeError(f"{type(self).__name__} cannot wrap {kind}, which {display_name(fn)} is")

    def describe(self) -> str:
        """Return a few words for `Pipeline.explain`: what the layer does, and its limits."""
        return ""

    def traits(self) -> Traits:
        """Return what other layers may ask about this one, for `Pipeline.check`."""
        from redouble._layers.analysis import Traits  # noqa: PLC0415  for those who ask

        return Traits()

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        """Return the worst case of a call through this layer, given that of the inner function."""
        return inner

    def lint(
        self,
        outer: tuple[Layer, ...],  # noqa: ARG002
        inner: tuple[Layer, ...],  # noqa: ARG002
        worst: WorstCase,  # noqa: ARG002
        /,
    ) -> Iterable[str]:
        """Return what is known to hurt about the place of this layer, a sentence with its reason each.

        outer: the layers around this one, outermost first.
        inner: the layers inside, outermost first.
        worst: the worst case of the inner function.
        """
        return ()

    def can_reconfigure(self, other: Any, /) -> bool:  # noqa: ARG002
        """Return True if this layer can take over the settings of ``other``, of the same class.

        It changes nothing.
        """
        return False

    def reconfigure(self, other: Any, /) -> None:
        """Take over the settings of ``other`` and keep the state: called if `can_reconfigure` returns True.

        Calls may be under way in other threads. It must not raise: a reload exchanges everything or nothing.
        """

    def snapshot(self) -> Mapping[str, Any]:
        """Return the current state, for `redouble.stats`: names, and values that JSON can represent."""
        return {}

    def register(self, section: LayerSection = "layers") -> None:
        """List this layer in ``redouble.stats()[section]`` for as long as it lives, if it has a name.

        Call it in ``__init__``. Metrics read the sections ``breakers`` (by the ``state`` of a snapshot) and
        ``bulkheads`` (by its ``in_use`` and ``queued``).
        """
        kind = type(self).__name__
        instance(self.name, f"{kind} name", str | None, "a text, or None")
        if section not in LAYER_SECTIONS:
            raise ValueError(f"{kind}.register({section!r}): write one of {', '.join(LAYER_SECTIONS)}")
        register(self, section)

    def _around(self, fn: Any) -> Any:
        """Return ``fn`` wrapped, whatever kind of function it is."""
        return getattr(self, AROUND[callable_kind(fn)])(fn)

    def __call__(self, fn: F, /) -> F:
        """Decorate: what you get back has the type, the name and the signature of ``fn``."""
        target: Any = fn
        if isinstance(target, staticmethod | classmethod):
            method = cast("Any", target)
            return cast("F", type(method)(self(method.__func__)))
        reject_uncallable(target, "decorate")
        wrapped: Any = self._around(target)
        if wrapped is not target:
            functools.update_wrapper(wrapped, target)
            parts = self.layers if isinstance(self, Pipeline) else (self,)
            _decorated[wrapped] = (_reference(self), [_reference(part) for part in parts])
        return cast("F", wrapped)

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` through this layer and return what it returns: await it if ``fn`` is async."""
        reject_uncallable(fn, "call")
        return cast("T", self._around(fn)(*args, **kwargs))

    def __or__(self, inner: Layer, /) -> Pipeline:
        """Put ``inner`` inside this layer."""
        known: object = inner
        if not isinstance(known, Layer | type) and not hasattr(known, "spend"):
            return NotImplemented
        return Pipeline(self, inner)


@public("redouble")
class Pipeline(Layer):
    """Layers in order, outermost first; pipelines inside it are flattened."""

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    def __init__(self, *layers: Layer) -> None:
        for layer in layers:
            if not isinstance(layer, Layer):
                raise TypeError(f"{layer!r} is not a layer{_instead(layer)}")
        self.layers: tuple[Layer, ...] = tuple(
            part for layer in layers for part in (layer.layers if isinstance(layer, Pipeline) else (layer,))
        )

    def explain(self) -> str:
        """Draw it for people: the layers, what each does, and what a call comes to at worst."""
        from redouble._layers import analysis  # noqa: PLC0415  for those who ask

        return analysis.explain(self.layers)

    def check(self) -> list[str]:
        """Return what in it is known to hurt, each with its reason in a sentence; nothing, if all is well."""
        from redouble._layers import analysis  # noqa: PLC0415  for those who ask

        return list(analysis.check(self.layers))

    def describe(self) -> str:
        """Return the descriptions of its layers, in one line."""
        from redouble._layers import analysis  # noqa: PLC0415  for those who ask

        return analysis.describe(self.layers)

    def traits(self) -> Traits:
        """Return the traits that its layers have together."""
        from redouble._layers import analysis  # noqa: PLC0415  for those who ask

        return analysis.combined_traits(self.layers)

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        """Return the worst case of a call through all of its layers."""
        from redouble._layers import analysis  # noqa: PLC0415  for those who ask

        return analysis.combined_worst_case(self.layers, inner)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        """Return what its layers report, outermost first."""
        from redouble._layers import analysis  # noqa: PLC0415  for those who ask

        return [said for own in analysis.lint(self.layers, outer, inner, worst) for said in own]

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return self._inside_out(fn, "around")

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        return cast("Callable[P, Coroutine[Any, Any, T]]", self._inside_out(fn, "around_async"))

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        return self._inside_out(fn, "around_stream")

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        return self._inside_out(fn, "around_async_stream")

    def _inside_out(self, fn: F, how: str) -> F:
        wrapped = fn
        for layer in reversed(self.layers):
            wrapped = _dressed(cast("F", getattr(layer, how)(wrapped)), fn)
        return wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.layers == other.layers

    def __hash__(self) -> int:
        return hash(self.layers)

    def __repr__(self) -> str:
        return " | ".join(repr(layer) for layer in self.layers) or "Pipeline()"


def _instead(thing: object) -> str:
    """Say what to write in place of something that is no layer."""
    if isinstance(thing, type):
        return f": write {thing.__name__}(...)"
    if hasattr(thing, "spend"):
        return ": pass a budget to the policy, as in Retry(budget=...)"
    return ": write Pipeline(*layers)" if isinstance(thing, list | tuple) else ""


def _dressed(wrapped: F, fn: Callable[..., Any]) -> F:
    """Give a wrapper the name of what it wraps, so that the next layer can tell it."""
    if wrapped is not fn:
        functools.update_wrapper(wrapped, fn)
    return wrapped


def _reference(layer: Layer) -> Reference:
    return ref(layer) if layer._kept_by_wrapper else lambda: layer


@public("redouble")
def policy_of(fn: object, /) -> Layer | None:
    """Return the layer that decorates ``fn`` (the outermost one), or None."""
    try:
        entry = _decorated.get(cast("Any", getattr(fn, "__func__", fn)))
    except TypeError:  # it cannot be a key, so it is not there
        return None
    if entry is None:
        return None
    parts = tuple(part for reference in entry[1] if (part := reference()) is not None)
    return entry[0]() or Pipeline(*parts)


def decoration(fn: Any, /) -> tuple[Layer, Callable[..., Any]]:
    """Return the outermost layer of ``fn`` and what it decorates."""
    layer = policy_of(fn)
    if layer is None:
        raise TypeError(f"{display_name(fn)} is not decorated by a policy")
    return layer, getattr(fn, "__func__", fn).__wrapped__


class LayerProxy(Layer):
    """A layer that stands for those that ``_stands_for`` returns: its hooks answer as they would."""

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    def _target_layers(self) -> tuple[Layer, ...]:
        """Return the layers it stands for, outermost first; none if they are not known yet."""
        return ()

    def describe(self) -> str:
        return Pipeline(*self._target_layers()).describe()

    def traits(self) -> Traits:
        return Pipeline(*self._target_layers()).traits()

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return Pipeline(*self._target_layers()).worst_case(inner)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterable[str]:
        return Pipeline(*self._target_layers()).lint(outer, inner, worst)
