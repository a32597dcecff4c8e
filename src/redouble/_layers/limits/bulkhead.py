"""Bulkhead: a limit on concurrent calls, shared by all threads and event loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import NoReturn, Self

from redouble._internal.codegen import Template
from redouble._internal.locks import SharedByIdentity, gil
from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import Duration, format_seconds, integer
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import WorstCase, combined_traits
from redouble._layers.gate import Admission, Gate, Wrapper, describe_others
from redouble._layers.layer import Layers
from redouble._runtime.backend import backend, cancel_after, in_event_loop
from redouble._runtime.clock import virtual
from redouble._runtime.deadline import wait_limit
from redouble._runtime.slots import Lease, Slots, Wake
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_rejected
from redouble.errors import BulkheadFull

SLOT_WRAPPER = Template(
    "bulkhead",
    """\
{async_}def held({parameters}):
    redouble_lease = redouble_Lease()
    try:
        redouble_add(redouble_lease)
        if redouble_queue or redouble_len(redouble_leases) > redouble_slots.limit:
            {await_}redouble_wait(redouble_lease)
        redouble_result = {await_}redouble_fn({arguments})
        {check}
    finally:
        redouble_lease.released = True
        try:
            redouble_discard(redouble_lease)
        finally:
            if redouble_queue or redouble_to_wake:
                redouble_admit_waiters()
    return redouble_result
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSettings:
    """The validated options of a `Bulkhead`."""

    limit: int
    wait: float | None
    queue: int | None
    name: str | None


