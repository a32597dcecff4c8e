"""Spend alone: amounts reserved, committed, released and rejected."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from redouble._internal.locks import _after_fork
from redouble.llm import Price, Reservation, Spend, Usage
from tests.support.llm.spends import refusal, spent, tokens


def test_a_reservation_is_committed_or_released() -> None:
    spend = Spend(tokens=100)
    first, second, third = (spend.reserve(tokens=30) for _ in range(3))
    assert tokens(spend) == (0, 90, 10, 0)
    first.commit()
    second.commit(tokens=12)
    assert tokens(spend) == (42, 30, 28, 0)
    third.release()
    third.release()
    first.release()
    assert tokens(spend) == (42, 0, 58, 0)


def test_what_is_not_limited_is_counted() -> None:
    spend = Spend(cost=1, requests=2)
    spend.reserve(tokens=10**9, cost=0.25).commit(tokens=5)
    assert spend.snapshot() == {
        "tokens": 5,
        "tokens_reserved": 0,
        "cost": 0.25,
        "cost_reserved": 0,
        "cost_left": 0.75,
        "cost_limit": 1,
        "overdrawn_cost": 0,
        "requests": 1,
        "requests_reserved": 0,
        "requests_left": 1,
        "requests_limit": 2,
        "overdrawn_requests": 0,
    }


@pytest.mark.parametrize("asked", [{"tokens": 11}, {"cost": 1.01}, {"requests": 3}])
def test_a_reservation_fits_every_limit_or_is_rejected(asked: dict[str, Any]) -> None:
    spend = Spend(tokens=10, cost=1, requests=2)
    before = spend.snapshot()
    assert refusal(spend, **{"tokens": 5, "cost": 0.5, **asked}).what == next(iter(asked))
    assert spend.snapshot() == before


@pytest.mark.parametrize(("tokens", "cost"), [(6, 0.1), (1, 0.51)])
def test_more_reserves_all_amounts_or_none(tokens: int, cost: float) -> None:
    spend = Spend(tokens=10, cost=1)
    reservation = spend.reserve(tokens=5, cost=0.5)
    before = spend.snapshot()
    assert not reservation.more(tokens=tokens, cost=cost)
    assert spend.snapshot() == before


def test_more_extends_a_reservation() -> None:
    spend = Spend(tokens=10, cost=1)
    reservation = spend.reserve(tokens=5)
    assert [reservation.more(tokens=tokens) for tokens in (3, 3, 2)] == [True, False, True]
    assert not reservation.more(cost=1.5)
    assert reservation.more()
    assert tokens(spend) == (0, 10, 0, 0)
    reservation.commit(tokens=4)
    assert tokens(spend) == (4, 0, 6, 0)


def test_a_request_counts_if_no_tokens_were_used() -> None:
    spend = Spend(tokens=10, cost=1, requests=5)
    spend.reserve(tokens=10, cost=1).commit(tokens=0, cost=0)
    seen = spend.snapshot()
    assert (seen["tokens"], seen["cost"], seen["requests"]) == (0, 0, 1)


@pytest.mark.parametrize("committed", [True, False])
def test_a_settled_reservation_cannot_be_used(committed: bool) -> None:
    spend = Spend(tokens=10)
    reservation = spend.reserve(tokens=5)
    reservation.commit(tokens=1) if committed else reservation.release()
    for use in (reservation.commit, reservation.more):
        with pytest.raises(RuntimeError, match=r"is settled: .* Each call needs one of its own"):
            use(tokens=3)
    assert tokens(spend) == (int(committed), 0, 10 - committed, 0)


def test_a_with_block_releases_an_uncommitted_reservation() -> None:
    spend = Spend(tokens=10, requests=9)
    with spend.reserve(tokens=5) as kept:
        kept.commit(tokens=3)
    with pytest.raises(ZeroDivisionError), spend.reserve(tokens=5):
        raise ZeroDivisionError
    assert tokens(spend) == (3, 0, 7, 0)
    assert spend.snapshot()["requests"] == 1


def test_a_dropped_reservation_is_released_at_once() -> None:
    spend = Spend(tokens=10)
    gc.disable()
    try:
        reservation = spend.reserve(tokens=10)
        assert tokens(spend) == (0, 10, 0, 0)
        del reservation
        assert tokens(spend) == (0, 0, 10, 0)
        assert sys.getrefcount(spend) == 2
    finally:
        gc.enable()


def test_a_spend_is_never_copied_nor_pickled() -> None:
    spend = Spend(tokens=10)
    reservation = spend.reserve(tokens=1)
    for thing in (spend, reservation):
        assert copy.copy(thing) is copy.deepcopy(thing) is thing
        with pytest.raises(TypeError, match="cannot be sent to another: create one there"):
            pickle.dumps(thing)
    assert isinstance(reservation, Reservation)


# ------------------------------------------------------------------------------- exact amounts


@pytest.mark.parametrize(
    ("limit", "amount", "times"),
    [
        (1, 0.1, 10),
        (0.3, 0.1, 3),
        (1, Fraction(1, 3), 3),
        (2, Fraction(2, 97), 97),
        (Decimal("1e-39"), Decimal("1e-40"), 10),
        (Decimal("0.07"), Decimal("0.01"), 7),
        (2.5, Decimal("0.25"), 10),
        (1e-6, 1e-7, 10),
        (10**15, 10**14, 10),
    ],
)
def test_costs_are_exact(limit: Any, amount: Any, times: int) -> None:
    """Ten times 0.1 is 1, and nothing is left."""
    spend = Spend(cost=limit)
    for _ in range(times):
        spend.reserve(cost=amount).commit()
    assert spend.snapshot()["cost_left"] == 0
    assert refusal(spend, cost=1e-9).what == "cost"


def test_other_costs_are_rounded_up() -> None:
    """The denominator is a prime above 100: 101 such amounts exceed the limit by less than 1e-78."""
    spend = Spend(cost=1)
    for _ in range(100):
        spend.reserve(cost=Fraction(1, 101)).commit()
    assert spend.snapshot()["cost"] == 100 / 101
    assert "which is more" not in str(refusal(spend, cost=Fraction(1, 101)))
    assert str(refusal(Spend(cost=0.5), cost=1)).endswith(
        "1 was asked for, which is more than it ever allows"
    )


def test_the_cost_of_tokens_is_exact() -> None:
    price = Price(input=0.075, output=1 / 3)
    assert price.of(Usage(1, 0)) == Fraction(75, 10**9)
    assert price.of(Usage(3, 5)) == (3 * Fraction("0.075") + 5 * Fraction(repr(1 / 3))) / 10**6
    assert price == Price(input=0.075, output=1 / 3)


def test_a_call_without_amounts_is_admitted_while_anything_is_left() -> None:
    spend = Spend(tokens=100, cost=1)
    spend.reserve().commit(tokens=99, cost=0.9999)
    spend.reserve().commit(tokens=1, cost=0.0001)
    for amounts in ({}, {"cost": 0.0}, {"requests": 0}):
        assert "none is left" in str(refusal(spend, **amounts))


def test_a_forked_child_releases_what_its_parent_reserved() -> None:
    """The fork handler is called here directly; committed amounts stay, and overdrawn ones are settled."""
    spend = Spend(tokens=100, requests=9, warn_at=None)
    spent(spend, 10)
    kept, other = spend.reserve(tokens=60), spend.reserve(tokens=30)
    other.commit(tokens=50)
    assert tokens(spend) == (40, 60, 0, 20)
    _after_fork()
    assert tokens(spend) == (60, 0, 40, 0)
    assert kept.more(tokens=5)
    assert tokens(spend) == (60, 5, 35, 0)
    kept.release()
    assert tokens(spend) == (60, 0, 40, 0)
    assert refusal(spend, tokens=41).what == "tokens"
