"""The state that all calls of one hedge share: the hedge delay, the quota of extra calls, and the counts.

All changes are made under its lock. If there is a GIL, the wrappers count calls and record latencies without
it: see `gil_variants`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any

from redouble._engine.budgets.budget_protocol import traits_of
from redouble._failures.transient import transient
from redouble._failures.verdict import FailureFilter, Kind, Verdict
from redouble._internal.locks import ForkSafe
from redouble._internal.logger import call_hook
from redouble._internal.validation import seconds
from redouble._layers.hedge.extra_calls import Different
from redouble._layers.hedge.latency import LatencyHistogram
from redouble._layers.hedge.quota import HedgeQuota
from redouble._layers.hedge.race import FIRST, Race
from redouble._layers.hedge.settings import HedgeSettings
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import emit_layer
from redouble._telemetry.observers import watch

if TYPE_CHECKING:
    from redouble._engine.budgets.retries_in_flight import CallInFlight

CUT = Verdict.stop(kind=Kind.timeout)  # stands for a cancellation


class HedgeState(ForkSafe):
    """The state that all calls of one hedge share.

    failures: which errors do not end a race.
    others: what the extra calls do instead, in order.
    """

    def __init__(
        self, settings: HedgeSettings, failures: FailureFilter, others: tuple[Different, ...]
    ) -> None:
        super().__init__()
        self.settings, self.failures, self.others = settings, failures, others
        self.quota = HedgeQuota(settings.max_extra_load)
        self.latencies = self._new_latencies(settings)
        self._hedged = self._won = self._suppressed = 0

    def _new_latencies(self, settings: HedgeSettings) -> LatencyHistogram:
        latencies = LatencyHistogram(
            min(settings.max_extra_load or 0.0, 1.0),
            SYSTEM.now(),
            minimum=settings.minimum,
            shortest=settings.shortest,
            longest=inf if settings.longest is None else settings.longest,
        )
        latencies.threshold = settings.first_delay
        return latencies

    def snapshot(self) -> Mapping[str, float | None]:
        """Return the counts, as `Hedge.snapshot` describes them."""
        return {
            "delay": self.latencies.threshold,
            "calls": self.quota.calls,
            "hedged": self._hedged,
            "won": self._won,
            "suppressed": self._suppressed,
        }

    def allow_attempt(self) -> CallInFlight | bool:
        """Return True if the quota and the budget allow an extra call; count it as hedged or suppressed.

        If the budget limits the retries in flight, return what has to end with the extra call.
        """
        with self._lock:
            allowed: CallInFlight | bool = self.quota.spend()
            if allowed:
                allowed = self._budget_grants()
                if not allowed:
                    self.quota.refund()
            self._hedged += bool(allowed)
            self._suppressed += not allowed
        return allowed

    def outcome(self, race: Race, started_at: float | None) -> Any:
        """Return the result of a decided race, or raise its error; count a win of an extra call."""
        winner = race.winner
        if winner is not None and winner != FIRST:
            with self._lock:
                self._won += 1
            if watch.by_event["hedge_won"]:
                elapsed = SYSTEM.now() - (started_at or 0.0)
                emit_layer("hedge_won", "hedge", self.settings.name, attempt=winner, elapsed=elapsed)
        return race.outcome()

    def delays(self) -> Sequence[float | None] | None:
        """Return the delay before each extra call of one call, or None if it is always the same one.

        What the function of the caller raises comes out to the caller, before anything is called.
        """
        settings = self.settings
        if not callable(settings.delay):
            return settings.delays
        found = map(settings.delay, range(1, settings.hedges + 1))
        return [None if delay is None else seconds(delay, "Hedge delay") for delay in found]

    def record_cut(self, error: BaseException, start: float) -> None:
        """Record a call that was cancelled or timed out as one that took at least as long as it did."""
        verdict = transient(error) if isinstance(error, Exception) else CUT
        if verdict is None or verdict.kind is not Kind.timeout:
            return
        now = SYSTEM.now()
        with self._lock:
            self.latencies.record_cut(now - start, now)

    def record(self, seconds: float, now: float) -> None:
        """Record the latency of a call, under the lock."""
        with self._lock:
            self.latencies.record(seconds, now)

    def _budget_grants(self) -> CallInFlight | bool:
        budget, now = self.settings.budget, SYSTEM.now()
        if budget is None:
            return True
        in_flight = traits_of(budget).in_flight
        extra = None if in_flight is None else in_flight.call(counted=False)
        if extra is not None and not extra.begin_retry():
            return False
        grant = call_hook(budget, "spend", Kind.unknown, now)
        if grant is not None and not grant.wait:
            return extra or True
        if grant is not None:  # a hedge cannot wait
            call_hook(budget, "refund", grant, now)
        if extra is not None:
            extra.end_retry()
        return False

    def reconfigure(self, other: HedgeState) -> None:
        """Adopt the settings of another one but its name; keep the latencies, the quota and the counts."""
        with self._lock:
            self.failures = other.failures
            self.quota.reconfigure(other.settings.max_extra_load)
            self.latencies.reconfigure(other.latencies)
            if other.settings.delay is not None:
                self.latencies.threshold = other.settings.first_delay
            self.settings = replace(other.settings, name=self.settings.name)
