"""Gate, the base class of layers that admit or reject a call and record its result.

A gate implements `admit` and `ended`; this module drives both for calls, streams and ``with`` blocks.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.nested import asks_gate
from redouble._internal.callables import reject_awaitable
from redouble._internal.public import public
from redouble._internal.shared_context_manager import ContextExits
from redouble._layers.layer import AROUND_METHODS, Layer
from redouble._runtime.backend import cancelling
from redouble._runtime.clock import SYSTEM, Clock
from redouble._telemetry.emit import EMITTED, emit_rejected, layer_kind
from redouble.errors import Rejected

if TYPE_CHECKING:
    from redouble._layers.analysis import Traits

__all__ = ["CANCELLED", "Admission", "Gate", "problem_outside_retry", "task_error"]


P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@public("redouble")
class Gate(Layer):
    """A layer that admits a call or raises `Rejected`, and records how the call ended.

    Write ``admit`` and ``ended``; both are quick, are passed the time, and never wait. The time is that of
    ``clock.now()`` in every colour: one gate may serve threads and event loops at once. A gate also works as
    ``with gate:`` and ``async with gate:``. All hooks of `Layer` are optional.
    """

    @property
    def _kept_by_wrapper(self) -> bool:
        # If a subclass overrides an `around` method, its wrappers may not refer to the gate.
        return all(getattr(type(self), around) is getattr(Gate, around) for around in AROUND_METHODS.values())

    clock: Clock = SYSTEM

    def admit(self, now: float, /) -> Any:
        """Admit a call and return its ticket, or raise `Rejected`."""
        raise TypeError(
            f"{type(self).__name__} cannot admit a call at {now}: a gate needs a method admit(self, now)"
        )

    def ended(self, ticket: Any, error: BaseException | None, now: float, /) -> None:
        """Record how an admitted call ended: None is success; a cancellation is an error too."""

    def _compile(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any] | None:  # noqa: ARG002
        """Return ``fn`` behind the gate by a wrapper that is faster than the general one; or None."""
        return None

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        return self._compile(fn, is_async=False) or self._gated(fn)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        return self._compile(fn, is_async=True) or self._agated(fn)

    def _gated(self, fn: Callable[P, T]) -> Callable[P, T]:
        def gated(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._admission():
                return reject_awaitable(fn, fn(*args, **kwargs))

        return gated

    def _agated(self, fn: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        async def gated(*args: P.args, **kwargs: P.kwargs) -> T:
            with self._admission():
                return await fn(*args, **kwargs)

        return gated

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        def gated(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            with self._admission(stream=True):
                return (yield from fn(*args, **kwargs))

        return gated

    def around_async_stream(
        self, fn: Callable[P, AsyncGenerator[T, S]], /
    ) -> Callable[P, AsyncGenerator[T, S]]:
        return wrap_stream(fn, partial(StreamAdmission, self))

    def traits(self) -> Traits:
        """Return `Traits` with the gate itself as shared: it must not occur twice in one pipeline."""
        from redouble._layers.analysis import Traits  # noqa: PLC0415  only analysis needs it

        return Traits(shared=(self,))

    def _admission(self, *, stream: bool = False) -> Admission:
        """Return the admission of one call, or of one generator."""
        return Admission(self, stream=stream)

    def __enter__(self) -> None:
        admission, registered = self._admission(), False
        try:
            admission.enter()
            self._push_exit(admission)
            registered = True
        finally:
            if not registered:
                admission.undo()

    async def __aenter__(self) -> None:
        admission, registered = self._admission(), False
        try:
            await admission.aenter()
            self._push_exit(admission)
            registered = True
        finally:
            if not registered:
                admission.undo()

    def _push_exit(self, admission: Admission) -> None:
        exits: ContextExits[Admission] = self.__dict__.setdefault("_context_exits", ContextExits())
        exits.enter(admission)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        exits: ContextExits[Admission] = self.__dict__.get("_context_exits") or ContextExits()
        exits.leave().__exit__(kind, error, tb)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, tb)


def problem_outside_retry(gate: Gate, inner: tuple[Layer, ...], why: str) -> Iterator[str]:
    """Yield a problem if ``gate`` is around a retry, where it sees one call instead of several attempts."""
    if any(layer.traits().retries for layer in inner):
        yield f"{type(gate).__name__} outside Retry: {why}; put it inside"


class Admission:
    """The admission of one call or generator; closing a generator early counts as success."""

    __slots__ = ("entered", "gate", "stream", "ticket")

    def __init__(self, gate: Gate, *, stream: bool = False) -> None:
        self.gate = gate
        self.stream = stream
        self.ticket: Any = None
        self.entered = False

    @asks_gate
    def enter(self) -> None:
        """Acquire admission, or raise `Rejected`."""
        try:
            self.ticket = self.gate.admit(self.gate.clock.now())
        except Rejected as error:
            emit_rejected(error, layer_kind(self.gate), self.gate.name)  # no-op if the gate has emitted it
            error.__dict__.pop(EMITTED, None)  # a gate may raise the same instance again
            raise
        self.entered = True

    async def aenter(self) -> None:
        """Acquire admission in async code, or raise `Rejected`; most gates do not wait."""
        self.enter()

    def undo(self) -> None:
        """End the call if it was admitted: entering was interrupted."""
        if self.entered:
            self.__exit__(None, sys.exception(), None)

    def __enter__(self) -> None:
        self.enter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self.stream and isinstance(error, GeneratorExit):
            error = None
        self.gate.ended(self.ticket, error, self.gate.clock.now())


class StreamAdmission(StreamOwner):
    """The owner of one async generator, with its admission."""

    def __init__(self, gate: Gate, make: Callable[[], AsyncGenerator[Any, Any]]) -> None:
        super().__init__(partial(aopen_first, make))
        self._admission = gate._admission()

    async def aopen(self) -> tuple[Any, Any]:
        """Acquire admission, open the stream and return it with its first item."""
        await self._admission.aenter()
        return await super().aopen()

    def cut(self, error: BaseException | None) -> None:
        """Record how the stream ended; None: it was exhausted, closed or abandoned."""
        self._admission.__exit__(None, error, None)


CANCELLED = GeneratorExit()  # stands for any cancellation: gates do not count it


def task_error() -> BaseException | None:
    """Return the exception being handled; `CANCELLED` if the function turned a cancellation into an error."""
    error = sys.exception()
    return CANCELLED if isinstance(error, Exception) and cancelling(error) else error