@public("redouble")
class Bulkhead(SharedByIdentity, Gate):
    """A limit on concurrent calls: at most ``limit`` at once, in all threads and event loops together.

    Other calls wait for a slot in a FIFO queue, for up to ``wait`` seconds (None: for ever, 0: not at all);
    then they raise `BulkheadFull`. At most ``queue`` calls wait at once. A blocking call on the thread of a
    running event loop never waits, because it would stop the loop. A deadline ends the waiting too.
    """

    def __init__(
        self,
        limit: int,
        wait: Duration | None = 1.0,
        queue: int | None = None,
        *,
        name: str | None = None,
    ) -> None:
        if callable(limit):
            raise TypeError("write @Bulkhead(10), with the limit: it is no decorator without it")
        self.settings = BulkheadSettings(
            limit=integer(limit, "Bulkhead limit", 1, "a whole number, 1 or more, such as 10"),
            wait=None if wait is None else checked(wait, "Bulkhead wait"),
            queue=None if queue is None else integer(queue, "Bulkhead queue", 0, "0 or more, or None"),
            name=name,
        )
        self.name = name
        # If a subclass overrides `admit()` or `ended()`, every call calls those methods, and never waits.
        self._default_admission = type(self).admit is Bulkhead.admit and type(self).ended is Bulkhead.ended
        self._slots = Slots(limit)
        self.register("bulkheads")

    @property
    def limit(self) -> int:
        """The maximum number of concurrent calls."""
        return self.settings.limit

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a slot; None for as long as it takes."""
        return self.settings.wait

    @property
    def queue(self) -> int | None:
        """How many calls may wait at once; None for any number."""
        return self.settings.queue

    def admit(self, now: float, /) -> Lease:  # noqa: ARG002  a slot does not depend on the time
        """Acquire a slot without waiting, or raise `BulkheadFull`."""
        lease = Lease()
        try:
            if not self._slots.try_acquire(lease):
                self._acquire_now(lease, "and it does not wait")
        except BaseException:
            self._slots.release(lease)
            raise
        return lease

    @try_from_start
    def ended(self, ticket: Lease, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        try:
            self._slots.release(ticket)
        except BaseException:
            self._slots.release(ticket)
            raise

    def snapshot(self) -> Mapping[str, float]:
        """Return how many slots are ``in_use``, the ``limit``, and how many calls are ``queued``."""
        in_use, queued = self._slots.counts()
        return {"limit": self.limit, "in_use": in_use, "queued": queued}

    def _wrapper(self, *, is_async: bool) -> Wrapper | None:
        if not self._default_admission:
            return None
        slots = self._slots
        return SLOT_WRAPPER, {  # `Slots.try_acquire()` and `release()`, inlined
            "Lease": Lease,
            "len": len,
            "slots": slots,
            "leases": slots.leases,
            "add": slots.leases.add if gil.enabled else slots.add,
            "discard": slots.leases.discard if gil.enabled else slots.discard,
            "queue": slots.queue,
            "to_wake": slots.to_wake,
            "admit_waiters": slots.admit_waiters,
            "wait": self._aenter if is_async else self._enter,
        }

    def _acquire_admission(self, admission: Admission) -> None:
        if self._has_to_wait(admission):
            self._enter(admission.ticket)

    async def _aacquire_admission(self, admission: Admission) -> None:
        if self._has_to_wait(admission):
            await self._aenter(admission.ticket)

    def _has_to_wait(self, admission: Admission) -> bool:
        """Acquire a slot if that is possible at once; return True if the call has to wait for one."""
        if not self._default_admission:
            super()._acquire_admission(admission)
            return False
        # Set first: releasing a lease that was never admitted does no harm.
        admission.ticket, admission.entered = Lease(), True
        return not self._slots.try_acquire(admission.ticket)

    def _end_admission(self, admission: Admission, error: BaseException | None) -> None:
        if self._default_admission:
            self._slots.release(admission.ticket)  # which may be repeated
        else:
            super()._end_admission(admission, error)

    def _enter(self, lease: Lease) -> None:
        """Wait for a slot, blocking this thread; or raise `BulkheadFull`."""
        seconds = wait_limit(self.wait)
        if not seconds:
            self._acquire_now(lease, "and it does not wait")
        elif in_event_loop():
            self._acquire_now(lease, "and a blocking call cannot wait on the thread of an event loop")
        else:
            waker = ThreadWaker()
            try:
                self._join_queue(lease, waker.wake)
                clock = virtual()
                if clock is None or seconds == inf:
                    waker.wait(seconds)
                elif waker.pending:
                    clock._move_to(clock.now() + seconds)
            finally:
                admitted = self._slots.stop_waiting(lease)
            if not admitted:
                self._reject(f"and no slot came free within {format_seconds(seconds)}")

    async def _aenter(self, lease: Lease) -> None:
        """Wait for a slot in async code; or raise `BulkheadFull`."""
        seconds = wait_limit(self.wait)
        if not seconds:
            self._acquire_now(lease, "and it does not wait")
        else:
            wake, woken = backend().waker()
            try:
                self._join_queue(lease, wake)
                with cancel_after(seconds):
                    await woken()
            finally:
                admitted = self._slots.stop_waiting(lease)
            if not admitted:
                self._reject(f"and no slot came free within {format_seconds(seconds)}")

    def _acquire_now(self, lease: Lease, why: str) -> None:
        """Acquire a slot without waiting, behind all waiters; or raise `BulkheadFull`.

        `try_acquire()` may have failed only because another failing call had added its lease just then.
        """
        try:
            if not self._slots.enqueue(lease, object, 0):
                self._reject(why)
        finally:
            self._slots.stop_waiting(lease)

    def _join_queue(self, lease: Lease, wake: Wake) -> None:
        most = self.queue
        if not self._slots.enqueue(lease, wake, inf if most is None else most):
            self._reject(f"and {most} are waiting already" if most else "and no call may wait")

    def _reject(self, why: str) -> NoReturn:
        calls = "1 call is" if self.limit == 1 else f"{self.limit} calls are"
        message = f"{self._title('bulkhead')} is full: {calls} in flight, {why}"
        # No variable for the error: its traceback refers to this frame, and a cycle would keep the bulkhead.
        raise emit_rejected(BulkheadFull(message, limit=self.limit, wait=self.wait), "bulkhead", self.name)

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Apply the limits of another bulkhead; admitted calls and waiters stay."""
        self.settings = replace(other.settings, name=self.name)
        self._slots.resize(self.limit)

    def describe(self) -> str:
        return f"{self.limit} at once, {describe_others(self.wait)}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        if combined_traits(outer).retries:
            yield (
                "Bulkhead inside Retry: a call releases its slot while it waits to retry, so more calls "
                "than the limit are in progress; put it outside"
            )

    def __repr__(self) -> str:
        return self._repr(f"{self.limit}", f"wait={self.wait}", queue=self.queue)
