"""`RetryBudget` alone: credits, and the number of retries granted for them."""

from __future__ import annotations

import re
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import Grant, Kind, RetryBudget, types
from redouble.testing import virtual_time
from tests.support.budgets import ANY, credited, granted
from tests.support.budgets import budget_of as made

# ------------------------------------------------------------------------------------- options


def test_the_defaults() -> None:
    budget: types.Budget = RetryBudget()
    assert repr(budget) == "RetryBudget(ratio=0.2, per_second=10, window=10, credit='success')"
    assert budget.snapshot() == {"available": 100, "limit": 100, "granted": 0, "credits": 0}


def test_options_are_attributes() -> None:
    budget = RetryBudget(0.5, 0.25, timedelta(minutes=1), "request")
    assert (budget.ratio, budget.per_second, budget.window) == (0.5, 0.25, 60)
    assert repr(budget) == "RetryBudget(ratio=0.5, per_second=0.25, window=60, credit='request')"
    assert budget.snapshot()["limit"] == 15


RATIO = "a finite number, 0 or more, such as 0.2"
PER_SECOND = "a finite number, 0 or more, such as 10"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"ratio": -0.1}, ValueError, f"RetryBudget ratio=-0.1: write {RATIO}"),
        ({"ratio": nan}, ValueError, f"RetryBudget ratio=nan: write {RATIO}"),
        ({"ratio": inf}, ValueError, f"RetryBudget ratio=inf: write {RATIO}"),
        ({"ratio": True}, TypeError, f"RetryBudget ratio=True: write {RATIO}"),
        ({"ratio": "20%"}, TypeError, f"RetryBudget ratio='20%': write {RATIO}"),
        ({"ratio": None}, TypeError, f"RetryBudget ratio=None: write {RATIO}"),
        ({"per_second": -1}, ValueError, f"RetryBudget per_second=-1: write {PER_SECOND}"),
        ({"per_second": nan}, ValueError, f"RetryBudget per_second=nan: write {PER_SECOND}"),
        ({"per_second": inf}, ValueError, f"RetryBudget per_second=inf: write {PER_SECOND}"),
        ({"per_second": False}, TypeError, f"RetryBudget per_second=False: write {PER_SECOND}"),
        ({"per_second": 10**5000}, ValueError, "RetryBudget per_second=a huge integer: write"),
        ({"window": 0}, ValueError, "RetryBudget window=0: write more seconds, such as 10"),
        ({"window": 1e-308}, ValueError, "RetryBudget window=1e-308: write more seconds, such as 10"),
        ({"window": -1}, ValueError, "RetryBudget window=-1: write a finite number of seconds"),
        ({"window": nan}, ValueError, "RetryBudget window=nan: write a finite number of seconds"),
        ({"window": True}, TypeError, "RetryBudget window=True: write seconds as a number, or a timedelta"),
        ({"window": "10s"}, TypeError, "RetryBudget window='10s': write seconds as a number"),
        ({"window": None}, TypeError, "RetryBudget window=None: write seconds as a number"),
        ({"credit": "failure"}, ValueError, "RetryBudget credit='failure': write 'success' or 'request'"),
        ({"credit": None}, ValueError, "RetryBudget credit=None: write 'success' or 'request'"),
        ({"credit": []}, ValueError, "RetryBudget credit=[]: write 'success' or 'request'"),
    ],
)
def test_wrong_options_are_refused_by_name(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        RetryBudget(**options)


# --------------------------------------------------------------------------------- the limit


@pytest.mark.parametrize(
    ("ratio", "earned", "expected"),
    [
        (0.2, 0, 0),
        (0.2, 1, 1),
        (0.2, 5, 1),
        (0.2, 6, 2),
        (0.07, 100, 7),
        (0.07, 101, 8),
        (0.6, 10_000, 6000),
        (0.1, 30, 3),
        (0.29, 100, 29),
        (1 / 3, 3, 1),
        (1, 7, 7),
        (2.5, 3, 8),
        (0, 1000, 0),
        (1e-9, 1, 1),
    ],
)
def test_the_share_of_credits_is_exact_and_rounded_up(ratio: float, earned: int, expected: int) -> None:
    budget = made(ratio=ratio)
    credited(budget, earned, 5.0)
    assert granted(budget, 5.0) == expected
    assert budget.snapshot() == {
        "available": 0,
        "limit": expected,
        "granted": expected,
        "credits": earned,
    }


@pytest.mark.parametrize(
    ("per_second", "window", "expected"),
    [(10, 10, 100), (0.1, 30, 3), (0.7, 10, 7), (0.29, 100, 29), (1, 0.5, 0), (0.19, 10, 1), (3, 1, 3)],
)
def test_the_minimum_per_window_is_exact_and_rounded_down(
    per_second: float, window: float, expected: int
) -> None:
    budget = RetryBudget(per_second=per_second, window=window)
    assert granted(budget, 5.0) == expected
    credited(budget, 10, 5.0)
    assert granted(budget, 5.0) == 2


def test_only_what_the_option_names_is_credited() -> None:
    by_success, by_request = made(ratio=1), made(ratio=1, credit="request")
    for budget in (by_success, by_request):
        for _ in range(3):
            budget.start(1.0)
        budget.failed(ANY, 1.0)
        budget.credit(None, 1.0)
        budget.credit(Grant(1), 1.0)
    assert (granted(by_success, 1.0), granted(by_request, 1.0)) == (2, 3)


def test_a_retry_costs_one_whatever_its_kind() -> None:
    budget = made(per_second=1)
    grants = [budget.spend(kind, 3.0) for kind in Kind]
    assert grants == [Grant(1.0)] * len(Kind)
    assert budget.snapshot()["granted"] == len(Kind)


def test_without_a_time_argument_the_current_time_is_used() -> None:
    with virtual_time() as clock:
        budget = made(ratio=1)
        budget.start()
        budget.failed()
        budget.credit()
        grant = budget.spend()
        assert grant is not None
        assert grant == Grant(1.0)
        assert budget.spend() is None
        budget.refund(grant)
        assert budget.spend() is not None
        clock.advance(11)
        assert budget.spend() is None
        assert budget.snapshot() == {"available": 0, "limit": 0, "granted": 0, "credits": 0}


def test_the_repr_of_a_grant() -> None:
    assert repr(RetryBudget().spend()) == "Grant(cost=1.0, wait=0.0)"
