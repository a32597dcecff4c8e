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
from collections.abc import Callable, Generator, Sized
from contextlib import contextmanager, nullcontext
from math import ulp
from typing import Any

from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.asyncio_timer import choose_timer_clock
from redouble._runtime.clock import LOOPS, VIRTUAL, virtual
from redouble.testing._switch import Switch
from redouble.testing._virtual_clock import PATCHED_LOOPS, Timeline, VirtualClock

# With open sockets, the real time without events before virtual time moves: data on its way from another
# process or thread must not arrive too late.
QUIET_SECONDS = 0.01


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
        patches: list[tuple[Any, str, Any]] = [
            (loop, "time", self.time),
            (loop, "run_in_executor", self.run_in_executor),
            (loop, "_clock_resolution", loop._clock_resolution),  # `select` changes it
            (loop._selector, "select", self.select),
        ]
        self._originals = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in patches]
        for owner, name, patch in patches:
            setattr(owner, name, patch)
        choose_timer_clock(loop)

    def time(self) -> float:
        """Return the loop's time."""
        return self._base + self._timeline.last_known()

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
            moment = self._loop._scheduled[0].when() - self._base
            # As in VirtualClock: with a base other than 0, a second may be 1.0000000000009.
            self._timeline.move_to(round(moment, 9) if self._base else moment)
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
        """Put the loop back on real time; the delays of pending timers remain."""
        ahead = self.time() - time.monotonic()
        for owner, name, value in self._originals:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        if self._loop._scheduled:
            self._loop.time = lambda: time.monotonic() + ahead
        choose_timer_clock(self._loop)


@contextmanager
def patched(loop: Any, clock: VirtualClock) -> Generator[None]:
    """Put a loop on this clock's time; afterwards on real time, unless another clock still uses it."""
    if loop not in PATCHED_LOOPS:
        PATCHED_LOOPS[loop] = VirtualTimeLoop(loop, clock._timeline)
    clocks = PATCHED_LOOPS[loop].clocks
    clocks.append(clock)
    LOOPS[loop] = clock
    try:
        yield
    finally:
        clocks.remove(clock)
        if clocks:
            LOOPS[loop] = clocks[-1]
        else:
            del LOOPS[loop]
            PATCHED_LOOPS.pop(loop).restore()


class RunForeverPatch:
    """The patch of `run_forever`: during any block of virtual time, loops that start are on virtual time."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._blocks = 0
        self.original: Any = None  # asyncio's own

    def count_blocks(self, blocks: int) -> None:
        """Count active blocks of virtual time, +1 or -1; patch `run_forever` while there are any."""
        loop: Any = asyncio.BaseEventLoop
        with self._lock:
            if not self._blocks:
                self.original, loop.run_forever = loop.run_forever, _run_forever
            self._blocks += blocks
            if not self._blocks:
                loop.run_forever = self.original


run_forever_patch = RunForeverPatch()


def _run_forever(loop: Any) -> None:
    """Run a loop, on virtual time if this context has a clock."""
    clock = VIRTUAL.get()
    with patched(loop, clock) if isinstance(clock, VirtualClock) and not clock._over else nullcontext():
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
    return Switch(_virtual_time)


@contextmanager
def _virtual_time() -> Generator[VirtualClock]:
    outer, before, loop = virtual(), VIRTUAL.get(), _get_running_loop()
    clock = VirtualClock(outer if isinstance(outer, VirtualClock) else None)
    clock._timeline.count_blocks(1)
    VIRTUAL.set(clock)
    run_forever_patch.count_blocks(1)
    ambient.count_user(1)
    try:
        with patched(loop, clock) if isinstance(loop, asyncio.BaseEventLoop) else nullcontext():
            yield clock
    finally:
        ambient.count_user(-1)
        run_forever_patch.count_blocks(-1)
        clock._finish()
        if VIRTUAL.get() is clock:
            VIRTUAL.set(before)
        clock._timeline.count_blocks(-1)
