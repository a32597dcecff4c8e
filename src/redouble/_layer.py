"""Layers: something that wraps a function. A pipeline: layers in order, outermost first.

A layer says how it wraps a plain function (`around`) and a coroutine function (`around_async`). Finding out
which one it is, methods, partials, callable objects, names, docstrings and `policy_of` are dealt with
here, once. What any layer does is not known here.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from redouble._callable import done, is_async, refuse, spelled
from redouble._time import SYSTEM, Clock

__all__ = ["Gate", "Layer", "Pipeline", "decoration", "policy_of"]

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")

Reference: TypeAlias = "Callable[[], Layer | None]"

# Kept beside the functions and not on them: what you decorate gains no attribute but __wrapped__. The
# layers are referred to weakly where their wrappers hold them, as ours do: a layer that can reach the
# wrapper (its observer is a method of the object that has the wrapper) would otherwise live for ever.
_decorated: WeakKeyDictionary[Callable[..., Any], tuple[Reference, list[Reference]]] = WeakKeyDictionary()


class Layer:
    """Something that wraps a function: write ``around`` and ``around_async``, and it is a decorator.

    ``layer(fn)`` decorates, ``layer.call(fn, *args)`` calls once, ``outer | inner`` makes a pipeline.
    """

    @property
    def _held(self) -> bool:
        """Say whether wrappers are sure to hold their layer."""
        return False

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` wrapped, for a plain function."""
        raise TypeError(f"{type(self).__name__} cannot wrap a plain function, which {spelled(fn)} is")

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` wrapped, for a coroutine function."""
        raise TypeError(f"{type(self).__name__} cannot wrap a coroutine function, which {spelled(fn)} is")

    def __call__(self, fn: F, /) -> F:
        """Decorate: what you get back has the type, the name and the signature of ``fn``."""
        target: Any = fn
        if isinstance(target, staticmethod | classmethod):
            method = cast("Any", target)
            return cast("F", type(method)(self(method.__func__)))
        refuse(target, "decorate")
        wrapped: Any = self.around_async(target) if is_async(target) else self.around(target)
        if wrapped is not target:
            functools.update_wrapper(wrapped, target)
            parts = self.layers if isinstance(self, Pipeline) else (self,)
            _decorated[wrapped] = (_reference(self), [_reference(part) for part in parts])
        return cast("F", wrapped)

    def call(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``fn`` through this layer and return what it returns: await it if ``fn`` is async."""
        refuse(fn, "call")
        wrapped: Callable[P, Any] = self.around_async(cast("Any", fn)) if is_async(fn) else self.around(fn)
        return cast("T", wrapped(*args, **kwargs))

    def __or__(self, inner: Layer, /) -> Pipeline:
        """Put ``inner`` inside this layer."""
        if not isinstance(inner, Layer):
            return NotImplemented
        return Pipeline(self, inner)


class Pipeline(Layer):
    """Layers in order, outermost first; pipelines inside it are flattened."""

    @property
    def _held(self) -> bool:
        return True

    def __init__(self, *layers: Layer) -> None:
        for layer in layers:
            if not isinstance(layer, Layer):
                hint = f": write {layer.__name__}(...)" if isinstance(layer, type) else ""
                raise TypeError(f"{layer!r} is not a layer{hint}")
        self.layers: tuple[Layer, ...] = tuple(
            part for layer in layers for part in (layer.layers if isinstance(layer, Pipeline) else (layer,))
        )

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        wrapped = fn
        for layer in reversed(self.layers):
            wrapped = _dressed(layer.around(wrapped), fn)
        return wrapped

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        wrapped = cast("Callable[P, Coroutine[Any, Any, T]]", fn)
        for layer in reversed(self.layers):
            wrapped = _dressed(layer.around_async(wrapped), fn)
        return wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pipeline) and self.layers == other.layers

    def __hash__(self) -> int:
        return hash(self.layers)

    def __repr__(self) -> str:
        return " | ".join(repr(layer) for layer in self.layers) or "Pipeline()"


class Gate(Layer):
    """A layer that lets a call in or raises `Rejected`, and learns how it ended.

    Write ``admit`` and ``ended``; both are quick, take the time, and never wait. The time is that of
    ``clock.now()`` in every colour: one gate may serve threads and event loops at once. A gate can
    also be used by ``with gate:``, in blocking and in async code.
    """

    @property
    def _held(self) -> bool:
        kind = type(self)  # one with wrappers of its own may not hold it
        return kind.around is Gate.around and kind.around_async is Gate.around_async

    clock: Clock = SYSTEM

    def admit(self, now: float, /) -> Any:
        """Let a call in and return a ticket for it, or raise `Rejected`."""
        raise TypeError(
            f"{type(self).__name__} admitted nobody at {now}: a gate needs a method admit(self, now)"
        )

    def ended(self, ticket: Any, error: BaseException | None, now: float, /) -> None:
        """Learn how an admitted call ended: None is success; a cancellation is an error too."""

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        def gated(*args: P.args, **kwargs: P.kwargs) -> T:
            with Passage(self):
                return done(fn, fn(*args, **kwargs))

        return gated

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        async def gated(*args: P.args, **kwargs: P.kwargs) -> T:
            with Passage(self):
                return await fn(*args, **kwargs)

        return gated

    def __enter__(self) -> None:
        passage = Passage(self)
        passage.__enter__()
        _passages.set((passage, *_passages.get()))
        self.__dict__.setdefault("_entered", []).append(passage)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        # Of this task or thread if there is one; else it was entered elsewhere (frameworks enter and
        # leave what yields in different contexts), and any one will do: no place may be lost.
        passages = _passages.get()
        entered: list[Passage] = self.__dict__.get("_entered", [])
        passage = next((passage for passage in [*passages, *entered] if passage.gate is self), None)
        if passage is None:
            raise RuntimeError("a gate was left that had not been entered")
        _passages.set(tuple(other for other in passages if other is not passage))
        entered.remove(passage)
        passage.__exit__(kind, error, tb)


class Passage:
    """One call on its way through one gate."""

    __slots__ = ("gate", "ticket")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.ticket: Any = None

    def __enter__(self) -> None:
        self.ticket = self.gate.admit(self.gate.clock.now())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.gate.ended(self.ticket, error, self.gate.clock.now())


# The passages of this task or thread, innermost first: entering a gate in one is invisible to all others.
_passages: ContextVar[tuple[Passage, ...]] = ContextVar("redouble_passages", default=())


def _dressed(wrapped: F, fn: Callable[..., Any]) -> F:
    """Give a wrapper the name of what it wraps, so that the next layer can tell it."""
    if wrapped is not fn:
        functools.update_wrapper(wrapped, fn)
    return wrapped


def _reference(layer: Layer) -> Reference:
    return ref(layer) if layer._held else lambda: layer


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
