"""`RetryBudget`: for any operations in any order, no more is granted than the credits allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redouble import Grant, Kind, RetryBudget

pytestmark = pytest.mark.one_python

TICK = 16  # of a second: times are whole numbers of these, so that the model is exact
# The time that passes: mostly less than a window, sometimes far more.
PASSED = [0, 1, 2, 3, TICK // 2, TICK, 2 * TICK, 5 * TICK, 11 * TICK, 400 * TICK]

What: TypeAlias = Literal["earn", "spend", "refund", "pass", "look", "late"]
WHATS: list[What] = ["earn", "earn", "spend", "spend", "refund", "pass", "pass", "look", "late"]
STEPS = st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 9)), max_size=100)
OPTIONS = st.fixed_dictionaries(
    {
        "ratio": st.sampled_from([0, 0.05, 0.07, 0.2, 0.29, 1 / 3, 0.5, 1, 2.5]),
        "per_second": st.sampled_from([0, 0.1, 0.3, 1, 7]),
        "window": st.sampled_from([0.5, 1, 3, 7, 10, 60]),
        "credit": st.sampled_from(["success", "request"]),
    }
)


@dataclass
class Model:
    """All operations so far in plain lists; times are in ticks."""

    budget: RetryBudget
    now: int
    latest: int  # the time of the last operation on the budget
    earned: list[int] = field(default_factory=list[int])
    granted: list[tuple[int, Grant]] = field(default_factory=list[tuple[int, Grant]])

    def most(self, age: Fraction) -> int:
        """Return the limit if credits up to this age, in windows, count."""
        last = max([self.latest, *self.earned])
        earned = sum(last - when <= age * self.window for when in self.earned)
        per_window = Fraction(str(self.budget.per_second)) * Fraction(str(self.budget.window))
        return ceil(Fraction(str(self.budget.ratio)) * earned) + floor(per_window)

    def grants(self, age: Fraction) -> int:
        return sum(self.latest - when <= age * self.window for when, _ in self.granted)

    @property
    def window(self) -> Fraction:
        return Fraction(str(self.budget.window)) * TICK

    def take(self, what: What, number: int) -> None:
        match what:
            case "earn":
                for _ in range(number):
                    self.budget.start(self.now / TICK)
                    self.budget.credit(None, self.now / TICK)
                    self.earned.append(self.now)
            case "spend":
                for _ in range(number):
                    self.spend(self.now)
            case "late":  # a thread that read the clock a moment ago
                self.spend(self.now - min(number, int(self.window / 2)))
            case "refund":
                if self.granted:
                    self.latest = self.now
                    _, grant = self.granted.pop(number % len(self.granted))
                    self.budget.refund(grant, self.now / TICK)
            case "pass":
                self.now += PASSED[number]
            case "look":
                self.latest = self.now
                self.look(self.budget.snapshot(self.now / TICK))

    def spend(self, when: int) -> None:
        self.latest = max(self.latest, when)
        grant = self.budget.spend(Kind.unknown, when / TICK)
        if grant is None:  # the bounds differ a little, because a window slides by slices
            assert self.grants(Fraction(101, 100)) >= self.most(Fraction(98, 100))
        else:
            self.granted.append((self.latest, grant))
            assert self.grants(Fraction(1)) <= self.most(Fraction(1))

    def look(self, seen: Mapping[str, float]) -> None:
        assert self.grants(Fraction(1)) <= seen["granted"] <= self.grants(Fraction(101, 100))
        assert self.most(Fraction(98, 100)) <= seen["limit"] <= self.most(Fraction(1))
        assert seen["available"] == max(0, seen["limit"] - seen["granted"])


@settings(deadline=None)
@given(options=OPTIONS, start=st.integers(0, 10**6), steps=STEPS)
@example(  # a clock that begins below zero: its first time does not count as late
    options={"ratio": 0, "per_second": 1, "window": 3, "credit": "success"},
    start=0,
    steps=[("late", 1), ("pass", 5), ("pass", 6), ("look", 0)],
)
def test_the_grants_match_the_credits_of_the_window(
    options: dict[str, Any], start: int, steps: list[tuple[What, int]]
) -> None:
    """In the window that ends with any grant: as many as its credits allow, without the refunded ones."""
    model = Model(RetryBudget(**options), start, -(10**9))  # not used yet
    for what, number in steps:
        model.take(what, number)


@settings(deadline=None)
@given(
    ratio=st.floats(0, 3),
    per_second=st.floats(0, 3),
    window=st.floats(0.01, 1e4),
    now=st.floats(0, 1e6),
    earned=st.integers(0, 2000),
)
def test_the_limit_is_exact_for_any_numbers(
    ratio: float, per_second: float, window: float, now: float, earned: int
) -> None:
    """Numbers count as they are written: 0.07 of 100 is 7, although the float 0.07 is a little more."""
    budget = RetryBudget(ratio, per_second, window)
    for _ in range(earned):
        budget.credit(None, now)
    share = ceil(Fraction(str(ratio)) * earned)
    assert budget.snapshot(now)["limit"] == share + floor(Fraction(str(per_second)) * Fraction(str(window)))


Looks: TypeAlias = list[tuple[bool, float]]


@settings(deadline=None)
@given(
    window=st.floats(0.01, 1e4),
    start=st.floats(-1e6, 1e6),
    looks=st.lists(st.tuples(st.booleans(), st.floats(0, 0.7)), max_size=60),
)
def test_the_limit_holds_for_any_window_on_any_clock(window: float, start: float, looks: Looks) -> None:
    """The times are no round numbers; the bound holds to the rounding of a float."""
    budget, now = RetryBudget(1, 1 / window, window), start
    limit = budget.snapshot()["limit"]
    earned, granted = list[float](), list[float]()
    for earns, passed in looks:
        now += passed * window
        if earns:
            budget.credit(None, now)
            earned.append(now)
        elif budget.spend(Kind.unknown, now) is not None:
            granted.append(now)
            grants = sum(now - when < window * (1 - 1e-6) - 1e-6 for when in granted)
            assert grants <= limit + sum(now - when < window * (1 + 1e-6) + 1e-6 for when in earned)


@settings(deadline=None)
@given(refunds=st.lists(st.integers(0, 40), max_size=60), ages=st.lists(st.floats(0, 3), min_size=60))
def test_refunds_restore_the_initial_number(refunds: list[int], ages: list[float]) -> None:
    """Refunding all grants, however late, restores the initial number, and no more."""
    budget, now, mine = RetryBudget(0, 1, 10), 0.0, list[Grant]()
    for number, age in zip(refunds, ages, strict=False):
        now += age
        for _ in range(number):
            grant = budget.spend(Kind.unknown, now)
            if grant is not None:
                mine.append(grant)
        for grant in mine[::2]:
            budget.refund(grant, now)
        mine = mine[1::2]
    for grant in mine:
        budget.refund(grant, now)
    assert budget.snapshot(now) == {"available": 10, "limit": 10, "granted": 0, "credits": 0}
