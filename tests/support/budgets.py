"""Budgets and buckets for the tests, and what is often asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from redouble import Grant, Kind, RetryBudget, TokenBucket, types

ANY = Kind.unknown
MOST = 100_000  # more than any of them grants


def budget_of(**options: Any) -> RetryBudget:
    """Make one that grants only what is earned, unless told otherwise."""
    said: dict[str, Any] = {"per_second": 0, **options}
    return RetryBudget(**said)


def credited(budget: RetryBudget, number: int, now: float) -> None:
    for _ in range(number):
        budget.credit(None, now)


def spent(budget: RetryBudget, now: float, most: int = MOST) -> list[Grant]:
    """Spend until it refuses, or ``most`` times; return what was granted."""
    grants: list[Grant] = []
    while len(grants) < most and (grant := budget.spend(ANY, now)) is not None:
        grants.append(grant)
    return grants


def granted(budget: RetryBudget, now: float) -> int:
    return len(spent(budget, now))


def bucket_of(capacity: float = 10, cost: float = 1, **options: Any) -> TokenBucket:
    """Make one in which every retry costs the same."""
    costs: dict[Kind | None, float] = {None: cost}
    return TokenBucket(capacity, costs=costs, **options)


def emptied(bucket: TokenBucket, now: float) -> int:
    """Spend until it refuses; return how often it did not."""
    return next((number for number in range(MOST) if bucket.spend(ANY, now) is None), MOST)


def tokens(bucket: TokenBucket, now: float | None = None) -> float:
    return bucket.snapshot(now)["tokens"]


class Books:
    """A budget that keeps books: what was spent, handed back and credited, and what there was then."""

    def __init__(self, budget: types.Budget) -> None:
        self.budget = budget
        self.lines: list[str] = []
        self.times: list[float] = []

    def _write(self, now: float, what: str, grant: Grant | None) -> None:
        self.times.append(now)
        of = "-" if grant is None else f"{grant.cost:g}"
        self.lines.append(f"{what} {of}: {self.left():g}")

    def left(self) -> float:
        seen = self.budget.snapshot()
        return seen["tokens"] - seen["owed"] if "tokens" in seen else seen["available"]

    def start(self, now: float, /) -> None:
        self.budget.start(now)

    def failed(self, kind: Kind, now: float, /) -> None:
        self.budget.failed(kind, now)

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        grant = self.budget.spend(kind, now)
        self._write(now, "spend", grant)
        return grant

    def credit(self, grant: Grant | None, now: float, /) -> None:
        self.budget.credit(grant, now)
        self._write(now, "credit", grant)

    def refund(self, grant: Grant, now: float, /) -> None:
        self.budget.refund(grant, now)
        self._write(now, "refund", grant)

    def snapshot(self) -> Mapping[str, float]:
        return self.budget.snapshot()


class Meanwhile(float):
    """A time that does something else while it is reckoned with."""

    does: Callable[[], object] = staticmethod(lambda: None)

    def __mul__(self, other: float, /) -> float:
        self.does()
        return float(self) * other
