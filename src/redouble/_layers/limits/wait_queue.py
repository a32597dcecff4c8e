"""Standing in line for a permit, blocking or not, in any mixture of colours: one line for all of them.

How soon there is another permit is the pace's business (`_flow`, `_cubic`). Nothing here knows how calls are
wrapped.

Rule 1: a permit is taken by who uses it, in the moment of using it. Who stops waiting has taken nothing, and
        those behind move up.
Rule 2: whoever waits is in the queue. Only the first one watches for the permit; who leaves rings for the new
        first one. While anybody waits nobody passes unasked.
Rule 3: a first one that does not come, because its loop is stuck or its thread is busy with a signal, is
        rung for once more, and then passed by: everybody looks again a little after their own turn.
Rule 4: under the lock nobody waits, and nobody is woken.

Gates that one may have to wait for: how blocks and streams pass through them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from redouble._internal.locks import ForkSafe, SharedByIdentity
from redouble._internal.validation import format_seconds
from redouble._layers.gate import Admission, Gate, problem_outside_retry
from redouble._layers.layer import Layer
from redouble._layers.limits.pacing import SMALLEST, Pacer
from redouble._runtime.backend import backend, cancel_after, in_event_loop
from redouble._runtime.clock import SYSTEM, virtual
from redouble._runtime.deadline import wait_limit
from redouble._runtime.thread_waker import ThreadWaker

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase

__all__ = ["WaitQueue", "WaitingGate"]


T = TypeVar("T")

LATE = 0.1  # seconds: how long the first one may take to notice that its turn has come
SLOW = 0.002  # seconds for each one ahead: event loops are late by a millisecond, and busy besides


class Waiter:
    """One call's, told apart by identity; ``known``: it has stood in line before."""

    known = False


