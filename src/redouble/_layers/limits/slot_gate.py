"""Gates whose calls take a slot, and may wait for one: the wait in every colour, and the compiled wrapper.

A gate whose slots are `RankedSlots` has a template of its own: so shares cost nothing where there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from redouble._drivers.slot_wait import SlotWait
from redouble._internal.codegen import Template
from redouble._internal.locks import gil
from redouble._layers.gate import Gate
from redouble._layers.limits.ranked_slots import Order, RankedLease, RankedSlots
from redouble._layers.limits.shares import Shares
from redouble._runtime.deadline import wait_limit
from redouble._runtime.priority import PRIORITY
from redouble._runtime.slots import Lease, Slots
from redouble._telemetry.emit import layer_kind

# `RankedSlots.try_acquire()` and `release()`, inlined.
RANKED_ACQUIRE = """\
        redouble_held.add(redouble_lease)
        redouble_add(redouble_lease)
        if redouble_queue or redouble_claimants or redouble_len(redouble_leases) > redouble_slots.limit:
            {await_}redouble_wait(redouble_lease)
"""
RANKED_RELEASE = """\
        redouble_lease.released = True
        try:
            redouble_discard(redouble_lease)
        finally:
            try:
                redouble_held.discard(redouble_lease)
            finally:
                if redouble_queue or redouble_to_wake:
                    redouble_admit_waiters()
"""
RANKED_GROUP = """\
    redouble_group = redouble_groups.get(redouble_class(), redouble_common)
"""
RANKED_GROUP_PER_CALL = """\
    redouble_name = redouble_per_call({arguments}) or redouble_class()
    if redouble_name.__class__ is not redouble_str and redouble_name is not None:
        redouble_name = redouble_checked(redouble_name)
    redouble_group = redouble_groups.get(redouble_name, redouble_common)
"""
RANKED_LEASE = f"""\
{RANKED_GROUP}\
    redouble_lease = redouble_Lease()
    redouble_lease.group, redouble_held = redouble_group, redouble_group.leases
"""


def ranked_templates(title: str, source: str) -> dict[tuple[bool, bool], Template]:
    """Return a template by `locks.gil.enabled`, and by whether the class is a function of the arguments.

    Without a GIL the group's set is changed under the lock, with the set of all leases.
    """
    template = Template(title, source)
    templates = {
        True: template,
        False: template.derive(
            title,
            ("        redouble_held.add(redouble_lease)\n", ""),
            ("                redouble_held.discard(redouble_lease)\n", "                pass\n"),
        ),
    }
    by_context = {(enabled, False): each for enabled, each in templates.items()}
    per_call = (RANKED_GROUP, RANKED_GROUP_PER_CALL)
    return by_context | {(enabled, True): each.derive(title, per_call) for enabled, each in templates.items()}


def ranked_names(slots: RankedSlots, shares: Shares | None) -> Mapping[str, Any]:
    """Return the names of a ranked template."""
    return {
        "checked": None if shares is None else shares.checked,
        "str": str,
        "class": PRIORITY.get,
        "groups": slots.groups,
        "common": slots.common,
        "claimants": slots.claimants,
        "Lease": RankedLease,
        **slot_names(slots),
    }


def slot_names(slots: Slots) -> Mapping[str, Any]:
    """Return the names with which a template takes and releases a slot."""
    return {
        "len": len,
        "slots": slots,
        "leases": slots.leases,
        "add": slots.leases.add if gil.enabled else slots.add,
        "discard": slots.leases.discard if gil.enabled else slots.discard,
        "queue": slots.queue,
        "to_wake": slots.to_wake,
        "admit_waiters": slots.admit_waiters,
    }


class SlotGate(SlotWait, Gate):
    """A gate whose calls take a slot, and wait for one in a queue."""

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a slot; None for as long as it takes."""
        raise NotImplementedError

    @property
    def queue(self) -> int | None:
        """How many calls may wait at once; None for any number."""
        raise NotImplementedError

    def _new_lease(self, name: str | None) -> Lease:
        """Return a lease for a call whose arguments give it this class; None: that of the context."""
        return self._slots.lease(PRIORITY.get() if name is None else name)

    def _new_ranked_slots(self, limit: int, shares: Shares | None, order: Order) -> RankedSlots:
        """Return new slots with these options of the gate."""
        return RankedSlots(limit, shares, order, self._most_waiting, claiming=not self._may_wait)

    def _reconfigure_slots(self, limit: int, shares: Shares | None, order: Order) -> None:
        """Apply changed options: admitted calls keep their slots, and waiters their position."""
        if isinstance(self._slots, RankedSlots):
            self._slots.configure(limit, shares, order, self._most_waiting, claiming=not self._may_wait)
        else:
            self._slots.resize(limit)

    @property
    def _may_wait(self) -> bool:
        return self.wait != 0 and self.queue != 0

    @property
    def _most_waiting(self) -> float:
        return inf if self.queue is None else self.queue

    def _kind_and_name(self) -> tuple[str, str | None]:
        return layer_kind(self), self.name

    def _enter(self, lease: Lease) -> None:
        """Wait for a slot, or raise `BulkheadFull`."""
        self._wait_for_slot(lease, wait_limit(self.wait), self._most_waiting)

    async def _aenter(self, lease: Lease) -> None:
        """Wait for a slot, or raise `BulkheadFull`."""
        await self._await_slot(lease, wait_limit(self.wait), self._most_waiting)
