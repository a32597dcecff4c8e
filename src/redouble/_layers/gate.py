"""Gates: layers that let a call in or turn it away, and learn how it ended.

What a gate decides is its own; how calls, streams and blocks pass through it is written here, once.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from redouble._engine.nested import asks_gate
from redouble._internal.callables import reject_awaitable
from redouble._internal.context_exits import ContextExits
from redouble._internal.public import public
from redouble._layers.layer import AROUND, Layer
from redouble._runtime.backend import cancelling
from redouble._runtime.clock import SYSTEM, Clock
from redouble._telemetry.emit import TOLD, emit_rejected, layer_kind
from redouble.errors import Rejected

if TYPE_CHECKING:
    from redouble._layers.analysis import Traits

__all__ = ["CANCELLED", "Admission", "Gate", "better_inside", "task_error"]


P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


@public("redouble")
class Gate(Layer):
    """A layer that lets a call in or raises `Rejected`, and learns how it ended.

    Write ``admit`` and ``ended``; both are quick, take the time, and never wait. The time is that of
    ``clock.now()`` in every colour: one gate may serve threads and event loops at once. A gate can
    also be used by ``with gate:``, in blocking and in async code. All hooks of `Layer` are optional.
    """

    @property
    def _kept_by_wrapper(self) -> bool:
        # A subclass with wrappers of its own may not keep a reference in them.
        return all(getattr(type(self), around) is getattr(Gate, around) for around in AROUND.values())

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
            with self._admission():
                return reject_awaitable(fn, fn(*args, **kwargs))

        return gated

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
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
        from redouble._drivers.async_items import AsyncItems  # noqa: PLC0415
        from redouble._drivers.stream_function import StreamFunction  # noqa: PLC0415  for those who stream

        def gated(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, S]:
            fn(*args, **kwargs)  # runs nothing yet; but wrong arguments are an error here and now
            return AsyncItems(StreamAdmission(self, partial(fn, *args, **kwargs)))

        return StreamFunction(fn, gated)

    def traits(self) -> Traits:
        """Return `Traits` with the gate itself as shared: it must not stand twice in one pipeline."""
        from redouble._layers.analysis import Traits  # noqa: PLC0415  for those who ask

        return Traits(shared=(self,))

    def _admission(self, *, stream: bool = False) -> Admission:
        """Return the way of one call, or of one generator, through this gate."""
        return Admission(self, stream=stream)

    def __enter__(self) -> None:
        passage, noted = self._admission(), False
        try:
            passage.enter()
            self._entered(passage)
            noted = True
        finally:
            if not noted:
                passage.undo()

    async def __aenter__(self) -> None:
        passage, noted = self._admission(), False
        try:
            await passage.aenter()
            self._entered(passage)
            noted = True
        finally:
            if not noted:
                passage.undo()

    def _entered(self, passage: Admission) -> None:
        ways: ContextExits[Admission] = self.__dict__.setdefault("_ways_out", ContextExits())
        ways.enter(passage)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        ways: ContextExits[Admission] = self.__dict__.get("_ways_out") or ContextExits()
        ways.leave().__exit__(kind, error, tb)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, tb)


def better_inside(gate: Gate, inner: tuple[Layer, ...], why: str) -> Iterator[str]:
    """Report a gate around a retry, where one end stands for several attempts."""
    if any(layer.traits().retries for layer in inner):
        yield f"{type(gate).__name__} outside Retry: {why}; put it inside"


class Admission:
    """One call on its way through one gate, or one generator, for which to be closed early is a good end."""

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
            emit_rejected(error, layer_kind(self.gate), self.gate.name)  # one of a gate of your own
            error.__dict__.pop(TOLD, None)  # which may raise this very error again
            raise
        self.entered = True

    async def aenter(self) -> None:
        """Be let in, or not, in async code; most gates do not wait."""
        self.enter()

    def undo(self) -> None:
        """Leave again, if it was let in: entering was interrupted."""
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


class StreamAdmission:
    """One async generator on its way: the owner of its items."""

    def __init__(self, gate: Gate, make: Callable[[], AsyncGenerator[Any, Any]]) -> None:
        self._passage = gate._admission()
        self._make = make

    async def aopen(self) -> tuple[Any, Any]:
        """Let the stream in and take its first item."""
        from redouble._drivers.stream_source import aopen_first  # noqa: PLC0415  for those who stream

        await self._passage.aenter()
        is_open = False
        try:
            opening = await aopen_first(self._make)
            is_open = True
        finally:
            if not is_open:
                self.cut(sys.exception())
        return opening

    def failed(self, error: Exception, *, final: bool = False) -> bool:  # noqa: ARG002  it always is
        """Learn that it failed; no other one is opened."""
        self.cut(error)
        return False

    def cut(self, error: BaseException | None) -> None:
        """Learn that it failed, or was cancelled."""
        self._passage.__exit__(None, error, None)

    returned = cut

    def ended(self) -> None:
        """Learn that it came to its end, or was closed."""
        self.cut(None)


CANCELLED = GeneratorExit()  # stands for it: nobody learns from this


def task_error() -> BaseException | None:
    """Return how a call failed; what is made of a cancellation says nothing about the service either."""
    error = sys.exception()
    return CANCELLED if isinstance(error, Exception) and cancelling(error) else error
