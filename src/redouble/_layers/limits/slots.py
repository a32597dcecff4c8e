"""The places of a bulkhead, and the queue for them.

Rule 1: who is inside has a ticket in `inside`. It is made before it is put there; who leaves first marks it
        as `over`, then drops it. So nothing that may happen in between (a cancellation, Ctrl-C, a collected
        coroutine) can leave a place taken: who lets a ticket in looks afterwards whether it is over.
Rule 2: whoever waits is in `queue`, of whatever colour, and is served in order. Nobody passes by a queue.
Rule 3: coming and going take no lock. Who comes puts the ticket down first, then looks whether anybody waits,
        then whether there are too many: of two who come at once, one at least sees both. Who leaves looks
        at the queue after having left, who joins the queue looks for a place after having joined: whatever
        happens in between, one of them sees the other. Who is let in from the queue leaves it only when
        inside.
Rule 4: the queue has a lock, which a thread that has it may take again: the collector or a signal may come at
        any time. Who comes in the middle of serving leaves a note, and changes nothing. Under the lock nobody
        is woken: that may need another lock, of an event loop's. Ringing twice does no harm.

Waiting for a place, blocking or not: what stands between a call and the places of a bulkhead.

Who may come in, and in what order, is decided in `_places`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import NoReturn, TypeAlias

from redouble._internal.locks import ForkSafe
from redouble._internal.validation import format_seconds
from redouble._runtime.backend import backend, cancel_after, in_event_loop
from redouble._runtime.clock import virtual
from redouble._runtime.deadline import wait_limit
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_rejected
from redouble.errors import BulkheadFull

__all__ = ["Lease", "Ring", "Slots", "WaitableSlots"]


Ring: TypeAlias = Callable[[], object]  # wakes who waits; False says that there is nobody any more


class Lease:
    """One call's, told apart by identity."""

    over = False


