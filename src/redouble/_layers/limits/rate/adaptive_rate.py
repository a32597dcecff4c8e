"""AdaptiveRate: a rate limit that adapts to throttling, as the adaptive mode of the AWS SDKs does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from redouble._failures.transient import transient
from redouble._failures.verdict import FailureFilter, Kind, On, Until, never_counts
from redouble._internal.locks import gil
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, number
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits
from redouble._layers.gate import JudgingGate, Wrapper
from redouble._layers.limits.level_events import LevelEvents
from redouble._layers.limits.rate.cubic import AdaptiveTokenBucket
from redouble._layers.limits.rate.wait_queue import WaitingGate, WaitQueue
from redouble._layers.limits.sampled_counter import COUNTING_WRAPPER, JUDGING_WRAPPER
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.observers import watch
from redouble.errors import RateLimited


def throttling(error: Exception, /) -> bool | None:
    """Return True if an error is a throttling error: the default of ``on``."""
    verdict = transient(error)
    return True if verdict is not None and verdict.kind is Kind.throttled else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveRateSettings:
    """The validated options of an `AdaptiveRate`."""

    on: On
    wait: float | None
    least: float
    until: Until | None
    name: str | None


@public("redouble")
class AdaptiveRate(JudgingGate, WaitingGate):
    """A rate limit that slows calls down when the server throttles, and then probes for the rate it accepts.

    It limits nothing until a call is throttled. From then on calls pass at a rate, which every throttling
    error cuts and which grows while there is none. Calls wait in a FIFO queue for up to ``wait`` seconds
    (None: as long as it takes, 0: not at all), or raise `RateLimited`. Put it inside the `Retry`, so that
    every attempt counts; `presets.aws_adaptive` does.

    on: the errors that count as throttling: by default those that `transient` classifies as throttled (a 429,
        a ``SlowDown``).
    least: the lowest rate, in calls a second.
    until: a function of the result, or a rule: a result that it does not accept counts as throttling, and is
        returned all the same.
    name: the name of the limit in its errors.
    """

    def __init__(
        self,
        on: On = throttling,
        wait: Duration | None = None,
        least: float = 0.5,
        *,
        until: Until | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        self._failures = FailureFilter(on, "AdaptiveRate", until)
        self.settings = AdaptiveRateSettings(
            on=on,
            wait=None if wait is None else checked(wait, "AdaptiveRate wait"),
            least=number(least, "AdaptiveRate least", 1e-9, 1e9, "calls a second, more than 0, such as 0.5"),
            until=until,
            name=name,
        )
        self.name = name
        self._bucket = AdaptiveTokenBucket(SYSTEM.now(), self.settings.least)
        self._wait_queue = WaitQueue(self._bucket, self.settings.wait, self._rejection, self._admitted_late)
        self._level = LevelEvents("adaptive_rate")
        self.register("limits")

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        """Record how a call ended; a cancellation, or a rejection by an inner gate, does not count."""
        if error is not None and never_counts(error):
            return
        throttled = error is not None and bool(self._failures.is_failure(error))
        self._wait_queue.update_pacer(self._bucket.record, throttled, now)
        if watch.by_event["limit_changed"] and self._bucket.meter.limiting:
            self._level.emit(self._bucket.rate, self.name)

    def snapshot(self) -> Mapping[str, float | None]:
        """Return the ``rate`` in calls a second (None: no limit yet), the ``measured`` rate, ``queued``."""
        self._advance_window()
        bucket, meter = self._bucket, self._bucket.meter
        rate = bucket.rate if meter.limiting else None
        return {"rate": rate, "measured": meter.rate, "queued": len(self._wait_queue)}

    def _wrapper(self, *, is_async: bool) -> Wrapper:
        queue = self._wait_queue
        templates = JUDGING_WRAPPER if self._judges else COUNTING_WRAPPER
        return templates[gil.enabled], {
            "owner": queue,
            "counter": self._bucket.meter,
            "enter": queue.aenter if is_async else queue.enter,
            "advance_window": self._advance_window,
            **self._rule_names(),
        }

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Apply the settings of another gate; the measured and the learned rate stay."""
        self.settings = replace(other.settings, name=self.name)
        self._run_exclusively(self._adopt_rules, other._failures)
        self._wait_queue.wait, least = self.settings.wait, self.settings.least
        # The time is read under the lock of the queue; read earlier, it could be outdated.
        self._wait_queue.update_pacer(lambda: self._bucket.reconfigure(least, SYSTEM.now()))

    def _advance_window(self) -> None:
        self._wait_queue.update_pacer(self._bucket.meter.advance, SYSTEM.now())

    def _rejection(self, why: str, wait: float) -> RateLimited:
        state = f"is down to {self._bucket.rate:.3g} calls a second after throttling"
        error = RateLimited(f"{self._title('adaptive rate')} {state}, {why}", retry_after=wait)
        return emit_rejected(error, "adaptive_rate", self.name)

    def describe(self) -> str:
        waits = "" if self.wait is None else f", waiting up to {format_seconds(self.wait)}"
        return f"as fast as the server allows{waits}{self._failures.description}"

    def traits(self) -> Traits:
        return Traits(handles=self.settings.on, shared=(self,))

    def __repr__(self) -> str:
        return self._repr(f"wait={self.wait}")
