"""State shared by all calls of one `Hedge`, and the choice of the race runner: asyncio or Trio."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from inspect import isawaitable
from sys import modules
from typing import Any

from redouble._engine.budget_protocol import Budget
from redouble._failures.verdict import FailureFilter, Kind, On, Until
from redouble._internal.callables import callable_kind, display_name
from redouble._internal.locks import ForkSafe
from redouble._layers.hedge.latency import HedgeQuota, LatencyHistogram
from redouble._layers.hedge.race import Operation, Race, Unawaitable
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import SYSTEM


@dataclass(frozen=True, slots=True)
class HedgeSettings:
    """The validated options of a `Hedge`."""

    delay: float | None
    max_extra_load: float | None
    hedges: int
    on: On
    until: Until | None
    different: Operation | None
    budget: Budget | None
    name: str | None


def run_race(
    control: HedgeControl, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    if "trio" in modules and under_trio():
        from redouble._layers.hedge import race_trio  # noqa: PLC0415  Trio is running

        return race_trio.run_race(control, delay, fn, args, kwargs)
    return _asyncio_runner()(control, delay, fn, args, kwargs)


@cache  # an import statement for each call would cost time
def _asyncio_runner() -> Callable[..., Coroutine[Any, Any, Any]]:
    from redouble._layers.hedge import race_asyncio  # noqa: PLC0415  only if async code runs

    return race_asyncio.run_race


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

    def __init__(self, settings: HedgeSettings) -> None:
        super().__init__()
        self.settings, self.failures = settings, FailureFilter(settings.on, "Hedge")
        share, different = settings.max_extra_load, settings.different
        self.different = None if different is None else require_awaitable(different)
        self.quota = HedgeQuota(share)
        self.latencies = LatencyHistogram(min(share or 0.0, 1.0), SYSTEM.now())
        self.latencies.threshold = settings.delay
        self.hedged = self.won = self.suppressed = 0

    def allow_attempt(self) -> bool:
        """Return True if the quota and the budget allow an extra call; count it as hedged or suppressed."""
        with self._lock:
            allowed = self.quota.spend()
            if allowed and not self._budget_grants():
                self.quota.refund()
                allowed = False
            self.hedged += allowed
            self.suppressed += not allowed
        return allowed

    def outcome(self, race: Race, /) -> Any:
        """Return the result of a decided race, or raise its error; count a win of an extra call."""
        won = race.winner not in (None, 1)
        with self._lock:
            self.won += won
        return race.outcome()

    def record(self, seconds: float, now: float) -> None:
        """Record the latency of a call, under the lock."""
        with self._lock:
            self.latencies.record(seconds, now)

    def _budget_grants(self) -> bool:
        budget, now = self.settings.budget, SYSTEM.now()
        if budget is None:
            return True
        grant = budget.spend(Kind.unknown, now)
        if grant is not None and grant.wait:  # a hedge cannot wait
            budget.refund(grant, now)
        return grant is not None and not grant.wait
