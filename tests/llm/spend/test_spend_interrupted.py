"""A `Spend` that is interrupted during an operation: by the garbage collector, by a signal, by Ctrl-C.

The interrupting code runs on the thread that holds the lock. These tests interrupt an operation at each call
and each return inside it, one after the other.
"""

from __future__ import annotations

import dis
import gc
from collections.abc import Callable
from contextlib import suppress

import pytest

from redouble._internal import locks
from redouble.llm import Reservation, Spend, SpendRefused
from redouble.llm._spend import ledger, spend
from tests.support.interruption import interrupted
from tests.support.llm.spends import tokens

MODULES = (spend, ledger, locks)
MOMENTS = 400  # more than any single operation has


class Operations:
    """The operations on one `Spend`, and the amounts they should leave."""

    def __init__(self) -> None:
        self.spend = Spend(tokens=1000, cost=10, per=1e6, warn_at=None)
        self.taken = 0
        self.open: list[tuple[Reservation, int]] = []
        for _ in range(4):
            self.reserve()
        self.commit()

    def reserve(self) -> None:
        self.open.append((self.spend.reserve(tokens=10, cost=0.1), 10))

    def more(self) -> None:
        reservation, held = self.open.pop()
        assert reservation.more(tokens=5)
        self.open.append((reservation, held + 5))

    def commit(self) -> None:
        reservation, _ = self.open.pop()
        self.taken += 7
        reservation.commit(tokens=7)

    def release(self) -> None:
        self.open.pop()[0].release()

    def drop(self) -> None:
        self.open.pop()

    def look(self) -> None:
        assert self.spend.snapshot()["tokens_limit"] == 1000

    def check(self) -> None:
        """Assert that the amounts are exact."""
        assert tokens(self.spend)[:2] == (self.taken, sum(held for _, held in self.open))


OPERATIONS = ("reserve", "more", "commit", "release", "drop", "look")


@pytest.mark.parametrize("inner", OPERATIONS)
@pytest.mark.parametrize("outer", OPERATIONS)
def test_an_operation_may_interrupt_another_one(outer: str, inner: str) -> None:
    """Every amount that is reserved, spent or released counts once."""
    for moment in range(MOMENTS):
        operations = Operations()
        with interrupted(MODULES, getattr(operations, inner), moment) as came:
            getattr(operations, outer)()
        operations.check()
        if not came:
            # Dropping a reservation runs no Python code: its weakref callback is a C function.
            assert moment or outer == "drop", "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


@pytest.mark.parametrize("inner", ["commit", "release"])
@pytest.mark.parametrize("outer", ["commit", "more", "release"])
def test_a_reservation_settled_during_its_own_use_is_settled_once(outer: str, inner: str) -> None:
    """The first of the two settles it; the later one raises."""
    for moment in range(MOMENTS):
        spend = Spend(tokens=100)
        reservation = spend.reserve(tokens=10)

        def settle(reservation: Reservation = reservation) -> None:
            with suppress(RuntimeError):
                getattr(reservation, inner)()

        with interrupted(MODULES, settle, moment) as came, suppress(RuntimeError):
            getattr(reservation, outer)()
        if outer == "more" and not came:
            settle()
        assert tokens(spend) in ((10, 0, 90, 0), (0, 0, 100, 0))
        if not came:
            # Dropping a reservation runs no Python code: its weakref callback is a C function.
            assert moment or outer == "drop", "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


@pytest.mark.parametrize("inner", ["commit", "release"])
@pytest.mark.parametrize("per", [None, 60])
def test_a_call_is_admitted_or_rejected_if_another_ends_meanwhile(inner: str, per: float | None) -> None:
    for moment in range(MOMENTS):
        spend = Spend(tokens=100, cost=1, requests=9, per=per, warn_at=None)
        other, admitted = spend.reserve(tokens=100, cost=0.5), list[Reservation]()
        with interrupted(MODULES, getattr(other, inner), moment) as came, suppress(SpendRefused):
            admitted.append(spend.reserve(tokens=40))
        spent = 100 if inner == "commit" and came else 0
        reserved = 40 * len(admitted) or 100 * (not came)
        assert tokens(spend) == (spent, reserved, 100 - spent - reserved, 0)
        if not came:
            break
        assert moment or len(admitted) == (inner == "release")
    else:
        pytest.fail("there are more moments than that")


ATOMIC = [Spend._add_to_hold, Spend._end_hold, ledger.LimitLedger._step]


@pytest.mark.parametrize("function", ATOMIC)
def test_amounts_change_without_a_call_a_loop_or_a_new_container(function: Callable[..., bool]) -> None:
    """CPython runs other code only there: signal handlers, other threads and the garbage collector."""
    steps = [(step.opname, step.argval) for step in dis.get_instructions(function)]
    if ("RAISE_VARARGS", 1) in steps:  # an error that is raised before any change
        raised = steps.index(("RAISE_VARARGS", 1))
        created = next(place for place, step in enumerate(steps) if step[1] == "RuntimeError")
        assert "STORE_ATTR" not in {name for name, _ in steps[:raised]}
        del steps[created:raised]
    breaks = ("CALL", "JUMP_BACKWARD", "SEND", "YIELD", "FOR_ITER", "BUILD")
    assert [name for name, _ in steps if any(word in name for word in breaks)] == []


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("outer", OPERATIONS)
def test_a_keyboard_interrupt_at_any_moment_loses_nothing(outer: str) -> None:
    """The operation has happened or has not; when all reservations are gone, nothing stays reserved."""
    for moment in range(MOMENTS):
        operations = Operations()
        held = [reservation for reservation, _ in operations.open if outer != "drop"]
        with interrupted(MODULES, interrupt, moment) as came, suppress(KeyboardInterrupt):
            getattr(operations, outer)()
        spent, reserved, _, _ = tokens(operations.spend)
        assert spent in {7, operations.taken}
        assert reserved in {20, 30, {"more": 35, "reserve": 40}.get(outer)}
        held.clear()
        operations.open.clear()
        assert tokens(operations.spend) == (spent, 0, 1000 - spent, 0)
        if not came:
            # Dropping a reservation runs no Python code: its weakref callback is a C function.
            assert moment or outer == "drop", "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


# ------------------------------------------------------------------------- garbage collection


class Lost:
    """Holds a reservation and is part of a cycle, so the garbage collector releases it."""

    def __init__(self, reservation: Reservation) -> None:
        self.reservation, self.myself = reservation, self


def test_the_garbage_collector_releases_dropped_reservations() -> None:
    """It may run at any moment, also while the same thread holds the lock."""
    spend, threshold = Spend(tokens=10**6, cost=10**6, per=1e6), gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(200):
            Lost(spend.reserve(tokens=10, cost=0.1))
            with spend.reserve(tokens=9, cost=0.3) as reservation:
                assert reservation.more(tokens=1)
                reservation.commit(tokens=5, cost=0.1)
            assert spend.snapshot()["tokens"] == 5 * (number + 1)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert tokens(spend)[:2] == (1000, 0)
    assert spend.snapshot()["cost"] == 20
