"""Bulkhead: a limit on concurrent calls, shared by all threads and event loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NoReturn, Self, get_args

from redouble._internal.codegen import Template
from redouble._internal.locks import SharedByIdentity, gil
from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import Duration, choice, integer
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import WorstCase, combined_traits
from redouble._layers.gate import Admission, Wrapper, describe_others
from redouble._layers.layer import Layers
from redouble._layers.limits.ranked_slots import ORDERS, Order, RankedSlots
from redouble._layers.limits.shares import (
    PriorityOption,
    describe_shares,
    lint_shares,
    same_function,
    shares_option,
)
from redouble._layers.limits.slot_gate import (
    RANKED_ACQUIRE,
    RANKED_LEASE,
    RANKED_RELEASE,
    SlotGate,
    ranked_names,
    ranked_templates,
    slot_names,
)
from redouble._runtime.slots import Lease, Slots
from redouble._telemetry.emit import emit_layer, emit_rejected
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
RANKED_WRAPPER = ranked_templates(
    "bulkhead",
    f"""\
{{async_}}def held({{parameters}}):
{RANKED_LEASE}\
    try:
{RANKED_ACQUIRE}\
        redouble_result = {{await_}}redouble_fn({{arguments}})
        {{check}}
    finally:
{RANKED_RELEASE}\
    return redouble_result
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSettings:
    """The validated options of a `Bulkhead`."""

    limit: int
    wait: float | None
    queue: int | None
    order: Order
    shares: Mapping[str, float] | None
    priority: PriorityOption
    name: str | None

    @property
    def ranked(self) -> bool:
        """True if calls are not simply admitted in order of arrival."""
        return self.shares is not None or self.order != "fifo"


@public("redouble")
class Bulkhead(SharedByIdentity, SlotGate):
    """A limit on concurrent calls: at most ``limit`` at once, in all threads and event loops together.

    Other calls wait for a slot in a FIFO queue, for up to ``wait`` seconds (None: for ever, 0: not at all);
    then they raise `BulkheadFull`. At most ``queue`` calls wait at once. A blocking call on the thread of a
    running event loop never waits, because it would stop the loop. A deadline ends the waiting too.

    order: which waiter is admitted first: ``"fifo"``, the one that came first; ``"lifo"``, the newest;
        ``"adaptive"``, the newest while the queue is more than half full, or longer than the limit.
    shares: guaranteed shares of the limit by class of call, the highest class first, such as
        ``{"interactive": 0.6, "batch": 0.1}``. What a class does not use others may borrow; the rest of 1.0
        is common. A free slot goes to a class below its share, else to the highest class that waits.
    priority: the class of a call that `redouble.priority` gives none, or a function of its arguments.
    name: the name of the bulkhead in its errors.
    """

    def __init__(
        self,
        limit: int,
        wait: Duration | None = 1.0,
        queue: int | None = None,
        *,
        order: Order = "fifo",
        shares: Mapping[str, float] | None = None,
        priority: PriorityOption = None,
        name: str | None = None,
    ) -> None:
        if callable(limit):
            raise TypeError("write @Bulkhead(10), with the limit: it is no decorator without it")
        choice(order, "Bulkhead order", *get_args(Order))
        self._shares = shares_option(shares, priority, "Bulkhead")
        self._per_call = None if self._shares is None else self._shares.per_call
        self.settings = BulkheadSettings(
            limit=integer(limit, "Bulkhead limit", 1, "a whole number, 1 or more, such as 10"),
            wait=None if wait is None else checked(wait, "Bulkhead wait"),
            queue=None if queue is None else integer(queue, "Bulkhead queue", 0, "0 or more, or None"),
            order=order,
            shares=None if self._shares is None else self._shares.shares,
            priority=priority,
            name=name,
        )
        self.name = name
        # If a subclass overrides `admit()` or `ended()`, every call calls those methods, and never waits.
        self._default_admission = type(self).admit is Bulkhead.admit and type(self).ended is Bulkhead.ended
        self._slots = Slots(limit)
        if self.settings.ranked:
            self._slots = self._new_ranked_slots(limit, self._shares, order)
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
        lease = self._new_lease(None)
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
        """Return how many slots are ``in_use``, the ``limit``, and how many calls are ``queued``.

        With shares also the numbers of each class, such as ``in_use.batch`` and ``queued.batch``.
        """
        in_use, queued = self._slots.counts()
        return {"limit": self.limit, "in_use": in_use, "queued": queued, **self._slots.counts_by_class()}

    def _wrapper(self, *, is_async: bool) -> Wrapper | None:
        if not self._default_admission:
            return None
        names: dict[str, Any] = {"wait": self._aenter if is_async else self._enter}
        if isinstance(self._slots, RankedSlots):
            by_argument = self._per_call is not None
            return RANKED_WRAPPER[gil.enabled, by_argument], {
                **names,
                **ranked_names(self._slots, self._shares),
            }
        return SLOT_WRAPPER, {"Lease": Lease, **names, **slot_names(self._slots)}

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
        admission.ticket, admission.entered = self._new_lease(admission.per_call), True
        return not self._slots.try_acquire(admission.ticket)

    def _end_admission(self, admission: Admission, error: BaseException | None) -> None:
        if self._default_admission:
            self._slots.release(admission.ticket)  # which may be repeated
        else:
            super()._end_admission(admission, error)

    def _reject(self, why: str) -> NoReturn:
        calls = "1 call is" if self.limit == 1 else f"{self.limit} calls are"
        message = f"{self._title('bulkhead')} is full: {calls} in flight, {why}"
        # No variable for the error: its traceback refers to this frame, and a cycle would keep the bulkhead.
        raise emit_rejected(BulkheadFull(message, limit=self.limit, wait=self.wait), "bulkhead", self.name)

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True unless only one has shares or an order, or another function as ``priority``.

        Functions that are decorated already cannot change that.
        """
        same_template = self.settings.ranked == other.settings.ranked
        return same_template and same_function(self._shares, other._shares)

    def reconfigure(self, other: Self, /) -> None:
        """Apply the settings of another bulkhead; admitted calls and waiters stay."""
        before = self.limit
        self.settings = settings = replace(other.settings, name=self.name)
        self._shares = other._shares
        self._reconfigure_slots(settings.limit, self._shares, settings.order)
        if before != settings.limit:
            emit_layer("limit_changed", "bulkhead", self.name, level=settings.limit)

    def describe(self) -> str:
        guaranteed = "" if self._shares is None else f"{describe_shares(self._shares)}, "
        others = describe_others(self.wait if self._may_wait else 0, ORDERS[self.settings.order])
        return f"{self.limit} at once, {guaranteed}{others}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        wait = inf if self.wait is None else self.wait
        return inner.after(wait if self._may_wait else 0)

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        if combined_traits(outer).retries:
            yield (
                "Bulkhead inside Retry: a call releases its slot while it waits to retry, so more calls "
                "than the limit are in progress; put it outside"
            )
        yield from lint_shares(self._shares, self.limit, "Bulkhead")

    def __repr__(self) -> str:
        settings = self.settings
        order = None if settings.order == "fifo" else settings.order
        return self._repr(
            f"{self.limit}", f"wait={self.wait}", queue=self.queue, order=order, shares=self._shares
        )
