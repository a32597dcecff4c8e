"""Concurrent attempts of given durations, in virtual time and on every event loop.

Each run is checked to leave no task and no unretrieved error behind.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVarTuple

import pytest
import trio
from trio.testing import MockClock

from redouble import SYSTEM, Layer
from redouble._runtime.backend import backend, under_trio
from redouble._runtime.clock import LOOPS as CLOCKS
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import ASYNC

if TYPE_CHECKING or sys.platform == "win32":
    Uvloop = asyncio.SelectorEventLoop
else:
    from uvloop import Loop as Uvloop

LOOPS = pytest.mark.parametrize("colour", ASYNC)
ON_ASYNCIO = pytest.mark.parametrize("colour", [colour for colour in ASYNC if colour != "trio"])

Ts = TypeVarTuple("Ts")
IDLE_ITERATIONS = 20  # iterations of the loop, after which every runnable task has run


class VirtualTimeUvloop(Uvloop):
    """uvloop in virtual time: after some idle iterations the clock advances to the next timer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock, self._numbers = clock, count()
        self._scheduled = False
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        CLOCKS[self] = clock  # also for callbacks without a context

    def close(self) -> None:
        CLOCKS.pop(self, None)
        super().close()

    def time(self) -> float:
        return self._clock.now()

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(round(when, 9), callback, args, self, context)
        self._timers.append((handle.when(), next(self._numbers), handle))
        if not self._scheduled:
            self._scheduled = True
            self.call_soon(self._iterate, IDLE_ITERATIONS)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def _iterate(self, left: int) -> None:
        self._timers = sorted(entry for entry in self._timers if not entry[2].cancelled())
        self._scheduled = bool(self._timers)
        if self._scheduled:
            self.call_soon(self._iterate, (left or IDLE_ITERATIONS) - 1)
        if self._scheduled and not left:
            self._clock.advance(max(0.0, self._timers[0][0] - self.time()))
            while self._timers and self._timers[0][0] <= self.time():
                handle: Any = self._timers.pop(0)[2]
                self.call_soon(handle._run)


@dataclass
class ScriptedAttempts:
    """The called function: each step is the duration of an attempt, and its value or the type of its error.

    cleanup_seconds: seconds that an attempt needs to end when it is cancelled.
    uncancellable: numbers of the attempts that swallow the cancellation and return their value.
    """

    steps: Sequence[tuple[float, Any]]
    cleanup_seconds: float = 0.0
    uncancellable: Sequence[int] = ()
    start_times: list[float] = field(default_factory=list[float])
    cancelled: list[int] = field(default_factory=list[int])
    running: int = 0
    arguments: list[Any] = field(default_factory=list[Any])

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.start_times.append(round(SYSTEM.now(), 2))
        number = len(self.start_times)
        self.arguments.append((args, kwargs))
        takes, ending = self.steps[number - 1]
        self.running += 1
        try:
            await backend().sleep(takes)
        except (asyncio.CancelledError, trio.Cancelled):
            self.cancelled.append(number)
            await sleep_shielded(self.cleanup_seconds)
            if number not in self.uncancellable:
                raise
        finally:
            self.running -= 1
        if isinstance(ending, type):  # of an error
            raise ending(f"attempt {number}")
        return ending


async def sleep_shielded(seconds: float) -> None:
    """Sleep after a cancellation: asyncio delivers it once, Trio would deliver it again."""
    if not seconds:
        return
    if under_trio():
        with trio.CancelScope(shield=True):
            await trio.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


@dataclass
class HedgedCall:
    """The result of a call, and its duration in seconds."""

    value: Any = None
    error: BaseException | None = None
    took: float = 0.0

    def __str__(self) -> str:
        ended = self.value if self.error is None else f"{type(self.error).__name__}({self.error})"
        return f"{ended} after {self.took:g}"


async def make_hedged_call(
    layer: Layer, work: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
) -> HedgedCall:
    """Make a call, and return its result."""
    call, began = HedgedCall(), SYSTEM.now()
    try:
        call.value = await layer.call(work, *args, **kwargs)
    except Exception as error:
        call.error = error
    call.took = round(SYSTEM.now() - began, 2)  # uvloop's timers are a little late
    return call


def timed(colour: str, main: Callable[[], Awaitable[Any]]) -> Any:
    """Run ``main`` on this loop in virtual time, and check that it leaves nothing behind."""
    loop_errors: list[dict[str, Any]] = []

    async def on_asyncio() -> Any:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: loop_errors.append(context))
        try:
            return await main()
        finally:
            assert asyncio.all_tasks() == {asyncio.current_task()}

    with virtual_time() as clock:
        if colour == "trio":
            return trio.run(main, clock=MockClock(autojump_threshold=0))
        loop = asyncio.new_event_loop if colour == "asyncio" else lambda: VirtualTimeUvloop(clock)
        with asyncio.Runner(loop_factory=loop) as runner:
            try:
                return runner.run(on_asyncio())
            finally:
                gc.collect(0)  # a task with an unretrieved error reports it when it is freed
                assert loop_errors == []


def limit(seconds: float) -> AbstractAsyncContextManager[None]:
    """Cancel the block after this many seconds with the library's own timeout, and continue after it."""
    return _in_trio(seconds) if under_trio() else _in_asyncio(seconds)


@asynccontextmanager
async def _in_trio(seconds: float) -> AsyncGenerator[None]:
    with trio.move_on_after(seconds) as scope:
        yield
    assert scope.cancelled_caught


@asynccontextmanager
async def _in_asyncio(seconds: float) -> AsyncGenerator[None]:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            yield
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


class Other(Exception):
    """An error that no `Hedge` of the tests handles."""


class Response:
    """A result that has to be closed."""

    def __init__(self, fails: type[Exception] | None = None) -> None:
        self.closed = 0
        self._fails = fails

    async def aclose(self) -> None:
        self.closed += 1
        await backend().sleep(1)
        if self._fails is not None:
            raise self._fails
