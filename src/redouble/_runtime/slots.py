"""A fixed number of slots, and the FIFO queue of calls that wait for one: of a bulkhead, or of workers.

Rule 1: every admitted call has a `Lease` in ``leases``. The lease is created before it is added; `release()`
        first marks it as ``released``, then discards it. So nothing that happens in between (a cancellation,
        Ctrl-C, a collected coroutine) can leak a slot: the code that admits a waiter checks afterwards
        whether its lease was released.
Rule 2: every waiter is in ``queue``, in every colour, and is admitted in order. A new call never overtakes
        the queue.
Rule 3: if there is a GIL, acquiring and releasing take no lock. `try_acquire()` adds its lease before it
        checks the queue and then the count, so of two concurrent callers at least one observes both leases.
        `release()` checks the queue after it discarded its lease, and `enqueue()` checks for a free slot
        after it joined the queue: in every order, one of them observes the other. An admitted waiter is
        removed from the queue only after its lease was added. Without a GIL, a lease is added and discarded
        under the lock, because another thread could observe these steps in another order.
Rule 4: the queue is changed by exclusive operations (`ReentrancySafe`), because a finaliser or a signal
        handler may run at any time. Waiters are not woken under the lock, since that may need the lock of an
        event loop. Waking twice does no harm.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TypeAlias

from redouble._internal.locks import gil
from redouble._internal.reentrancy import ReentrancySafe

Wake: TypeAlias = Callable[[], object]  # wakes a waiter; returns False if the waiter no longer exists


class Lease:
    """The slot of one call, compared by identity; ``released``: the call has ended, or stopped waiting.

    displaced: it had to leave a full queue, where slots have classes.
    abandoned: the caller has left, and a thread of a worker has not ended its call.
    """

    released = displaced = abandoned = False


class Slots(ReentrancySafe):
    """A fixed number of slots and the FIFO queue of waiters."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.leases: set[Lease] = set()
        self.queue: OrderedDict[Lease, Wake] = OrderedDict()
        self.to_wake: OrderedDict[Lease, Wake] = OrderedDict()  # admitted, and not yet woken

    def lease(self, name: str | None) -> Lease:  # noqa: ARG002  for slots with classes
        """Return a lease for a call of this class."""
        return Lease()

    def try_acquire(self, lease: Lease) -> bool:
        """Add the lease and return True if it is admitted.

        If it is not, the lease stays in ``leases``, above the limit: `enqueue()` or `release()` discards it.
        """
        self.add(lease)
        return not self.queue and len(self.leases) <= self.limit

    def add(self, lease: Lease) -> None:
        """Add a lease."""
        if gil.enabled:
            self.leases.add(lease)
        else:
            self._run_now(self.leases.add, lease)

    def discard(self, lease: Lease) -> None:
        """Discard a lease."""
        if gil.enabled:
            self.leases.discard(lease)
        else:
            self._run_now(self.leases.discard, lease)

    def release(self, lease: Lease) -> None:
        """Release the slot and admit the next waiter; safe for a lease that was never admitted."""
        lease.released = True
        try:
            self.discard(lease)
        finally:
            if self.queue or self.to_wake:
                self.admit_waiters()

    def enqueue(self, lease: Lease, wake: Wake, max_waiting: float) -> bool:
        """Join the queue after `try_acquire()` failed; a slot that is free by now is acquired at once.

        Return False if there is no slot and ``max_waiting`` calls wait already.
        """
        self.discard(lease)
        if self._owned_by_this_thread():
            return False  # called by a signal handler or finaliser during an admission: none is possible now
        try:
            accepted = self._run_exclusively(self._enqueue, lease, wake, max_waiting)
        finally:
            self._wake_admitted()
        return bool(accepted)

    def _enqueue(self, lease: Lease, wake: Wake, max_waiting: float) -> bool:
        self.queue[lease] = wake
        self._admit()
        accepted = lease in self.leases or len(self.queue) <= max_waiting
        if not accepted:
            self.queue.pop(lease, None)
        return accepted

    def stop_waiting(self, lease: Lease) -> bool:
        """Leave the queue; return True if the lease was admitted."""
        self._run_exclusively(self.queue.pop, lease, None)
        return lease in self.leases

    def resize(self, limit: int) -> None:
        """Change the limit; admitted calls keep their slots, and waiters keep their position."""
        self.limit = limit
        self.admit_waiters()

    def admit_waiters(self) -> None:
        """Admit waiters in order while there are free slots, and wake them."""
        try:
            self._run_exclusively(self._admit)
        finally:
            self._wake_admitted()

    def _admit(self) -> None:
        self._complete(self._admit_while_free)

    def _admit_while_free(self) -> None:
        leases, queue = self.leases, self.queue
        while queue:
            lease, wake = next(iter(queue.items()))
            if lease not in leases and len(leases) >= self.limit:
                return
            leases.add(lease)
            if lease.released:
                leases.discard(lease)
            else:
                self.to_wake[lease] = wake
            queue.pop(lease, None)

    def _wake_admitted(self) -> None:
        self._complete(self._wake_each)

    def _wake_each(self) -> None:
        """Wake the admitted waiters; the slot of a waiter that no longer exists goes to the next one."""
        # In a re-entrant call the operation further up this stack wakes them, when it has ended.
        while not self._owned_by_this_thread():
            admitted = self._run_now(self._first_to_wake)
            if admitted is None:
                return
            lease, wake = admitted
            if wake() is False:
                self.discard(lease)
                self._run_exclusively(self._admit)
            self._run_now(self.to_wake.pop, lease, None)

    def _complete(self, operation: Callable[[], None]) -> None:
        """Run an operation; if it is interrupted, run it once more: no later call may complete it."""
        complete = False
        try:
            operation()
            complete = True
        finally:
            if not complete:
                operation()

    def _first_to_wake(self) -> tuple[Lease, Wake] | None:
        return next(iter(self.to_wake.items()), None)

    def counts(self) -> tuple[int, int]:
        """Return the numbers of admitted and of waiting calls."""
        with self._lock:  # not inside `_enqueue`, where a call that is rejected next is in the queue
            return min(len(self.leases), self.limit), len(self.queue)

    def counts_by_class(self) -> Mapping[str, int]:
        """Return the numbers of admitted and of waiting calls of each class with a share: here is none."""
        return {}

    def _after_deferred(self) -> None:
        self._wake_admitted()

    def _after_fork(self) -> None:
        super()._after_fork()
        self.leases.clear()  # those calls run in the parent
        self.queue.clear()
        self.to_wake.clear()
