"""Bulkhead: a limit on concurrent calls, shared by all threads and event loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import SharedByIdentity, gil
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, instance, integer
from redouble._internal.validation import seconds as checked
from redouble._layers.gate import Admission, Gate
from redouble._layers.layer import Layer
from redouble._layers.limits.slots import Lease, WaitableSlots

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase

__all__ = ["Bulkhead"]


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
    finally:
        redouble_lease.released = True
        try:
            redouble_discard(redouble_lease)
        finally:
            if redouble_queue or redouble_to_wake:
                redouble_admit_waiters()
{check}    return redouble_result
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
        integer(limit, "Bulkhead limit", 1, "a whole number, 1 or more, such as 10")
        wait = None if wait is None else checked(wait, "Bulkhead wait")
        if queue is not None:
            integer(queue, "Bulkhead queue", 0, "0 or more, or None")
        instance(name, "Bulkhead name", str | None, "a text, or None")
        self.settings = BulkheadSettings(limit=limit, wait=wait, queue=queue, name=name)
        self.name = name
        # If a subclass overrides `admit()` or `ended()`, every call calls those methods, and never waits.
        self._default_admission = type(self).admit is Bulkhead.admit and type(self).ended is Bulkhead.ended
        self._slots = WaitableSlots(limit, wait, queue, name)
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
        if not self._slots.try_acquire(lease):
            self._slots.try_acquire_now(lease, "and it does not wait")
        return lease

    def ended(self, ticket: Lease, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        """Release the slot."""
        self._slots.release(ticket)

    def snapshot(self) -> Mapping[str, float]:
        """Return how many slots are ``in_use``, the ``limit``, and how many calls are ``queued``."""
        in_use, queued = self._slots.counts()
        return {"limit": self.limit, "in_use": in_use, "queued": queued}

    def _compile(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any] | None:
        if not self._default_admission:
            return None
        slots = self._slots
        return compile_wrapper(  # `Slots.try_acquire()` and `release()`, inlined
            fn,
            SLOT_WRAPPER,
            is_async=is_async,
            Lease=Lease,
            len=len,
            slots=slots,
            leases=slots.leases,
            add=slots.leases.add if gil.enabled else slots.add,
            discard=slots.leases.discard if gil.enabled else slots.discard,
            queue=slots.queue,
            to_wake=slots.to_wake,
            admit_waiters=slots.admit_waiters,
            wait=slots.aenter if is_async else slots.enter,
            bulkhead=self,  # for `policy_of`
        )

    def _admission(self, *, stream: bool = False) -> Admission:
        return SlotAdmission(self) if self._default_admission else super()._admission(stream=stream)

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Apply the limits of another bulkhead; admitted calls and waiters stay."""
        self.settings = settings = replace(other.settings, name=self.name)
        self._slots.reconfigure(settings.limit, settings.wait, settings.queue)

    def describe(self) -> str:
        waits = "wait" if self.wait is None else f"wait up to {format_seconds(self.wait)}"
        return f"{self.limit} at once, others " + (waits if self.wait != 0 else "are refused")

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del inner, worst
        if any(layer.traits().retries for layer in outer):
            yield (
                "Bulkhead inside Retry: a call releases its slot while it waits to retry, so more calls "
                "than the limit are in progress; put it outside"
            )

    def __repr__(self) -> str:
        more = "" if self.queue is None else f", queue={self.queue}"
        more += "" if self.name is None else f", name={self.name!r}"
        return f"Bulkhead({self.limit}, wait={self.wait}{more})"


class SlotAdmission(Admission):
    """The slot of one ``with`` block or generator."""

    __slots__ = ()

    gate: Bulkhead

    def enter(self) -> None:
        self.ticket, self.entered = Lease(), True  # releasing a lease that was never admitted does no harm
        admitted = False
        try:
            if not self.gate._slots.try_acquire(self.ticket):
                self.gate._slots.enter(self.ticket)
            admitted = True
        finally:
            if not admitted:
                self.gate._slots.release(self.ticket)

    async def aenter(self) -> None:
        self.ticket, self.entered = Lease(), True  # releasing a lease that was never admitted does no harm
        admitted = False
        try:
            if not self.gate._slots.try_acquire(self.ticket):
                await self.gate._slots.aenter(self.ticket)
            admitted = True
        finally:
            if not admitted:
                self.gate._slots.release(self.ticket)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.gate._slots.release(self.ticket)
