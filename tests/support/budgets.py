"""Retry budgets and token buckets for the tests, with helpers that spend and credit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from redouble import Grant, Kind, RetryBudget, TokenBucket, types

ANY = Kind.unknown
MOST = 100_000  # more than any of them grants


def budget_of(**options: Any) -> RetryBudget:
    """Return a budget that grants only earned retries, unless ``per_second`` is given."""
    arguments: dict[str, Any] = {"per_second": 0, **options}
    return RetryBudget(**arguments)


def credited(budget: RetryBudget, number: int, now: float) -> None:
    for _ in range(number):
        budget.credit(None, now)


def spent(budget: RetryBudget, now: float, most: int = MOST) -> list[Grant]:
    """Spend until a retry is refused, or ``most`` times, and return the grants."""
    grants: list[Grant] = []
    while len(grants) < most and (grant := budget.spend(ANY, now)) is not None:
        grants.append(grant)
    return grants


def granted(budget: RetryBudget, now: float) -> int:
    return len(spent(budget, now))


def bucket_of(capacity: float = 10, cost: float = 1, **options: Any) -> TokenBucket:
    """Return a bucket in which every retry costs the same."""
    costs: dict[Kind | None, float] = {None: cost}
    return TokenBucket(capacity, costs=costs, **options)


def emptied(bucket: TokenBucket, now: float) -> int:
    """Spend until a retry is refused; return the number of grants."""
    return next((number for number in range(MOST) if bucket.spend(ANY, now) is None), MOST)


def tokens(bucket: TokenBucket, now: float | None = None) -> float:
    return bucket.snapshot(now)["tokens"]


class RecordingBudget:
    """A budget that records every spend, credit and refund, with the balance after it."""

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


class InterruptingTime(float):
    """A time that runs an action when it is multiplied, in the middle of a calculation."""

    action: Callable[[], object] = staticmethod(lambda: None)

    def __mul__(self, other: float, /) -> float:
        self.action()
        return float(self) * other
