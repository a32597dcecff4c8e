"""Classes of calls, compared with the partitions of Netflix's concurrency-limits.

There a class below its part is admitted even if the limit is reached. Here the limit holds, and the class
gets the next slot: see decision 40.
"""

from __future__ import annotations

from typing import Any

import pytest

from redouble import AdaptiveConcurrency, Bulkhead, errors, priority
from redouble.testing import virtual_time

PARTS = {"batch": 0.3, "live": 0.7}


def bulkhead(limit: int, shares: dict[str, float]) -> Bulkhead:
    """Return a bulkhead whose calls do not wait."""
    return Bulkhead(limit, 0, shares=shares)


def adaptive(limit: int, shares: dict[str, float]) -> AdaptiveConcurrency:
    """Return an adaptive limit that does not adapt."""
    return AdaptiveConcurrency(limit, limit, limit, shares=shares)


GATES = pytest.mark.parametrize("gate", [bulkhead, adaptive])


def enter(gate: Any, name: str | None) -> Any:
    """Return the ticket of a call of this class, or None if it is rejected."""
    try:
        with priority(name):
            return gate.admit(0.0)
    except errors.BulkheadFull:
        return None


@GATES
def test_a_limit_is_allocated_to_classes(gate: Any) -> None:
    """`limitAllocatedToBins`: each class can use its part."""
    made = gate(10, PARTS)
    tickets = [enter(made, "batch") for _ in range(3)] + [enter(made, "live") for _ in range(7)]
    assert None not in tickets
    assert enter(made, "batch") is enter(made, "live") is None


@GATES
def test_a_class_uses_what_is_idle_until_the_limit_is_reached(gate: Any) -> None:
    """`useExcessCapacityUntilTotalLimit`: seven slots of another class are borrowed."""
    made = gate(10, PARTS)
    assert None not in [enter(made, "batch") for _ in range(10)]
    assert enter(made, "batch") is None
    assert made.snapshot()["in_use.batch"] == 10


@GATES
def test_a_class_below_its_part_gets_the_next_slot(gate: Any) -> None:
    """`exceedTotalLimitForUnusedBin` admits an eleventh call; here it gets the first free slot."""
    with virtual_time():
        made = gate(10, PARTS)
        borrowed = [enter(made, "batch") for _ in range(10)]
        assert enter(made, "live") is None
        assert made.snapshot()["in_use"] == 10
        made.ended(borrowed.pop(), None, 0.0)
        assert enter(made, "batch") is None
        assert enter(made, "live") is not None


@GATES
def test_a_class_without_a_part_is_rejected_once_the_limit_is_reached(gate: Any) -> None:
    """`rejectOnceLimitReached`, and a class that the limit does not know."""
    made = gate(4, {"batch": 0.5, "live": 0.5})
    for name in ("live", "batch", "other", None):
        assert enter(made, name) is not None
    assert {enter(made, name) for name in (*PARTS, "other", None)} == {None}


@GATES
def test_a_released_slot_is_free_for_its_class(gate: Any) -> None:
    """`releaseLimit`: busy counts go down, in total and by class."""
    made = gate(10, {"batch": 1.0})
    ticket = enter(made, "batch")
    assert made.snapshot()["in_use.batch"] == 1
    made.ended(ticket, None, 0.0)
    assert (made.snapshot()["in_use"], made.snapshot()["in_use.batch"]) == (0, 0)


@GATES
def test_parts_above_one_are_an_error(gate: Any) -> None:
    """`setLimitReservesBusy` and the builder accept any sum; here a guarantee has to be possible."""
    with pytest.raises(ValueError, match=r"add up to 1\.1"):
        gate(10, {"batch": 0.4, "live": 0.7})
