"""VirtualTimeLoop, an asyncio event loop patched to run on virtual time, and `virtual_time()`.

An event loop depends on real time in two places: it reads the clock, and it waits for I/O events until the
next timer is due. Both are replaced, so that every wait on the loop is virtual, whether or not redouble made
it.
"""

from __future__ import annotations

import asyncio
import time
from _thread import allocate_lock
from asyncio.events import _get_running_loop
from collections.abc import Callable, Sized
from contextlib import nullcontext
from math import inf, ulp
from typing import Any

from redouble._internal.public import public
from redouble._internal.shared_context_manager import Block
from redouble._runtime.ambient import ambient
from redouble._runtime.asyncio_timer import choose_timer_clock
from redouble._runtime.clock import LOOPS, VIRTUAL, virtual
from redouble.testing._switch import Switch
from redouble.testing._virtual_clock import PATCHED_LOOPS, Timeline, VirtualClock

# With open sockets, the real time without events before virtual time moves: data on its way from another
# process or thread must not arrive too late.
QUIET_SECONDS = 0.01
ROUNDED = 1e-8  # seconds; more than rounding to nine decimal places takes away


class VirtualTimeLoop:
    """The patches of one asyncio event loop that is on virtual time, until `restore`."""

    def __init__(self, loop: Any, timeline: Timeline) -> None:
        self._loop, self._timeline = loop, timeline
        self.clocks: list[VirtualClock] = []
        # A loop that runs or has timers continues from its own time; any other starts with the timeline.
        self._base: float = loop.time() - timeline.now() if loop._scheduled or loop.is_running() else 0.0
        self._select: Callable[[float | None], Any] = loop._selector.select
        self._run_in_executor: Callable[..., Any] = loop.run_in_executor
        self._workers = 0
        self._due = -inf  # the time of the timer that the clock was moved to last
        patches: list[tuple[Any, str, Any]] = [
            (loop, "time", self.time),
            (loop, "run_in_executor", self.run_in_executor),
            (loop, "_clock_resolution", loop._clock_resolution),  # `select` changes it
            (loop._selector, "select", self.select),
        ]
        self._patches = patches
        self._originals = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in patches]

    def patch(self) -> None:
        """Put the loop on virtual time."""
        for owner, name, patch in self._patches:
            setattr(owner, name, patch)
        choose_timer_clock(self._loop)

    def time(self) -> float:
        """Return the loop's time."""
        now = self._base + self._timeline.last_known()
        return now if now > self._due else self._due  # noqa: FURB136  max() is a call

    def select(self, timeout: float | None = None) -> Any:
        """Select I/O events; if there are none, move the clock to the next timer instead of waiting."""
        if timeout is None or timeout <= 0:
            return self._select(timeout)
        if self._workers or self._loop._executor_shutdown_called:
            started = time.monotonic()  # a thread is running, for an unknown time: really wait
            events = self._select(timeout)
            self._timeline.advance(time.monotonic() - started)
            return events
        watched: Sized = getattr(self._loop._selector, "get_map", tuple)()
        events = self._select(QUIET_SECONDS if len(watched) > 1 else 0)  # one is the loop's self-pipe
        if not events:
            due = self._loop._scheduled[0].when()
            # As in VirtualClock: with a base other than 0, a second may be 1.0000000000009.
            self._timeline.move_to(round(due - self._base, 9) if self._base else due)
            if due - self.time() < ROUNDED:  # pragma: no branch  else another block holds the time
                # A timer of AnyIO that fires a rounding error too early starts itself again, for ever.
                self._due = due
            # A timer is due if it is earlier than now plus this resolution, which must survive rounding.
            self._loop._clock_resolution = max(1e-9, 4 * ulp(self.time()))
        return events

    def run_in_executor(self, executor: Any, fn: Callable[..., Any], *args: Any) -> Any:
        """Run ``fn`` in a thread; meanwhile time is real."""
        future: asyncio.Future[Any] = self._run_in_executor(executor, fn, *args)
        self.count_workers(1)
        future.add_done_callback(lambda _: self.count_workers(-1))
        return future

    def count_workers(self, workers: int) -> None:
        """Count running workers, +1 or -1."""
        self._workers += workers

    def restore(self) -> None:
        """Put the loop back on real time; the delays of pending timers remain. It may be repeated."""
        ahead = self.time() - time.monotonic()
        for owner, name, value in self._originals:
            if value is not None:
                setattr(owner, name, value)
            elif name in owner.__dict__:  # pragma: no branch  it may be interrupted, and repeated
                delattr(owner, name)
        if self._loop._scheduled:
            self._loop.time = lambda: time.monotonic() + ahead
        choose_timer_clock(self._loop)