class Slots(ForkSafe):
    """So many places, and those who wait for one."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.inside: set[Lease] = set()
        self.queue: OrderedDict[Lease, Ring] = OrderedDict()
        self.called: OrderedDict[Lease, Ring] = OrderedDict()  # let in, and not yet woken
        self._serving = self._again = False

    def try_acquire(self, ticket: Lease) -> bool:
        """Take a place, or say that it has to be waited for: then there may be a ticket too many."""
        self.inside.add(ticket)
        return not self.queue and len(self.inside) <= self.limit

    def release(self, ticket: Lease) -> None:
        """Leave, and let in who is next; also for those who never came in."""
        ticket.over = True
        try:
            self.inside.discard(ticket)
        finally:
            if self.queue or self.called:
                self.serve()

    def enqueue(self, ticket: Lease, ring: Ring, most_waiting: float) -> bool:
        """Join the queue, having failed to take a place; False if there is none and too many wait already."""
        self.inside.discard(ticket)
        if (
            self._owned_by_this_thread()
        ):  # by a signal or the collector, in the middle: nobody could be served
            return False
        try:
            with self._lock:
                self.queue[ticket] = ring
                self._let_in()
                welcome = ticket in self.inside or len(self.queue) <= most_waiting
                if not welcome:
                    self.queue.pop(ticket, None)
        finally:
            self._wake()
        return welcome

    def stop_waiting(self, ticket: Lease) -> bool:
        """Wait no longer; say whether that is because of having come in."""
        with self._lock:
            if not self._serving:
                self.queue.pop(ticket, None)
            return ticket in self.inside

    def serve(self) -> None:
        """Let in whoever is first in the queue, as long as there are places, and wake them."""
        try:
            with self._lock:
                self._let_in()
        finally:
            self._wake()

    def _let_in(self) -> None:
        self._again = True
        while self._again and not self._serving:
            self._serving, self._again, served = True, False, False
            try:
                self._let_first_in()
                served = True
            finally:
                try:
                    if not served:  # interrupted; perhaps nobody else comes by
                        self._let_first_in()
                finally:
                    self._serving = False

    def _let_first_in(self) -> None:
        inside, queue = self.inside, self.queue
        while queue:
            ticket, ring = next(iter(queue.items()))
            if ticket not in inside and len(inside) >= self.limit:
                return
            inside.add(ticket)
            if ticket.over:
                inside.discard(ticket)
            else:
                self.called[ticket] = ring
            queue.pop(ticket, None)

    def _wake(self) -> None:
        """Wake those who have been let in."""
        woken = False
        try:
            self._ring()
            woken = True
        finally:
            if not woken:  # interrupted
                self._ring()

    def _ring(self) -> None:
        """Ring for everybody; a place that nobody is there to take goes to the next."""
        while self.called:
            try:
                ticket, ring = next(iter(self.called.items()))
            except (StopIteration, RuntimeError):  # somebody else is at it too
                continue
            if ring() is False:
                self.inside.discard(ticket)
                with self._lock:
                    self._let_in()
            self.called.pop(ticket, None)

    def counts(self) -> tuple[int, int]:
        """Tell how many are inside, and how many wait."""
        with self._lock:
            return min(len(self.inside), self.limit), len(self.queue)

    def _after_fork(self) -> None:
        super()._after_fork()
        self.inside.clear()  # those calls go on in the parent
        self.queue.clear()
        self.called.clear()
        self._serving = False


class WaitableSlots(Slots):
    """Places that one may wait for: ``patience`` seconds, at most so many at once."""

    def __init__(
        self, limit: int, patience: float | None, most_waiting: int | None, name: str | None
    ) -> None:
        super().__init__(limit)
        self._wait, self._most_waiting, self._name = patience, most_waiting, name

    def reconfigure(self, limit: int, patience: float | None, most_waiting: int | None) -> None:
        """Have so many places from now on; whoever is inside stays, and whoever waits goes on waiting."""
        with self._lock:
            self.limit, self._wait, self._most_waiting = limit, patience, most_waiting
        self.serve()

    def enter(self, ticket: Lease) -> None:
        """Wait for a place, blocking this thread; or raise `BulkheadFull`."""
        seconds = wait_limit(self._wait)
        if not seconds:
            self.try_acquire_now(ticket, "and it does not wait")
        elif in_event_loop():
            self.try_acquire_now(ticket, "and a blocking call cannot wait on the thread of an event loop")
        else:
            bell = ThreadWaker()
            try:
                self._line_up(ticket, bell.wake)
                clock = virtual()
                if clock is None or seconds == inf:
                    bell.wait(seconds)
                elif bell.pending:
                    clock._move_to(clock.now() + seconds)
            finally:
                inside = self.stop_waiting(ticket)
            if not inside:
                self._refuse(f"and nobody left within {format_seconds(seconds)}")

    async def aenter(self, ticket: Lease) -> None:
        """Wait for a place in async code; or raise `BulkheadFull`."""
        seconds = wait_limit(self._wait)
        if not seconds:
            self.try_acquire_now(ticket, "and it does not wait")
        else:
            ring, rung = backend().waker()
            try:
                self._line_up(ticket, ring)
                with cancel_after(seconds):
                    await rung()
            finally:
                inside = self.stop_waiting(ticket)
            if not inside:
                self._refuse(f"and nobody left within {format_seconds(seconds)}")

    def try_acquire_now(self, ticket: Lease, why: str) -> None:
        """Take a place without waiting, after those who wait; having failed to before says little."""
        try:
            if not self.enqueue(ticket, object, 0):
                self._refuse(why)
        finally:
            self.stop_waiting(ticket)

    def _line_up(self, ticket: Lease, ring: Callable[[], object]) -> None:
        if not self.enqueue(ticket, ring, inf if self._most_waiting is None else self._most_waiting):
            self._refuse(
                f"and {self._most_waiting} wait already" if self._most_waiting else "and nobody may wait"
            )

    def _refuse(self, why: str) -> NoReturn:
        whose = "the bulkhead" if self._name is None else f"the bulkhead {self._name}"
        calls = "1 call is" if self.limit == 1 else f"{self.limit} calls are"
        said = f"{whose} is full: {calls} inside, {why}"
        raise emit_rejected(BulkheadFull(said, limit=self.limit, wait=self._wait), "bulkhead", self._name)
