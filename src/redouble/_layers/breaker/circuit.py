"""The state machine of a circuit breaker.

Rule 1: the state machine is pure. The caller passes the time and what happened, holds the lock, and publishes
        the changes.
Rule 2: a ticket is, or refers to, the state epoch in which the call was admitted. Results of calls from
        earlier epochs are ignored: they describe the service as it was.
Rule 3: calls without a verdict (cancelled, rejected by an inner layer, judged by no rule) are not counted.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from fractions import Fraction
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble._internal.validation import format_seconds
from redouble._layers.breaker.settings import CircuitBreakerSettings

State: TypeAlias = Literal["closed", "open", "half_open", "isolated"]

DEFAULT_NAME = "the circuit breaker"


class StateEpoch:
    """An interval spent in one state, with its counts. It is the ticket of the calls admitted in it."""

    def __init__(self, state: State, now: float, stage: int = 0) -> None:
        self.state: State = state
        self.since, self.until = now, inf
        self.stage = stage  # of reopening: 0 for the probes, then one for each share
        # Consecutive failures. While it is 0, the wrapper does not report successes. With a ratio successes
        # count too, so the circuit sets it to 1 in the closed state.
        self.failure_streak = 0
        self.successful_probes = 0
        self.total, self.failed = SlidingCounter(), SlidingCounter()
        self.calls: OrderedDict[TrackedCall, None] = OrderedDict()  # in flight, the oldest first

    @property
    def epoch(self) -> StateEpoch:
        """This object: an epoch can be used as a ticket, and every ticket has an ``epoch``."""
        return self


class TrackedCall:
    """The ticket of a call whose duration matters: a probe, or any call if ``slow`` is set.

    epoch: None if its result does not count: it has ended, is lost, or was counted as slow before it ended.
    """

    __slots__ = ("epoch", "started")

    failure_streak = 1

    def __init__(self, epoch: StateEpoch | None, now: float) -> None:
        self.epoch = epoch
        self.started = now


Ticket: TypeAlias = StateEpoch | TrackedCall


class Rejection(NamedTuple):
    """Why a call is rejected: the message of a `CircuitOpen`.

    Its text is made when it is read: of most rejections it never is.
    """

    name: str | None
    state: State
    retry_after: float | None
    last_failure: str

    def __str__(self) -> str:
        name = self.name or DEFAULT_NAME
        if self.state == "isolated":
            return f"{name} is isolated, until close() is called"
        if self.state == "half_open":
            return f"{name} is half open, and probes are testing whether the service is back"
        return (
            f"{name} is open after {self.last_failure}, for another {format_seconds(self.retry_after or 0)}"
        )

    def __repr__(self) -> str:
        return repr(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class StateChange(NamedTuple):
    """A change to publish: a new state, or the first rejection since the circuit opened."""

    what: State | Literal["rejected"]
    state: State  # the current state
    lasted: float  # seconds in the previous state; in the current one, for a rejection
    rejected: int  # calls rejected since the circuit opened
    retry_after: float | None = None


SHORTEST_LEASE = 1.0  # second: a probe without a result for this long, and for the cooldown, counts as lost
SLOW = "a slow call"
ROUNDING = 1e-9  # a caller that waits for the `retry_after` of 0.3 s may arrive 0.00000000000000004 s early


class Circuit:
    """A circuit: it admits or rejects calls, counts their results, and changes its state accordingly."""

    def __init__(self, settings: CircuitBreakerSettings, now: float) -> None:
        self._now = now
        self._apply_settings(settings)
        self.epoch = self._new_epoch(now, "closed")
        self.rejected = 0
        self.last_failure = "failures"  # the name of the last error, for messages
        self.changes: deque[StateChange] = deque()  # to be published by the breaker

    def admit(
        self, now: float, name: str | None = None, ticket: TrackedCall | None = None
    ) -> Ticket | Rejection:
        """Admit a call and return its ticket, or reject it; ``name``: of the breaker, for the message.

        ticket: the one to return if the call is tracked, so that an interrupted caller can remove it.
        """
        now = self._finite_time(now)
        self._count_slow_calls(now)
        due = self._due_state(now)
        if due != (self.epoch.state, self.epoch.stage):
            self.change_state(now, *due)
        epoch = self.epoch
        if epoch.state == "closed" and self._slow == inf:
            return epoch
        if epoch.state == "closed" or (epoch.state == "half_open" and self._admits_probe(epoch, now)):
            ticket = TrackedCall(epoch, now) if ticket is None else ticket
            ticket.epoch = epoch
            epoch.calls[ticket] = None
            return ticket
        is_first = not self.rejected  # other threads count without the lock as soon as it is not 0
        self.rejected += 1
        rejection = self.rejection(now, name)
        if is_first:
            lasted = max(0.0, now - epoch.since)
            self.changes.append(StateChange("rejected", epoch.state, lasted, 1, rejection.retry_after))
        return rejection

    def rejection(self, now: float, name: str | None) -> Rejection:
        """Return why a call would be rejected now."""
        return Rejection(name, self.epoch.state, self.retry_after(now), self.last_failure)

    def ended(self, ticket: Ticket, bad: bool | None, now: float, error: str = "") -> None:
        """Record the result of a call; ``bad=None`` is no verdict about the service."""
        now = self._finite_time(now)
        if self._slow < inf:
            self._count_slow_calls(now)
        epoch = ticket.epoch
        if isinstance(ticket, TrackedCall):
            if epoch is not None:
                epoch.calls.pop(ticket, None)
            ticket.epoch = None
            if now - ticket.started >= self._slow:
                bad, error = True, error if bad else SLOW
        if epoch is self.epoch and bad is not None:
            self.last_failure = error if bad else self.last_failure
            self._record(self.epoch, bad, now)

    def state(self, now: float) -> State:
        """Return the state as the next call would find it."""
        return self._due_state(now)[0]

    def retry_after(self, now: float) -> float | None:
        """Return the seconds until the circuit is half open, or None if it is not open."""
        return self._cooldown_left(now) if self.epoch.state == "open" else None

    def counts(self, now: float) -> tuple[int, int]:
        """Return how many calls are counted, and how many of them failed."""
        epoch = self.epoch
        if self._settings.ratio is None:
            return epoch.failure_streak, epoch.failure_streak
        index = int(self._finite_time(now) * SLICES // self._settings.window)
        return epoch.total.count_at(index), epoch.failed.count_at(index)

    def change_state(self, now: float, state: State, stage: int = 0) -> None:
        """Begin a new epoch in ``state``; ``stage``: of reopening."""
        before = self.epoch
        self.epoch = epoch = self._new_epoch(now, state, stage)
        if before.state == state:  # the next stage, or a reset of the counts
            epoch.since = before.since
            return
        after = self._settings.cooldown if state == "open" else None
        self.changes.append(StateChange(state, state, max(0.0, now - before.since), self.rejected, after))
        if state == "closed":
            self.rejected = 0

    def reconfigure(self, settings: CircuitBreakerSettings, now: float) -> None:
        """Apply other settings from now on; keep the state, its start and the counts."""
        old, lease, epoch, now = self._settings, self._lease, self.epoch, self._finite_time(now)
        self._apply_settings(settings)
        if (old.ratio is None) != (settings.ratio is None) and epoch.state == "closed":
            epoch.failure_streak = int(settings.ratio is not None)  # a streak cannot be converted to a ratio
        if old.window != settings.window:
            epoch.total.rescale(old.window, settings.window)
            epoch.failed.rescale(old.window, settings.window)
        if epoch.state == "open":
            epoch.until += settings.cooldown - old.cooldown
        elif epoch.stage:
            epoch.until += self._lease - lease
            epoch.stage = min(epoch.stage, len(self._reopening))
            if not epoch.stage:
                self.change_state(now, "closed")
        elif epoch.state == "half_open" and epoch.successful_probes >= settings.probes:
            self.change_state(now, *self._stage_of_reopening(1))

    def _apply_settings(self, settings: CircuitBreakerSettings) -> None:
        self._settings = settings
        self._slow = inf if settings.slow is None else settings.slow
        self._reopening = settings.reopening or ()
        ratio = Fraction(str(settings.ratio or 0))
        self._ratio_numerator, self._ratio_denominator = ratio.numerator, ratio.denominator
        self._lease = max(settings.cooldown, SHORTEST_LEASE)

    def _new_epoch(self, now: float, state: State, stage: int = 0) -> StateEpoch:
        epoch = StateEpoch(state, now, stage)
        if state == "closed":
            epoch.failure_streak = int(self._settings.ratio is not None)
        elif state == "open":
            epoch.until = now + self._settings.cooldown
        elif stage:
            epoch.until = now + self._lease
        return epoch

    def _finite_time(self, now: float) -> float:
        """Return ``now``, or the last finite time if the clock returned NaN or an infinity."""
        if -inf < now < inf:
            self._now = now
        return self._now

    # ----------------------------------------------------------------- half open

    def _cooldown_left(self, now: float) -> float:
        """Return for how many seconds the circuit stays open."""
        left = self.epoch.until - now
        if left > self._settings.cooldown:  # the clock was replaced: restart the cooldown
            self.epoch.until, left = now + self._settings.cooldown, self._settings.cooldown
        return left if left > ROUNDING else 0.0

    def _due_state(self, now: float) -> tuple[State, int]:
        """Return the state and the stage of reopening that are due: time alone causes some changes."""
        epoch = self.epoch
        if epoch.state == "open" and not self._cooldown_left(now):
            return "half_open", 0
        if epoch.stage and epoch.until - now > self._lease:  # the clock was replaced: restart the stage
            epoch.until = now + self._lease
        if not epoch.stage or now < epoch.until or not epoch.total.total:
            return epoch.state, epoch.stage
        failing = self._settings.ratio is None and epoch.failure_streak > 0
        if failing or self._threshold_reached(epoch, 1):
            return "open", 0
        return self._stage_of_reopening(epoch.stage + 1)

    def _stage_of_reopening(self, stage: int) -> tuple[State, int]:
        """Return the state in a stage of reopening, and its number; after the last stage it is closed."""
        return ("half_open", stage) if stage <= len(self._reopening) else ("closed", 0)

    def _admits_probe(self, epoch: StateEpoch, now: float) -> bool:
        oldest = next(iter(epoch.calls), None)
        if oldest is not None and not -self._lease < now - oldest.started < self._lease:
            del epoch.calls[oldest]  # lost: its task was dropped, it hangs, or the clock was replaced
            oldest.epoch = None
        if not epoch.stage:
            return epoch.successful_probes + len(epoch.calls) < self._settings.probes
        # Otherwise a service with very few calls would never leave the stage.
        overdue = now >= epoch.until and not epoch.calls
        return self._settings.random.random() < self._reopening[epoch.stage - 1] or overdue

    # ------------------------------------------------------------------ counting

    def _record(self, epoch: StateEpoch, bad: bool, now: float) -> None:
        """Count a success or a failure, and change the state if a threshold is reached."""
        if epoch.state != "half_open" or epoch.stage:
            self._count(epoch, bad, now)
            if self._threshold_reached(epoch, self._settings.minimum):
                self.change_state(now, "open")
        elif bad:
            self.change_state(now, "open")
        else:
            epoch.successful_probes += 1
            if epoch.successful_probes >= self._settings.probes:
                self.change_state(now, *self._stage_of_reopening(1))

    def _count(self, epoch: StateEpoch, bad: bool, now: float) -> None:
        if self._settings.ratio is None:
            epoch.failure_streak = epoch.failure_streak + 1 if bad else 0
            if not epoch.stage:
                return
        total, failed = epoch.total, epoch.failed
        index = int(now * SLICES // self._settings.window)
        if index != total.latest:
            total.advance(index)
            failed.advance(index)
        total.counts[total.position] += 1  # inlined: this runs for every call
        total.total += 1
        if bad:
            failed.counts[failed.position] += 1
            failed.total += 1

    def _threshold_reached(self, epoch: StateEpoch, minimum: int) -> bool:
        if self._settings.ratio is None:
            return epoch.failure_streak >= self._settings.failures
        total, failed = epoch.total.total, epoch.failed.total
        return total >= minimum and failed * self._ratio_denominator >= total * self._ratio_numerator

    def _count_slow_calls(self, now: float) -> None:
        """Count calls in flight that have become slow as failures, without waiting for their end."""
        slow, calls = self._slow, self.epoch.calls
        while calls and slow < inf:
            oldest = next(iter(calls))
            passed = now - oldest.started
            if -slow < passed < slow:
                return
            del calls[oldest]
            if passed > 0:  # else the clock was replaced
                epoch, oldest.epoch = oldest.epoch, None
                if epoch is self.epoch:
                    self.last_failure = SLOW
                    self._record(self.epoch, True, now)