class LoopBlock(Block[None]):
    """A block in which a loop is on a clock's time; then on real time, unless another clock still uses it."""

    def __init__(self, loop: Any, clock: VirtualClock) -> None:
        self._loop, self._clock = loop, clock

    def begin(self) -> None:
        """Put the loop on the clock's time."""
        loop, clock = self._loop, self._clock
        if loop not in PATCHED_LOOPS:
            PATCHED_LOOPS[loop] = VirtualTimeLoop(loop, clock._timeline)
            PATCHED_LOOPS[loop].patch()
        PATCHED_LOOPS[loop].clocks.append(clock)
        LOOPS[loop] = clock

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Put the loop on the time of the clock before, or on real time."""
        loop, clock, patched = self._loop, self._clock, PATCHED_LOOPS.get(self._loop)
        if patched is None:  # pragma: no cover  it may be interrupted, and repeated
            return
        if clock in patched.clocks:  # pragma: no branch  it may be interrupted, and repeated
            patched.clocks.remove(clock)
        if patched.clocks:
            LOOPS[loop] = patched.clocks[-1]
        else:
            LOOPS.pop(loop, None)
            patched.restore()
            PATCHED_LOOPS.pop(loop, None)


class RunForeverPatch:
    """The patch of `run_forever`: during any block of virtual time, loops that start are on virtual time."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._clocks: dict[VirtualClock, None] = {}
        self.original: Any = None  # asyncio's own

    def add(self, clock: VirtualClock) -> None:
        """Patch `run_forever` for a block of virtual time."""
        loop: Any = asyncio.BaseEventLoop
        with self._lock:
            if not self._clocks:
                self.original, loop.run_forever = loop.run_forever, _run_forever
            self._clocks[clock] = None

    def remove(self, clock: VirtualClock) -> None:
        """Remove a block, which may have been removed before; restore `run_forever` after the last one."""
        loop: Any = asyncio.BaseEventLoop
        with self._lock:
            self._clocks.pop(clock, None)
            if not self._clocks and loop.run_forever is _run_forever:
                loop.run_forever = self.original


run_forever_patch = RunForeverPatch()


def _run_forever(loop: Any) -> None:
    """Run a loop, on virtual time if this context has a clock."""
    clock = VIRTUAL.get()
    with LoopBlock(loop, clock) if isinstance(clock, VirtualClock) and not clock._over else nullcontext():
        run_forever_patch.original(loop)


@public("redouble.testing")
def virtual_time() -> Switch[VirtualClock]:
    """Make time virtual: sleeping takes no real time and is recorded.

    In blocking code it applies to this context. On asyncio it applies to the whole loop that is running, or
    is started, inside the block, and to your own `asyncio.sleep` too; on uvloop to the delays of policies
    only. Under Trio, run with a `trio.testing.MockClock`, which it follows.

    Use it in a ``with``, which returns the clock, or as a decorator of a test. A nested block has a clock of
    its own that moves with the outer one.
    """
    return Switch(VirtualTimeBlock)


class VirtualTimeBlock(Block[VirtualClock]):
    """A block in which time is virtual."""

    def __init__(self) -> None:
        outer, loop = virtual(), _get_running_loop()
        self._before = VIRTUAL.get()
        self._clock = clock = VirtualClock(outer if isinstance(outer, VirtualClock) else None)
        self._loop = LoopBlock(loop, clock) if isinstance(loop, asyncio.BaseEventLoop) else None

    def begin(self) -> VirtualClock:
        """Put this context, and the running loop, on a clock; return it."""
        clock = self._clock
        clock._timeline.add_block(clock)
        VIRTUAL.set(clock)
        run_forever_patch.add(clock)
        ambient.add(clock)
        if self._loop is not None:
            self._loop.begin()
        return clock

    def leave(self, error: BaseException | None) -> None:
        """Stop the clock."""
        clock = self._clock
        if self._loop is not None:
            self._loop.leave(error)
        ambient.remove(clock)
        run_forever_patch.remove(clock)
        clock._finish()
        if VIRTUAL.get() is clock:
            VIRTUAL.set(self._before)
        clock._timeline.remove_block(clock)
