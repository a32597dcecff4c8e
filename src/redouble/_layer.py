"""Layers: something that wraps a function. A pipeline: layers in order, outermost first.

A layer says how it wraps a plain function (`around`), a coroutine function (`around_async`), a generator
function (`around_stream`) and an async generator function (`around_async_stream`). Finding out which one it
is, methods, partials, callable objects, names, docstrings and `policy_of` are dealt with here, once. What
any layer does is not known here.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable
from math import inf
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from redouble._callable import Colour, colour, refuse, spelled
from redouble._public import public

if TYPE_CHECKING:
    from redouble._verdict import On
    from redouble._worst import Worst

__all__ = ["Layer", "Pipeline", "decoration", "policy_of"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

AROUND: dict[Colour, str] = {
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
    """Something that wraps a function: say how in ``around`` and its kin, and it is a decorator.

    ``layer(fn)`` decorates, ``layer.call(fn, *args)`` calls once, ``outer | inner`` makes a pipeline.
    """

    @property
    def _held(self) -> bool:
        """Say whether wrappers are sure to hold their layer."""
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
        return TypeError(f"{type(self).__name__} cannot wrap {kind}, which {spelled(fn)} is")

    def _told(self) -> str:
        """Say in a few words what it does, for `Pipeline.explain`."""
        return ""

    def _worst(self, inner: Worst, /) -> Worst:
        """Say what a call comes to at worst, given what it comes to inside."""
        return inner

    def _retries(self) -> bool:
        """Say whether it may call what is inside more than once."""
        return False

    def _acts_on(self) -> On | None:
        """Return which errors it does something about, or learns from; None if that is not by error."""
        return None

    def _cuts_each(self) -> bool:
        """Say whether it limits each call of what is inside."""
        return False

    def _races(self) -> bool:
        """Say whether it may call what is inside several times at once."""
        return False

    def _within(self) -> float:
        """Tell the seconds after which everything inside is over."""
        return inf

    def _objections(
        self,
        outer: tuple[Layer, ...],  # noqa: ARG002
        inner: tuple[Layer, ...],  # noqa: ARG002
        worst: Worst,  # noqa: ARG002
        /,
    ) -> Iterable[str]:
        """Say what is known to hurt about its place, given what is around it and what is inside comes to."""
        return ()

    def _shared(self) -> tuple[object, ...]:
        """Return what it shares with other calls."""
        return ()

    def _around(self, fn: Any) -> Any:
        """Return ``fn`` wrapped, whatever kind of function it is."""
        return getattr(self, AROUND[colour(fn)])(fn)

    def __call__(self, fn: F, /) -> F:
        """Decorate: what you get back has the type, the name and the signature of ``fn``."""
        target: Any = fn
        if isinstance(target, staticmethod | classmethod):
            method = cast("Any", target)
            return cast("F", type(method)(self(method.__func__)))
        refuse(target, "decorate")
        wrapped: Any = self._around(target)
        if wrapped is not target:
            functools.update_wrapper(wrapped, target)
            parts = self.layers if isinstance(self, Pipeline) else (self,)
            _decorated[wrapped] = (_reference(self), [_reference(part) for part in parts])
        return cast("F", wrapped)

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` through this layer and return what it returns: await it if ``fn`` is async."""
        refuse(fn, "call")
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
    def _held(self) -> bool:
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
        from redouble._explain import drawn  # noqa: PLC0415  for those who ask

        return drawn(self.layers)

    def check(self) -> list[str]:
        """Say what in it is known to hurt, each with its reason in a sentence; nothing, if all is well."""
        from redouble._explain import objections  # noqa: PLC0415  for those who ask

        return list(objections(self.layers))

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
    return ref(layer) if layer._held else lambda: layer


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
        raise TypeError(f"{spelled(fn)} is not decorated by a policy")
    return layer, getattr(fn, "__func__", fn).__wrapped__
