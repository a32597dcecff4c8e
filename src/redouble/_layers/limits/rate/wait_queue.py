"""The FIFO queue of calls that wait for permits, one for all colours, and the gates that have one.

A `Pacer` decides when the next permit is available. A call takes as many as it costs; no call overtakes one
that costs more, so none waits for ever.

Rule 1: a permit is taken at the moment of admission, never reserved. A cancelled waiter holds nothing; the
        waiters behind it advance.
Rule 2: every waiter is in the queue. Only the head waits for the time of the next permit; a waiter that
        leaves wakes the new head. While the queue is not empty, the fast path is closed.
Rule 3: a head that does not react, because its event loop is stuck or its thread runs a signal handler, is
        woken once more and then skipped: every waiter checks again shortly after its own turn, and the
        further behind it is, the less often.
Rule 4: no waiting and no waking under the lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import takewhile
from math import inf
from typing import Any, TypeAlias, TypeVar, cast

from redouble._internal.locks import SharedByIdentity
from redouble._internal.reentrancy import ReentrancySafe
from redouble._internal.validation import format_seconds
from redouble._layers.analysis import WorstCase
from redouble._layers.gate import Admission, Gate
from redouble._layers.limits.rate.pacing import CLOCK_TOLERANCE, NONE_AHEAD, Ahead, Pacer
from redouble._runtime.backend import backend, cancel_after, in_event_loop
from redouble._runtime.clock import SYSTEM, virtual
from redouble._runtime.deadline import wait_limit
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_layer, layer_kind

T = TypeVar("T")

Demand: TypeAlias = tuple[Any, ...]  # the arguments of `WaitQueue.enter`

HEAD_GRACE = 0.1  # seconds that the head may take to react after its permit is available
WAKE_LATENCY = 0.002  # seconds for each waiter ahead: an event loop wakes a millisecond late, or is busy
MOST_LATENCY = 128  # the latency doubles with each check, up to half of this


class Waiter:
    """A waiting call, compared by identity; ``checks``: how often it has asked for its turn."""

    __slots__ = ("checks", "cost")

    def __init__(self, cost: float = 1.0) -> None:
        self.cost = cost
        self.checks = 0


class WaitQueue(ReentrancySafe):
    """The calls that wait for a permit, first come first served, each for up to ``wait`` seconds."""

    def __init__(
        self,
        pacer: Pacer,
        wait: float | None,
        rejection: Callable[[str, float], Exception],
        admitted_late: Callable[[float], object] | None = None,
    ) -> None:
        """Create an empty queue; ``admitted_late`` is called with the seconds that a call waited."""
        super().__init__()
        self._pacer, self._rejection, self._admitted_late = pacer, rejection, admitted_late
        self.wait = wait
        self._queue: OrderedDict[Waiter, Callable[[], object]] = OrderedDict()
        self._numbers: dict[float, int] = {}  # how many of the waiters there are of each cost
        self._slow_head: tuple[Waiter | None, float] = (None, 0.0)  # it does not react, and since when

    def __len__(self) -> int:
        return len(self._queue)

    def new_waiter(self, cost: float = 1.0) -> Waiter:
        """Return a call with this cost."""
        return Waiter(cost)

    def enter(self, *demand: Any) -> None:
        """Wait for the permits that a call demands, blocking this thread; or raise. A free call never waits.

        demand: the arguments of `new_waiter`.
        """
        waiter = self.new_waiter(*demand)
        until = self._acquire_or_wait_until(waiter, blocking=True)
        if until is None:
            return
        clock, began = virtual(), SYSTEM.now()
        try:
            while True:
                waker = ThreadWaker()
                seconds = self._try_acquire_in_turn(waiter, waker.wake, until)
                if seconds is None:
                    break
                if clock is None:
                    waker.wait(seconds)
                elif self._head() is waiter:
                    clock._move_to(clock.now() + seconds)
                else:
                    waker.wait(inf)  # the head moves the virtual clock
        finally:
            self._dequeue(waiter)
        if self._admitted_late is not None:
            self._admitted_late(SYSTEM.now() - began)

    async def aenter(self, *demand: Any) -> None:
        """Wait for the permits that a call demands, in async code; or raise. A free call never waits."""
        waiter = self.new_waiter(*demand)
        until = self._acquire_or_wait_until(waiter, blocking=False)
        if until is None:
            return
        clock, began = virtual(), SYSTEM.now()
        try:
            while True:
                wake, woken = backend().waker()
                seconds = self._try_acquire_in_turn(waiter, wake, until)
                if seconds is None:
                    break
                if clock is None or clock._drives_running_loop():
                    with cancel_after(seconds):
                        await woken()
                elif self._head() is waiter:
                    await clock._wait_unrecorded(seconds)
                else:
                    await woken()
        finally:
            self._dequeue(waiter)
        if self._admitted_late is not None:
            self._admitted_late(SYSTEM.now() - began)

    def acquire_at(self, now: float, *demand: Any) -> None:
        """Take the permits that a call demands, without waiting; or raise."""
        wait = self._try_acquire(self.new_waiter(*demand), now)
        if wait:
            raise self._rejection("and it does not wait", wait)

    def update_pacer(self, change: Callable[..., Any], *args: Any) -> None:
        """Call ``change`` under the lock, and wake the head, whose turn may come earlier now."""
        self._run_exclusively(self._with_pacer, change, *args)
        self._wake_head()

    def query_pacer(self, query: Callable[[float], T]) -> T:
        """Return the result of ``query`` at the current time, called under the lock; it changes nothing."""
        return self._run_now(lambda: query(SYSTEM.now()))

    # ------------------------------------------------------------------------ under the lock

    def _with_pacer(self, operation: Callable[..., T], *args: Any) -> T:
        """Run an operation while the fast path is closed; it stays closed while there are waiters."""
        self._pacer.close_fast_path()
        result = operation(*args)
        if not self._queue:
            self._pacer.open_fast_path()
        return result

    def _try_acquire(self, waiter: Waiter, now: float | None = None) -> float:
        """Take permits that no waiter needs and return 0; else return the seconds until there are enough."""
        if not waiter.cost:
            return 0.0
        if self._owned_by_this_thread():
            raise self._rejection(
                "and a signal handler cannot use it while this thread is inside it", HEAD_GRACE
            )
        wait: float = self._run_now(self._with_pacer, self._take_or_due, waiter, now)
        if wait == inf:
            raise self._rejection(never(waiter.cost), wait)
        return wait

    def _take_or_due(self, waiter: Waiter, now: float | None) -> float:
        now = SYSTEM.now() if now is None else now  # read under the lock, or it could be outdated
        head = self._first(now)
        if head is not None and not self._pacer.due(now, head.cost):
            self._skip_unresponsive_head(now)
        ahead = self.ahead_of(waiter, now) if self._contended(now) else NONE_AHEAD
        wait = self._pacer.due(now, waiter.cost, ahead)
        if not wait:
            self._admit(waiter, now)
        return wait

    def _contended(self, now: float) -> bool:  # noqa: ARG002
        """Return True if calls may pass before one that arrives now."""
        return bool(self._queue)

    def _admit(self, waiter: Waiter, now: float) -> None:
        self._pacer.take(now, waiter.cost)

    def _try_acquire_in_turn(self, waiter: Waiter, wake: Callable[[], object], until: float) -> float | None:
        """Take a permit and return None, or return the seconds to wait for one; raise after ``until``."""
        result: tuple[float, float, bool] | None
        result = self._run_now(self._with_pacer, self._take_in_turn, waiter, wake)
        if result is None:
            return None
        wait, now, late = result
        if wait == inf:
            raise self._rejection(never(waiter.cost), wait)
        if late:
            self._wake_head()
        if now >= until:
            raise self._rejection("and no permit came free in time", wait)
        return min(wait, until - now)

    def _take_in_turn(self, waiter: Waiter, wake: Callable[[], object]) -> tuple[float, float, bool] | None:
        """Take a permit and return None; or the seconds to wait, the time, and True if the head is late."""
        now, pacer = SYSTEM.now(), self._pacer
        self._enqueue(waiter, wake)
        head = cast("Waiter", self._first(now))
        wait = pacer.due(now, head.cost)
        if wait or head is waiter:
            self._slow_head = (None, now)
        late = not wait and head is not waiter
        if late and self._skip_unresponsive_head(now):
            late = False
            wait = pacer.due(now, waiter.cost)  # the cost of the head may have been lower
        if not (wait or late):
            self._admit(waiter, now)
            return None
        if head is not waiter:
            ahead = self.ahead_of(waiter, now)
            # A waiter far behind checks less and less often: checks of all would keep the head from reacting.
            latency = ahead.number * WAKE_LATENCY * min(2**waiter.checks, MOST_LATENCY) / 2
            if late:
                wait = max(HEAD_GRACE, latency)
            else:
                wait = max(pacer.due(now, waiter.cost, ahead), latency) + HEAD_GRACE
        return wait, now, late

    def _skip_unresponsive_head(self, now: float) -> bool:
        """Remove the head by rule 3 and return True, if it has had `HEAD_GRACE` seconds to react."""
        head = self._first(now)
        if self._slow_head[0] is not head or now < self._slow_head[1]:
            self._slow_head = (head, now)
        if now - self._slow_head[1] < HEAD_GRACE - CLOCK_TOLERANCE:
            return False
        self._remove(cast("Waiter", head))  # if it reacts after all, it becomes the head again
        return True

    def _enqueue(self, waiter: Waiter, wake: Callable[[], object]) -> None:
        """Join the queue, at its head if the waiter was skipped."""
        queue = self._queue
        queued = waiter in queue
        number = self._numbers.get(waiter.cost, 0) + 1
        queue[waiter] = wake
        if not queued:
            self._numbers[waiter.cost] = number  # with no call in between, as in `_remove`
            if waiter.checks:
                queue.move_to_end(waiter, last=False)
        waiter.checks += 1

    def _remove(self, waiter: Waiter) -> None:
        """Leave the queue, if the waiter is in it."""
        if waiter not in self._queue:
            return
        left = self._numbers[waiter.cost] - 1
        del self._queue[waiter]
        if left:
            self._numbers[waiter.cost] = left
        else:
            del self._numbers[waiter.cost]

    def ahead_of(self, waiter: Waiter, now: float) -> Ahead:  # noqa: ARG002  the order may depend on the time
        """Return the waiters that pass before this one, which may be in the queue."""
        queue = self._queue
        costs = (other.cost for other in takewhile(lambda other: other is not waiter, queue))
        if waiter not in queue:
            return Ahead(self._numbers, costs)
        if next(reversed(queue)) is not waiter:
            return Ahead.of(list(costs))
        numbers = {**self._numbers, waiter.cost: self._numbers[waiter.cost] - 1}
        return Ahead({cost: number for cost, number in numbers.items() if number}, costs)

    def _dequeue(self, waiter: Waiter) -> None:
        """Leave the queue and wake the new head."""
        self.update_pacer(self._remove, waiter)

    def _after_deferred(self) -> None:
        self._wake_head()

    def _after_fork(self) -> None:
        super()._after_fork()
        self._queue.clear()  # these calls wait in the parent
        self._numbers.clear()
        self._pacer.open_fast_path()

    # ---------------------------------------------------------------------- without the lock

    def _acquire_or_wait_until(self, waiter: Waiter, *, blocking: bool) -> float | None:
        """Take permits and return None; or return the time until which to wait for them, or raise."""
        wait = self._try_acquire(waiter)
        if not wait:
            return None
        limit, now = wait_limit(self.wait), SYSTEM.now()
        if not limit:
            raise self._rejection("and it does not wait", wait)
        if blocking and in_event_loop():
            raise self._rejection("and a blocking call cannot wait on the thread of an event loop", wait)
        if wait > limit:
            raise self._rejection(f"and the wait would be longer than {format_seconds(limit)}", wait)
        return now + limit

    def _head(self) -> Waiter | None:
        return self._run_now(self._first)

    def _first(self, now: float | None = None) -> Waiter | None:  # noqa: ARG002  as `ahead_of`
        return next(iter(self._queue), None)

    def _wake_head(self) -> None:
        """Wake the head; a waiter that no longer exists is removed. In a re-entrant call do it afterwards."""
        while not self._owned_by_this_thread() and (head := self._head()) is not None:
            wake = self._queue.get(head)
            if wake is None or wake() is not False:
                return
            self._run_now(self._with_pacer, self._remove, head)


def never(cost: float) -> str:
    """Return why a call is rejected whose cost is more than there can ever be."""
    return f"and a call that costs {cost:g} can never begin"


class WaitingGate(SharedByIdentity, Gate):
    """A gate whose calls wait for a permit in a `WaitQueue`."""

    _problem_outside_retry = "retries pass without a permit"
    _wait_queue: WaitQueue

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a permit; None for as long as it takes."""
        return self._wait_queue.wait

    def _admitted_late(self, seconds: float) -> None:
        """Emit ``waited`` for a call that was admitted after a wait."""
        emit_layer("waited", layer_kind(self), self.name, delay=seconds)

    def admit(self, now: float, /) -> None:
        """Take a permit without waiting, or raise `RateLimited`."""
        self._wait_queue.acquire_at(now, *self._demand(None))

    def _acquire_admission(self, admission: Admission) -> None:
        self._wait_queue.enter(*self._demand(admission.per_call))
        admission.entered = True

    async def _aacquire_admission(self, admission: Admission) -> None:
        await self._wait_queue.aenter(*self._demand(admission.per_call))
        admission.entered = True

    def _demand(self, per_call: Demand | None) -> Demand:  # noqa: ARG002
        """Return what a call asks of the queue; ``per_call`` is None for a block."""
        return ()

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait)
