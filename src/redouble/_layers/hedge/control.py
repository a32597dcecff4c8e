"""What the races of one hedge share: how late is late, how many extra calls there may be, and the counts.

Attempts side by side, in the async library that is running: `_race_asyncio` or `_race_trio`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from inspect import isawaitable
from sys import modules
from typing import Any, Protocol, TypeAlias

from redouble._engine.budget import Budget
from redouble._failures.verdict import FailureFilter, Kind, Until
from redouble._internal.callables import callable_kind, display_name
from redouble._internal.locks import ForkSafe
from redouble._layers.hedge.latency import HedgeQuota, LatencyHistogram
from redouble._layers.hedge.race import Race, Unawaitable
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import SYSTEM

__all__ = ["HedgeControl", "RaceRules", "race"]


Operation: TypeAlias = Callable[..., Awaitable[Any]]


class RaceRules(Protocol):
    """What the drivers of a race ask the one who called it."""

    hedges: int
    different: Operation | None

    def may(self) -> bool:
        """Say whether another attempt may be made now; if so, it is."""
        ...

    def delay(self) -> float:
        """Tell the seconds from one attempt to the next."""
        ...

    def contest(self) -> Race:
        """Begin to compare them."""
        ...

    def outcome(self, contest: Race, /) -> Any:
        """Return what comes out of it, or raise it."""
        ...


_on_asyncio: Callable[..., Coroutine[Any, Any, Any]] | None = None


def race(
    rules: RaceRules, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Make a call, and others beside it when it is late."""
    global _on_asyncio  # noqa: PLW0603  asking for a module again and again takes its time
    if "trio" in modules and under_trio():
        from redouble._layers.hedge import race_trio as _race_trio  # noqa: PLC0415  it is running

        return _race_trio.race(rules, delay, fn, args, kwargs)
    if _on_asyncio is None:
        from redouble._layers.hedge import race_asyncio as _race_asyncio  # noqa: PLC0415  only once async code runs

        _on_asyncio = _race_asyncio.race
    return _on_asyncio(rules, delay, fn, args, kwargs)


def awaited(different: Operation) -> Operation:
    """Return the same, which says so if what it gives cannot be awaited."""

    async def other(*args: Any, **kwargs: Any) -> Any:
        made: object = different(*args, **kwargs)
        if not isawaitable(made):
            raise Unawaitable(
                f"Hedge different={display_name(different)} gave a {type(made).__name__}: make it async"
            )
        return await made

    return different if callable_kind(different) == "coroutine" else other


class HedgeControl(ForkSafe):
    """Shared by all calls, in whatever event loop they run."""

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
        self.different = different if different is None else awaited(different)
        self._failures, self._until, self._budget = failures, until, budget
        self.extra = HedgeQuota(share)
        self.latencies = LatencyHistogram(min(share or 0.0, 1.0), SYSTEM.now())
        self.latencies.longest = fixed
        self._hedged = self._won = self._suppressed = 0

    def may(self) -> bool:
        """Allow an extra call, or count that there was none."""
        with self._lock:
            allowed = self.extra.spend()
            if allowed and not self._granted():
                self.extra.refund()
                allowed = False
            self._hedged += allowed
            self._suppressed += not allowed
        return allowed

    def delay(self) -> float:
        """Tell the seconds from one attempt to the next."""
        return self.latencies.longest or 0.0

    def contest(self) -> Race:
        """Begin to compare attempts."""
        return Race(self._failures, self._until)

    def outcome(self, contest: Race) -> Any:
        """Return what comes out, or raise it."""
        self._won += contest.winner not in (None, 1)
        return contest.outcome()

    def snapshot(self) -> Mapping[str, float | None]:
        """Tell what there was."""
        return {
            "delay": self.latencies.longest,
            "calls": self.extra.calls,
            "hedged": self._hedged,
            "won": self._won,
            "suppressed": self._suppressed,
        }

    def _granted(self) -> bool:
        budget, now = self._budget, SYSTEM.now()
        if budget is None:
            return True
        grant = budget.spend(Kind.unknown, now)
        if grant is not None and grant.wait:  # later is too late
            budget.refund(grant, now)
        return grant is not None and not grant.wait
