"""A `Spend` that is interrupted during an operation: by the garbage collector, by a signal, by Ctrl-C.

The interruption runs on the very thread that holds the lock. These tests interrupt at every call and at every
return inside an operation, one after the other.
"""

from __future__ import annotations

import gc
from contextlib import suppress

import pytest

from redouble._internal import locks
from redouble.llm import Reservation, Spend
from redouble.llm._spend import ledger, spend
from tests.support.interruption import interrupted
from tests.support.llm.spends import tokens

MODULES = (spend, ledger, locks)
MOMENTS = 400  # more than any single use has


class Uses:
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
        """See that nothing was lost."""
        assert tokens(self.spend)[:2] == (self.taken, sum(held for _, held in self.open))


USES = ("reserve", "more", "commit", "release", "drop", "look")


@pytest.mark.parametrize("inner", USES)
@pytest.mark.parametrize("outer", USES)
def test_used_in_the_middle_of_itself(outer: str, inner: str) -> None:
    """Everything counts once: what was reserved, what was taken, what went back."""
    for moment in range(MOMENTS):
        uses = Uses()
        with interrupted(MODULES, getattr(uses, inner), moment) as came:
            getattr(uses, outer)()
        uses.check()
        if not came:
            # A reservation that is dropped runs no Python code: its weakref callback is a function of C.
            assert moment or outer == "drop", "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


@pytest.mark.parametrize("inner", ["commit", "release"])
@pytest.mark.parametrize("outer", ["commit", "more", "release"])
def test_one_reservation_settled_in_the_middle_of_its_own_use(outer: str, inner: str) -> None:
    """It is settled once, by the first of them: the later one gets an error."""
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
            # A reservation that is dropped runs no Python code: its weakref callback is a function of C.
            assert moment or outer == "drop", "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("outer", USES)
def test_interrupted_anywhere_nothing_is_lost(outer: str) -> None:
    """What was interrupted has happened or it has not; in the end all that was reserved is there again."""
    for moment in range(MOMENTS):
        uses = Uses()
        held = [reservation for reservation, _ in uses.open if outer != "drop"]
        with interrupted(MODULES, interrupt, moment) as came, suppress(KeyboardInterrupt):
            getattr(uses, outer)()
        spent, reserved, _, _ = tokens(uses.spend)
        assert spent in {7, uses.taken}
        assert reserved in {20, 30, {"more": 35, "reserve": 40}.get(outer)}
        held.clear()
        uses.open.clear()
        assert tokens(uses.spend) == (spent, 0, 1000 - spent, 0)
        if not came:
            # A reservation that is dropped runs no Python code: its weakref callback is a function of C.
            assert moment or outer == "drop", "no code of these modules has run"
            break
    else:
        pytest.fail("there are more moments than that")


# ------------------------------------------------------------------------------- the collector


class Lost:
    """A call that was dropped as part of a cycle: the collector hands back what it held."""

    def __init__(self, reservation: Reservation) -> None:
        self.reservation, self.myself = reservation, self


def test_what_the_collector_hands_back() -> None:
    """It comes at any moment, also while the lock is held by the same thread."""
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
