"""`TokenBucket`: no operations, in any order, lose or create tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Grant, Kind, TokenBucket
from tests.support.budgets import bucket_of

pytestmark = pytest.mark.one_python

NEAR = Fraction(1, 10**6)

What: TypeAlias = Literal["spend", "credit", "reward", "refund", "pass", "late"]
WHATS: list[What] = ["spend", "spend", "spend", "credit", "reward", "refund", "pass", "pass", "late"]
STEPS = st.lists(
    st.tuples(st.sampled_from(WHATS), st.sampled_from(list(Kind)), st.floats(0, 5) | st.floats(0, 1000)),
    max_size=80,
)
AMOUNT = st.integers(0, 30) | st.floats(0, 30)
OPTIONS = st.fixed_dictionaries(
    {
        "capacity": st.integers(0, 100) | st.floats(0, 100),
        "costs": st.dictionaries(st.sampled_from([None, *Kind]), AMOUNT),
        "success_increment": AMOUNT,
    }
)


@dataclass
class Model:
    """A bucket in exact fractions, which records all tokens added and spent."""

    bucket: TokenBucket
    now: float
    have: Fraction
    latest: float
    added: Fraction = Fraction(0)
    spent: Fraction = Fraction(0)
    grants: list[Grant] = field(default_factory=list[Grant])

    def add(self, tokens: Fraction) -> None:
        self.have += tokens
        if self.have > self.bucket.capacity:
            self.have = Fraction(self.bucket.capacity)
        self.added += tokens

    def reach(self, now: float) -> None:
        if now > self.latest:
            passed = Fraction(now) - Fraction(self.latest)
            self.add(passed * Fraction(self.bucket.refill_per_second))
            self.latest = now

    def take(self, what: What, kind: Kind, number: float) -> None:
        if what == "pass":
            self.now += number
            return
        now = self.now
        self.reach(now)
        match what:
            case "credit":
                self.bucket.credit(None, now)
                self.add(Fraction(self.bucket.success_increment))
            case "reward" | "refund":
                if self.grants:
                    grant = self.grants.pop(int(number) % len(self.grants))
                    (self.bucket.credit if what == "reward" else self.bucket.refund)(grant, now)
                    self.add(Fraction(grant.cost))
            case _:
                self.spend(kind, now)
                if what == "late":  # and another thread that read the clock a moment earlier
                    self.spend(kind, now - number % 0.5)
        self.check()

    def spend(self, kind: Kind, now: float) -> None:
        cost = Fraction(self.bucket.costs.get(kind, self.bucket.costs[None]))
        grant = self.bucket.spend(kind, now)
        if grant is None:
            assert self.bucket.when_empty == "refuse"
            assert self.have < cost + NEAR
            return
        assert grant.cost == cost
        missing = max(Fraction(0), cost - self.have) if cost else Fraction(0)
        if self.bucket.when_empty == "refuse":
            assert (grant.wait, missing <= NEAR) == (0, True)
        else:
            assert grant.wait * self.bucket.refill_per_second == pytest.approx(float(missing), abs=1e-6)
        self.have -= cost
        self.spent += cost
        self.grants.append(grant)

    def check(self) -> None:
        seen = self.bucket.snapshot(self.latest)
        assert abs(Fraction(seen["tokens"]) - Fraction(seen["owed"]) - self.have) <= NEAR
        assert 0 <= seen["tokens"] <= self.bucket.capacity
        assert seen["owed"] >= 0
        assert not seen["owed"] or self.bucket.when_empty == "wait" or seen["owed"] < NEAR
        if self.bucket.when_empty == "refuse":
            assert self.spent <= Fraction(self.bucket.capacity) + self.added + NEAR


def play(bucket: TokenBucket, start: float, steps: list[tuple[What, Kind, float]]) -> None:
    model = Model(bucket, start, Fraction(bucket.capacity), start - 1)
    for what, kind, number in steps:
        model.take(what, kind, number)


@settings(deadline=None)
@given(options=OPTIONS, steps=STEPS)
def test_tokens_of_a_bucket_without_refill(
    options: dict[str, Any], steps: list[tuple[What, Kind, float]]
) -> None:
    play(TokenBucket(**options), 0.0, steps)


@settings(deadline=None)
@given(
    options=OPTIONS,
    rate=st.integers(1, 1000) | st.floats(0.001, 1000),
    when_empty=st.sampled_from(["refuse", "wait"]),
    start=st.floats(0, 1e5),
    steps=STEPS,
)
def test_tokens_of_a_bucket_with_refill(
    options: dict[str, Any], rate: float, when_empty: Any, start: float, steps: list[tuple[What, Kind, float]]
) -> None:
    """With times that are out of order, in both modes of ``when_empty``."""
    play(TokenBucket(**options, refill_per_second=rate, when_empty=when_empty), start, steps)


@settings(deadline=None)
@given(
    rate=st.floats(0.01, 1000),
    capacity=st.integers(0, 20),
    gaps=st.lists(st.floats(0, 2), min_size=2, max_size=60),
)
def test_waiting_retries_begin_in_order_and_at_the_rate(
    rate: float, capacity: int, gaps: list[float]
) -> None:
    """Between any two retries lies the time that their tokens take, less the initial capacity."""
    bucket = bucket_of(capacity, refill_per_second=rate, when_empty="wait")
    now, begins = 0.0, list[float]()
    for gap in gaps:
        now += gap
        grant = bucket.spend(Kind.unknown, now)
        assert grant is not None
        begins.append(now + grant.wait)
    assert begins == pytest.approx(sorted(begins))
    for number, begun in enumerate(begins):
        for later in range(number + 1, len(begins)):
            assert begins[later] - begun >= (later - number - capacity) / rate - 1e-6