class WaitQueue(ForkSafe):
    """Those who wait for a permit, first come first served, each for up to ``patience`` seconds."""

    def __init__(
        self, pace: Pacer, patience: float | None, refused: Callable[[str, float], Exception]
    ) -> None:
        super().__init__()
        self._pace, self._refused = pace, refused
        self.wait = patience
        self._queue: OrderedDict[Waiter, Callable[[], object]] = OrderedDict()
        self._late: tuple[Waiter | None, float] = (None, 0.0)  # a first one that was rung for, and when

    def __len__(self) -> int:
        return len(self._queue)

    def enter(self) -> None:
        """Wait for a permit, blocking this thread; or raise."""
        ticket, until = Waiter(), self._arrive(blocking=True)
        if until is None:
            return
        clock = virtual()
        try:
            while True:
                bell = ThreadWaker()
                seconds = self._ask(ticket, bell.wake, until)
                if seconds is None:
                    return
                if clock is None:
                    bell.wait(seconds)
                elif self._first() is ticket:
                    clock._move_to(clock.now() + seconds)
                else:
                    bell.wait(inf)  # it is the first one that moves the clock
        finally:
            self._leave(ticket)

    async def aenter(self) -> None:
        """Wait for a permit in async code; or raise."""
        ticket, until = Waiter(), self._arrive(blocking=False)
        if until is None:
            return
        clock = virtual()
        try:
            while True:
                ring, rung = backend().waker()
                seconds = self._ask(ticket, ring, until)
                if seconds is None:
                    return
                if clock is None or clock._drives_running_loop():
                    with cancel_after(seconds):
                        await rung()
                elif self._first() is ticket:
                    await clock._wait_unrecorded(seconds)
                else:
                    await rung()
        finally:
            self._leave(ticket)

    def pass_at(self, now: float) -> None:
        """Take a permit without waiting, or raise."""
        wait = self._take(now)
        if wait:
            raise self._refused("and it does not wait", wait)

    def change(self, change: Callable[..., Any], *args: Any) -> None:
        """Do something to the pace, and let the first one look again."""
        with self._lock:
            change(*args)
            self._settle()
        self._wake_head()

    def tell(self, what: Callable[[float], T]) -> T:
        """Ask the pace something."""
        with self._lock:
            self._pace.hold()
            told = what(SYSTEM.now())
            self._settle()
            return told

    # ------------------------------------------------------------------------ under the lock

    def _take(self, now: float | None = None) -> float:
        """Take a permit if there is one for who comes now; tell how long it would have to be waited for."""
        if self._owned_by_this_thread():
            raise self._refused("and a signal has come in the middle of counting", LATE)
        with self._lock:
            now = SYSTEM.now() if now is None else now  # under the lock, or it would be too old by then
            self._pace.hold()
            if self._queue and not self._pace.due(now):
                self._skip_unresponsive_head(now)
            wait = self._pace.due(now, len(self._queue))
            if not wait:
                self._pace.take(now)
            self._settle()
            return wait

    def _ask(self, ticket: Waiter, ring: Callable[[], object], until: float) -> float | None:
        """Take a permit if it is our turn, and return None; else tell for how long to wait, or raise."""
        with self._lock:
            now, pace = SYSTEM.now(), self._pace
            pace.hold()
            ahead = self._stand(ticket, ring)
            wait = pace.due(now)
            if wait or not ahead:
                self._late = (None, now)
            if not wait and (not ahead or self._skip_unresponsive_head(now)):
                pace.take(now)
                return None
            late = ahead and not wait
            if ahead:
                wait = LATE if late else max(pace.due(now, ahead), ahead * SLOW) + LATE
        if late:
            self._wake_head()
        if now >= until:
            raise self._refused("and nothing came free in time", wait)
        return min(wait, until - now)

    def _skip_unresponsive_head(self, now: float) -> bool:
        """Take the first one out, by rule 3; but it is rung for once more before that."""
        first = self._first()
        if self._late[0] is not first or now < self._late[1]:
            self._late = (first, now)
        if now - self._late[1] < LATE - SMALLEST:
            return False
        self._queue.popitem(last=False)  # if it comes after all, it stands at the head again
        return True

    def _stand(self, ticket: Waiter, ring: Callable[[], object]) -> int:
        """Stand in line, at its head if one was passed by; tell how many are ahead."""
        queue = self._queue
        here, first = ticket in queue, self._first()
        queue[ticket] = ring
        if not here and ticket.known:
            queue.move_to_end(ticket, last=False)
            return 0
        ticket.known = True
        return 0 if first in (None, ticket) else list(queue).index(ticket) if here else len(queue) - 1

    def _leave(self, ticket: Waiter) -> None:
        """Leave the line and ring for who is first now."""
        with self._lock:
            self._queue.pop(ticket, None)
            self._settle()
        self._wake_head()

    def _settle(self) -> None:
        if not self._queue:
            self._pace.release()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._queue.clear()  # they wait in the parent
        self._pace.release()

    # ----------------------------------------------------------------------- and outside of it

    def _arrive(self, *, blocking: bool) -> float | None:
        """Take a permit and return None; or return until when to wait for one, or raise."""
        longest, now = wait_limit(self.wait), SYSTEM.now()
        wait = self._take()
        if not wait:
            return None
        if not longest:
            raise self._refused("and it does not wait", wait)
        if blocking and in_event_loop():
            raise self._refused("and a blocking call cannot wait on the thread of an event loop", wait)
        if wait > longest:
            raise self._refused(f"and it waits for no more than {format_seconds(longest)}", wait)
        return now + longest

    def _first(self) -> Waiter | None:
        while True:
            with suppress(RuntimeError):  # the collector came in between, and took somebody out
                return next(iter(self._queue), None)

    def _wake_head(self) -> None:
        """Ring for the first one; one that is not there any more is taken out."""
        while (first := self._first()) is not None:
            ring = self._queue.get(first)
            if ring is None or ring() is not False:
                return
            with self._lock:
                self._queue.pop(first, None)
                self._settle()


class WaitingGate(SharedByIdentity, Gate):
    """A gate with a line in front of it."""

    _line: WaitQueue

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a permit; None for as long as it takes."""
        return self._line.wait

    def admit(self, now: float, /) -> None:
        """Take a permit without waiting, or raise `RateLimited`."""
        self._line.pass_at(now)

    def _admission(self, *, stream: bool = False) -> Admission:
        return QueuedAdmission(self, stream=stream)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del outer, worst
        return problem_outside_retry(self, inner, "attempts pass that it knows nothing of")

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait)


class QueuedAdmission(Admission):
    """One call on its way through, by ``with``, or one generator."""

    __slots__ = ()

    gate: WaitingGate

    def enter(self) -> None:
        self.gate._line.enter()
        self.entered = True

    async def aenter(self) -> None:
        await self.gate._line.aenter()
        self.entered = True
