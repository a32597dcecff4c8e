"""Two retry budgets that count tokens: `TokenBucket`, as in the AWS SDKs, and gRPC's `RetryThrottling`.

TokenBucket: every retry takes tokens, by default more after throttling and timeouts; a success after retries
returns the cost of its last retry, any other success a little. Without tokens there are no retries.

RetryThrottling: failures take tokens and successes return them; while no more than half of the tokens are
left, there are no retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import Literal, Self, cast

from redouble._engine.budgets.budget_protocol import BudgetTraits, Grant, SharedBudget, amount
from redouble._failures.verdict import Kind
from redouble._internal.public import public
from redouble._internal.validation import choice, number
from redouble._runtime.clock import SYSTEM

FREE = Grant(0.0)  # a retry costs nothing, only its failure does


class RetryThrottling(SharedBudget):
    """A retry budget that grants retries while more than half of the tokens are left: `TokenBucket.grpc`.

    A failure that would be retried takes a token, whether it is or not; a success returns ``ratio`` tokens.
    """

    def __init__(self, tokens: float, ratio: float, *, name: str | None = None) -> None:
        wanted = "a number from 1 to 1000, such as 10"
        self.capacity = number(tokens, "TokenBucket.grpc tokens", 1, 1000, wanted)
        self.ratio = number(ratio, "TokenBucket.grpc ratio", 0.001, 1000, "a number above 0, such as 0.1")
        # Failures that no rule would retry do not count: they are not signs of overload.
        starts = type(self).start is not SharedBudget.start
        self.traits = BudgetTraits(counts_starts=starts, counts_stops=False, may_wait=False)
        self._tokens = self.capacity
        super().__init__("TokenBucket.grpc", name)

    def failed(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> None:  # noqa: ARG002
        """Take a token for an attempt that failed with an error that is worth a retry."""
        with self._lock:
            # No max(): a signal handler could run at a call between the read and the write.
            self._tokens = self._tokens - 1 if self._tokens > 1 else 0.0

    def spend(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> Grant | None:  # noqa: ARG002
        """Grant a retry while more than half of the tokens are left."""
        return FREE if self._tokens > self.capacity / 2 else None

    def credit(self, grant: Grant | None = None, now: float | None = None, /) -> None:  # noqa: ARG002
        """Return ``ratio`` tokens for a call that succeeded."""
        with self._lock:
            # No min(), as in `failed`.
            tokens, most = self._tokens + self.ratio, self.capacity
            self._tokens = tokens if tokens < most else most  # noqa: FURB136

    def refund(self, grant: Grant, now: float | None = None, /) -> None:
        """Take back a grant whose retry never started: it cost nothing."""

    def snapshot(self, now: float | None = None, /) -> Mapping[str, float]:  # noqa: ARG002  time adds nothing
        """Return the number of ``tokens``, and the number ``above`` which retries are granted."""
        return {"tokens": self._tokens, "capacity": self.capacity, "above": self.capacity / 2}

    def reconfigure(self, other: Self, /) -> None:
        """Copy the settings of another budget; the remaining share of tokens stays the same, as in gRPC."""
        with self._lock:
            # No call in between, as in `failed`.
            self._tokens = self._tokens / self.capacity * other.capacity
            self.capacity, self.ratio = other.capacity, other.ratio

    def __repr__(self) -> str:
        return self._described("TokenBucket.grpc", tokens=self.capacity, ratio=self.ratio)


Costs = Mapping[Kind, float] | Mapping[None, float] | Mapping[Kind | None, float]

DEFAULT_COSTS: Mapping[Kind | None, float] = MappingProxyType(
    {Kind.throttled: 10.0, Kind.timeout: 10.0, None: 5.0}
)

SMALLEST = 1e-9  # tokens, for rounding errors: 0.29 s at 100 a second are 28.999999999999996
MAX_STEP_BACK = 1.0  # second: a time that is earlier by more comes from another clock


def _validated_costs(costs: object) -> Mapping[Kind | None, float]:
    if not isinstance(costs, Mapping):
        raise TypeError(
            f"TokenBucket costs={costs!r}: write a mapping, such as {{Kind.throttled: 10, None: 5}}"
        )
    checked: dict[Kind | None, float] = {None: DEFAULT_COSTS[None]}
    for kind, cost in cast("Mapping[object, object]", costs).items():
        if kind is not None and kind not in list(Kind):
            raise ValueError(
                f"TokenBucket costs: {kind!r} is no Kind ({', '.join(Kind)}), nor None for all others"
            )
        named = f"TokenBucket costs[{kind}]"
        checked[None if kind is None else Kind(cast("str", kind))] = number(
            cost, named, 0, 1e15, "a finite number of tokens, 0 or more"
        )
    return MappingProxyType(checked)


@public("redouble")
class TokenBucket(SharedBudget):
    """A retry budget in tokens: every retry takes some, and successes return them.

    Pass one object to every policy that talks to the same service: sharing is by identity.

    capacity: the number of tokens at first, and at most.
    costs: what a retry costs, by the `Kind` of failure; None stands for all other kinds (5 unless given).
    success_increment: the tokens for a success without retries. One with retries returns what the last cost.
    refill_per_second: the tokens that each second adds, in fractions too.
    when_empty: ``"refuse"``; or ``"wait"``, to delay the retry until its tokens are there.
    name: its name in metrics.
    """

    def __init__(
        self,
        capacity: float = 500,
        costs: Costs = DEFAULT_COSTS,
        success_increment: float = 1,
        refill_per_second: float = 0,
        when_empty: Literal["refuse", "wait"] = "refuse",
        *,
        name: str | None = None,
    ) -> None:
        self.capacity = amount(capacity, "TokenBucket capacity", 1e15, "500")
        self.success_increment = amount(success_increment, "TokenBucket success_increment", 1e15, "1")
        self.refill_per_second = amount(refill_per_second, "TokenBucket refill_per_second", 1e15, "10")
        choice(when_empty, "TokenBucket when_empty", "refuse", "wait")
        self._when_empty: Literal["refuse", "wait"] = when_empty
        if when_empty == "wait" and not self.refill_per_second:
            raise ValueError(
                "TokenBucket when_empty='wait' would wait for ever: set refill_per_second too, or 'refuse'"
            )
        self._costs = _validated_costs(costs)
        starts = type(self).start is not SharedBudget.start
        self.traits = BudgetTraits(counts_starts=starts, may_wait=when_empty == "wait")
        self._grants = {kind: Grant(self.costs.get(kind, self.costs[None])) for kind in Kind}
        # The current number is `_tokens` plus the refill since `_since`, which moves as seldom as possible:
        # adding up many small steps would add up their rounding. It is negative if tokens are owed.
        self._tokens: float = self.capacity
        self._since: float = -inf if self.refill_per_second else 0.0
        self._now: float = self._since
        super().__init__("TokenBucket", name)

    @property
    def costs(self) -> Mapping[Kind | None, float]:
        """What a retry costs, by the `Kind` of failure; None stands for all other kinds."""
        return self._costs

    @property
    def when_empty(self) -> Literal["refuse", "wait"]:
        """What happens to a retry without tokens: it is refused, or waits."""
        return self._when_empty

    @staticmethod
    def grpc(tokens: float = 10, ratio: float = 0.1, *, name: str | None = None) -> RetryThrottling:
        """Return gRPC's retry throttling as a budget: ``maxTokens`` and ``tokenRatio`` of a service config.

        A failure takes a token, a success returns ``ratio`` tokens; no retry is granted while no more than
        half of them are left.
        """
        return RetryThrottling(tokens, ratio, name=name)

    def spend(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> Grant | None:
        """Take the cost of a retry, or return None. The time is that of the system clock unless given.

        With ``when_empty="wait"`` the tokens are taken now, and ``wait`` of the grant is the time to wait.
        """
        grant = self._grants[kind]
        with self._lock:
            self._refill(now)
            # No call between the read and the write: a signal handler or the collector could run there.
            missing = grant.cost - self._tokens - (self._now - self._since) * self.refill_per_second
            if missing > SMALLEST and grant.cost:
                if not self.traits.may_wait:
                    return None
                grant = Grant(grant.cost, missing / self.refill_per_second)
            self._tokens -= grant.cost
            return grant

    def credit(self, grant: Grant | None = None, now: float | None = None, /) -> None:
        """Record that a call succeeded: ``grant`` is the grant that its last retry used."""
        if self._tokens < self.capacity:  # else it is full
            self._add(self.success_increment if grant is None else grant.cost, now)

    def refund(self, grant: Grant, now: float | None = None, /) -> None:
        """Take back a grant whose retry never started."""
        self._add(grant.cost, now)

    def snapshot(self, now: float | None = None, /) -> Mapping[str, float]:
        """Return how many ``tokens`` there are, or are ``owed``: as of its last use, or of ``now``."""
        with self._lock:
            tokens = self._tokens  # no refill yet: `_now` is -inf until the first use of a refilled bucket
            if self._now > -inf:
                passed = 0.0 if now is None else max(0.0, now - self._now)
                tokens = min(self._refill(self._now) + passed * self.refill_per_second, self.capacity)
            return {"tokens": max(0.0, tokens), "owed": max(0.0, -tokens), "capacity": self.capacity}

    def reconfigure(self, other: Self, /) -> None:
        """Copy the settings of another bucket; tokens stay, up to the new capacity."""
        with self._lock:
            now = SYSTEM.now()
            self._refill(now)
            # As in `spend`, no call from here on.
            tokens = self._tokens + (self._now - self._since) * self.refill_per_second
            self._since = self._now = self._now if self.refill_per_second else now
            self.capacity, self.success_increment = other.capacity, other.success_increment
            self.refill_per_second, self._when_empty = other.refill_per_second, other._when_empty
            self._costs, self._grants, self.traits = other._costs, other._grants, other.traits
            self._tokens = tokens if tokens < self.capacity else self.capacity  # noqa: FURB136

    def _add(self, tokens: float, now: float | None) -> None:
        with self._lock:
            self._refill(now)
            most = self.capacity - (self._now - self._since) * self.refill_per_second
            # No min(): as in `spend`, no call between the read and the write.
            self._tokens = self._tokens + tokens if self._tokens + tokens < most else most  # noqa: FURB136

    def _refill(self, now: float | None) -> float:
        """Return the tokens at ``now``; restart the refill if the bucket is full: it never overflows."""
        rate = self.refill_per_second
        if not rate:
            return self._tokens
        now = SYSTEM.now() if now is None else now
        if not -inf < now < inf:
            now = max(self._now, 0.0)  # a broken clock returned NaN or infinity
        if self._now - MAX_STEP_BACK < now < self._now:
            now = self._now  # a thread that read the clock before another one did
        elif now < self._now:  # from another clock: continue from here
            self._tokens, self._since = self._tokens + (self._now - self._since) * rate, now
        tokens = self._tokens + (now - self._since) * rate
        self._now = now
        if tokens >= self.capacity:
            tokens, self._tokens, self._since = self.capacity, self.capacity, now
        return tokens

    def __repr__(self) -> str:
        return self._described(
            "TokenBucket",
            capacity=self.capacity,
            costs={getattr(kind, "value", kind): cost for kind, cost in self.costs.items()},
            success_increment=self.success_increment,
            refill_per_second=self.refill_per_second,
            when_empty=self.when_empty,
        )
