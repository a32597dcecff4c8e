"""Spend against a naive model that keeps every operation in a list: exact, in any order."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count, pairwise
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble.llm import Reservation, Spend, SpendRefused
from redouble.testing import VirtualClock, virtual_time

pytestmark = pytest.mark.one_python

TICK = 1 / 64  # seconds: all times are multiples of it, and so are exact floats
SLICES, KEPT = 128, 129

What: TypeAlias = Literal["reserve", "more", "commit", "release", "drop", "pass"]
WHATS: list[What] = ["reserve", "reserve", "reserve", "more", "commit", "commit", "release", "drop", "pass"]
TOKENS = st.sampled_from([0, 0, 1, 2, 5, 13, 40, 150])
STEPS = st.lists(
    st.tuples(st.sampled_from(WHATS), TOKENS, st.integers(0, 30), st.integers(0, 5)), max_size=60
)
PASSED = [0, 1, 7, 64, 67, 200]  # hundredths of a window


@dataclass
class Naive:
    """One limit: the reserved amounts, every spent amount with the slice that counts it, and the debt."""

    limit: Fraction
    held: dict[int, Fraction] = field(default_factory=dict[int, Fraction])
    counted: list[tuple[int, Fraction]] = field(default_factory=list[tuple[int, Fraction]])
    owed: Fraction = Fraction(0)
    now: int | None = None

    @property
    def left(self) -> Fraction:
        return self.limit - sum(amount for _, amount in self.counted) - sum(self.held.values())

    def move(self, to: int) -> None:
        """Move to a slice, one by one."""
        for index in range(to if self.now is None else self.now + 1, to + 1):
            self.now = index
            self.counted = [(when, amount) for when, amount in self.counted if when + KEPT > index]
            self.pay()
        self.now = to

    def pay(self) -> None:
        assert self.now is not None
        paid = min(self.owed, self.left)
        if paid:
            self.owed -= paid
            self.counted.append((self.now, paid))

    def take(self, call_id: int, taken: Fraction) -> None:
        self.held.pop(call_id)
        self.owed += taken
        self.pay()


@dataclass
class Comparison:
    """A `Spend` and its naive model, on which the same operations are performed."""

    spend: Spend
    clock: VirtualClock
    naive: dict[str, Naive]
    per: Fraction | None
    open: dict[int, Reservation] = field(default_factory=dict[int, Reservation])
    numbers: Iterator[int] = field(default_factory=count)

    def index(self, now: float) -> int:
        return 0 if self.per is None else int(Fraction(now) * SLICES // self.per)

    def do(self, what: What, tokens: int, tenths: int, number: int) -> None:
        for naive in self.naive.values():
            naive.move(self.index(self.clock.now()))
        cost = Fraction(tenths, 10)
        call_id = sorted(self.open)[number % len(self.open)] if self.open else -1
        if what == "pass":
            self.clock.advance(round(PASSED[number] * float(self.per or 1) / 100 / TICK) * TICK)
        elif what == "reserve":
            self.reserve({"tokens": Fraction(tokens), "cost": cost, "requests": Fraction(number // 2)})
        elif call_id >= 0:
            self.use(what, call_id, {"tokens": Fraction(tokens), "cost": cost, "requests": Fraction(0)})
        self.check()

    def reserve(self, asked: dict[str, Fraction]) -> None:
        least = {what: amount or Fraction(what != "requests", 10**9) for what, amount in asked.items()}
        fits = all(least[what] <= naive.left for what, naive in self.naive.items())
        amounts: Any = {
            "tokens": int(asked["tokens"]),
            "cost": asked["cost"],
            "requests": int(asked["requests"]),
        }
        try:
            reservation = self.spend.reserve(**amounts)
        except SpendRefused as error:
            assert not fits
            self.check_wait(error.retry_after, least)
        else:
            assert fits
            call_id = next(self.numbers)
            self.open[call_id] = reservation
            for what, naive in self.naive.items():
                naive.held[call_id] = asked[what]

    def check_wait(self, wait: float | None, least: dict[str, Fraction]) -> None:
        """Assert that the call would fit after ``retry_after`` seconds, and not two slices earlier."""
        if wait is None:
            assert self.per is None or any(
                least[what] > naive.limit - sum(naive.held.values()) for what, naive in self.naive.items()
            )
            return
        assert self.per is not None
        for seconds, fits in ((wait - 2 * float(self.per) / SLICES, False), (wait, True)):
            later = deepcopy(self.naive)
            for naive in later.values():
                naive.move(max(self.index(self.clock.now() + seconds), self.index(self.clock.now())))
            assert all(least[what] <= naive.left for what, naive in later.items()) is fits

    def use(self, what: What, call_id: int, amounts: dict[str, Fraction]) -> None:
        if what == "more":
            fits = all(amounts[what] <= naive.left for what, naive in self.naive.items())
            assert self.open[call_id].more(tokens=int(amounts["tokens"]), cost=amounts["cost"]) is fits
            for name, naive in self.naive.items():
                naive.held[call_id] += amounts[name] * fits
            return
        reservation = self.open.pop(call_id)
        taken = dict.fromkeys(amounts, Fraction(0))
        if what == "commit":
            all_of_it = amounts["tokens"] == 0
            taken = {name: self.naive[name].held[call_id] for name in self.naive}
            if not all_of_it:
                taken |= {"tokens": amounts["tokens"], "cost": amounts["cost"]}
            reservation.commit(
                tokens=None if all_of_it else int(amounts["tokens"]),
                cost=None if all_of_it else amounts["cost"],
            )
        elif what == "release":
            reservation.release()
        del reservation  # releases it, unless it was settled above
        for name, naive in self.naive.items():
            naive.take(call_id, taken[name])

    def check(self) -> None:
        """Assert that the snapshot equals the model exactly."""
        seen = self.spend.snapshot()
        for what, naive in self.naive.items():
            naive.move(self.index(self.clock.now()))
            assert seen[what] == float(sum(amount for _, amount in naive.counted))
            assert seen[f"{what}_reserved"] == float(sum(naive.held.values()))
            assert seen[f"{what}_left"] == float(naive.left) >= 0
            assert seen[f"overdrawn_{what}"] == float(naive.owed)
            assert not naive.owed or not naive.left


@settings(deadline=None, max_examples=50)
@given(
    tokens=st.sampled_from([1, 20, 100]),
    cost=st.sampled_from([0.1, 2.5, 7]),
    requests=st.sampled_from([1, 5, 100]),
    per=st.sampled_from([None, 1, 3, 60, 3600]),
    only=st.sets(st.sampled_from(["tokens", "cost", "requests"]), min_size=1),
    steps=STEPS,
)
def test_a_spend_equals_the_naive_model_after_any_operations(
    tokens: int, cost: float, requests: int, per: float | None, only: set[str], steps: list[Any]
) -> None:
    limits: dict[str, Any] = {"tokens": tokens, "cost": cost, "requests": requests}
    limits = {what: limit for what, limit in limits.items() if what in only}
    with virtual_time() as clock:
        spend = Spend(**limits, per=per, warn_at=None)
        naive = {what: Naive(Fraction(repr(limit))) for what, limit in limits.items()}
        comparison = Comparison(spend, clock, naive, None if per is None else Fraction(per))
        for step in steps:
            comparison.do(*step)


@settings(deadline=None, max_examples=50)
@given(
    per=st.floats(0.001, 1e5),
    start=st.floats(0, 1e6),
    steps=st.lists(st.tuples(st.floats(0, 0.4), st.integers(0, 60)), max_size=60),
)
def test_no_window_contains_more_than_the_limit(
    per: float, start: float, steps: list[tuple[float, int]]
) -> None:
    """Checked with the times of the clock, without slices; the times are arbitrary floats."""
    taken: list[tuple[Fraction, int]] = []
    with virtual_time() as clock:
        clock.advance(start)
        spend = Spend(tokens=100, per=per, warn_at=None)
        for passed, tokens in steps:
            clock.advance(passed * per)
            try:
                reservation = spend.reserve(tokens=tokens)
            except SpendRefused:
                continue
            clock.advance(passed * per / 2)
            reservation.commit()
            taken.append((Fraction(clock.now()), tokens))
    assert all(one[0] <= other[0] for one, other in pairwise(taken))
    for first, (begin, _) in enumerate(taken):
        assert sum(tokens for when, tokens in taken[first:] if when - begin <= Fraction(per)) <= 100
