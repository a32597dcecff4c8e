"""State shared by all calls of one `Hedge`, and the choice of the race runner: asyncio or Trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from inspect import isawaitable
from sys import modules
from typing import Any, Protocol, TypeAlias

from redouble._engine.budget_protocol import Budget
from redouble._failures.verdict import FailureFilter, Kind, Until
from redouble._internal.callables import callable_kind, display_name
from redouble._internal.locks import ForkSafe
from redouble._layers.hedge.latency import HedgeQuota, LatencyHistogram
from redouble._layers.hedge.race import Race, Unawaitable
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import SYSTEM

__all__ = ["HedgeControl", "RaceRules", "run_race"]


Operation: TypeAlias = Callable[..., Awaitable[Any]]


class RaceRules(Protocol):
    """The decisions that a race runner leaves to the hedge."""

    hedges: int
    different: Operation | None

    def allow_attempt(self) -> bool:
        """Return True if another attempt may start now; it then counts as started."""
        ...

    def delay(self) -> float:
        """Return the seconds from one attempt to the next."""
        ...

    def new_race(self) -> Race:
        """Return the race of one call, whose first attempt is running."""
        ...

    def outcome(self, race: Race, /) -> Any:
        """Return the result of a decided race, or raise its error."""
        ...


_run_on_asyncio: Callable[..., Coroutine[Any, Any, Any]] | None = None


def run_race(
    rules: RaceRules, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    global _run_on_asyncio  # noqa: PLW0603  an import statement for each call would cost time
    if "trio" in modules and under_trio():
        from redouble._layers.hedge import race_trio  # noqa: PLC0415  Trio is running

        return race_trio.run_race(rules, delay, fn, args, kwargs)
    if _run_on_asyncio is None:
        from redouble._layers.hedge import race_asyncio  # noqa: PLC0415  only if async code runs

        _run_on_asyncio = race_asyncio.run_race
    return _run_on_asyncio(rules, delay, fn, args, kwargs)


def require_awaitable(different: Operation) -> Operation:
    """Return ``different``, wrapped to raise `Unawaitable` if its result cannot be awaited."""

    async def other(*args: Any, **kwargs: Any) -> Any:
        result: object = different(*args, **kwargs)
        if not isawaitable(result):
            raise Unawaitable(
                f"Hedge different={display_name(different)} returned a {type(result).__name__}: make it async"
            )
        return await result

    return different if callable_kind(different) == "coroutine" else other


class HedgeControl(ForkSafe):
    """The state of one `Hedge`, shared by all its calls in all event loops: delay, quota and statistics."""

    def __init__(
        self,
        fixed: float | None,
        share: float | None,
        hedges: int,
        failures: FailureFilter,
        until: Until | None,
        different: Operation | None,
        budget: Budget | None,
    ) -> None:
        super().__init__()
        self.hedges = hedges
        self.different = different if different is None else require_awaitable(different)
        self._failures, self._until, self._budget = failures, until, budget
        self.quota = HedgeQuota(share)
        self.latencies = LatencyHistogram(min(share or 0.0, 1.0), SYSTEM.now())
        self.latencies.threshold = fixed
        self._hedged = self._won = self._suppressed = 0

    def allow_attempt(self) -> bool:
        """Return True if the quota and the budget allow an extra call; count it as hedged or suppressed."""
        with self._lock:
            allowed = self.quota.spend()
            if allowed and not self._budget_grants():
                self.quota.refund()
                allowed = False
            self._hedged += allowed
            self._suppressed += not allowed
        return allowed

    def delay(self) -> float:
        """Return the seconds from one attempt to the next."""
        return self.latencies.threshold or 0.0

    def new_race(self) -> Race:
        """Return the race of one call, whose first attempt is running."""
        return Race(self._failures, self._until)

    def outcome(self, race: Race, /) -> Any:
        """Return the result of a decided race, or raise its error; count a win of an extra call."""
        won = race.winner not in (None, 1)
        with self._lock:
            self._won += won
        return race.outcome()

    def record(self, seconds: float, now: float) -> None:
        """Record the latency of a call, under the lock."""
        with self._lock:
            self.latencies.record(seconds, now)

    def snapshot(self) -> Mapping[str, float | None]:
        """Return the statistics."""
        return {
            "delay": self.latencies.threshold,
            "calls": self.quota.calls,
            "hedged": self._hedged,
            "won": self._won,
            "suppressed": self._suppressed,
        }

    def _budget_grants(self) -> bool:
        budget, now = self._budget, SYSTEM.now()
        if budget is None:
            return True
        grant = budget.spend(Kind.unknown, now)
        if grant is not None and grant.wait:  # a hedge cannot wait
            budget.refund(grant, now)
        return grant is not None and not grant.wait
