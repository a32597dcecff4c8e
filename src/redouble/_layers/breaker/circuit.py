"""The state machine of a circuit breaker.

Rule 1: the state machine is pure. The caller passes the time and what happened, holds the lock, and publishes
        the changes.
Rule 2: a ticket is, or refers to, the state epoch in which the call was admitted. Results of calls from
        earlier epochs are ignored: they describe the service as it was.
Rule 3: calls without a verdict (cancelled, rejected by an inner layer, judged by no rule) are not counted;
        only their duration is, if there is a share of slow calls.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from math import inf
from typing import TypeAlias

from redouble._layers.breaker.call_window import new_window
from redouble._layers.breaker.cooldown import Cooldown
from redouble._layers.breaker.settings import CircuitBreakerSettings
from redouble._layers.breaker.state_epoch import (
    Rejection,
    State,
    StateChange,
    StateEpoch,
    Ticket,
    TrackedCall,
)

Share: TypeAlias = tuple[int, int]  # a fraction, which is exact: numerator and denominator

SHORTEST_LEASE = 1.0  # second: a probe without a result for this long, and for the cooldown, counts as lost
SLOW = "a slow call"
ROUNDING = 1e-9  # a caller that waits for the `retry_after` of 0.3 s may arrive 0.00000000000000004 s early


class Circuit:
    """A circuit: it admits or rejects calls, counts their results, and changes its state accordingly."""

    def __init__(self, settings: CircuitBreakerSettings, now: float) -> None:
        self._now = now
        self.cooldowns = Cooldown(settings.cooldown, settings.random)
        self._set_cooldown(self.cooldowns.seconds)
        self._apply_settings(settings)
        self.epoch = self._new_epoch(now, settings.state)
        self.rejected = 0
        self.reopened = 0  # how often it has opened again since it was closed
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
        if epoch.admits_all and (self._slow == inf or epoch.state == "disabled"):
            return epoch
        if epoch.admits_all or (epoch.state == "half_open" and self._admits_probe(epoch, now)):
            ticket = TrackedCall(epoch, now) if ticket is None else ticket
            ticket.epoch = epoch
            if not epoch.admits_all:
                epoch.probes[ticket] = None
            if self._slow < inf:
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
        epoch, slow = ticket.epoch, None
        if isinstance(ticket, TrackedCall):
            if epoch is not None:
                epoch.probes.pop(ticket, None)
                if ticket in epoch.calls:  # it is not slow
                    del epoch.calls[ticket]
                    slow = False if self._slow_ratio is not None else None
            ticket.epoch = None
        if epoch is self.epoch and bad is not None and self.epoch.state != "disabled":
            self.last_failure = error if bad else self.last_failure
            self._record(self.epoch, bad, slow, now)

    def state(self, now: float) -> State:
        """Return the state as the next call would find it."""
        return self._due_state(now)[0]

    def retry_after(self, now: float) -> float | None:
        """Return the seconds until the circuit is half open, or None if it is not open."""
        return self._cooldown_left(now) if self.epoch.state == "open" else None

    def counts(self, now: float) -> tuple[int, int]:
        """Return how many calls are counted, and how many of them failed."""
        epoch = self.epoch
        if self._ratio is None:
            return epoch.failure_streak, epoch.failure_streak
        return epoch.judged.counts(self._finite_time(now))

    def slow_calls(self, now: float) -> int:
        """Return how many slow calls are counted; 0 without a share of slow calls."""
        timed = self.epoch.timed
        return 0 if timed is None else timed.counts(self._finite_time(now))[1]

    def change_state(self, now: float, state: State, stage: int = 0) -> None:
        """Begin a new epoch in ``state``; ``stage``: of reopening."""
        try:
            if state == "open":
                self.reopened = self.reopened + 1 if self.epoch.state == "half_open" else 0
                self.cooldowns.after(self.reopened)  # it may call a function of the user
            elif state != "half_open":
                self.reopened = 0
        finally:  # a signal handler may raise in that function, and the results of the probes are counted
            self._begin_epoch(now, state, stage)

    def _begin_epoch(self, now: float, state: State, stage: int) -> None:
        before = self.epoch
        if state == "open":
            self._set_cooldown(self.cooldowns.seconds)
        self.epoch = epoch = self._new_epoch(now, state, stage)
        if before.state == state:  # the next stage, or a reset of the counts
            epoch.since = before.since
            return
        after = self.cooldown if state == "open" else None
        self.changes.append(StateChange(state, state, max(0.0, now - before.since), self.rejected, after))
        if epoch.admits_all:
            self.rejected = 0

    def change_to(self, now: float, state: State) -> None:
        """Begin a new epoch in ``state``, unless it is the current one."""
        if self.epoch.state != state:
            self.change_state(now, state)

    def reconfigure(self, settings: CircuitBreakerSettings, now: float) -> None:
        """Apply other settings from now on; keep the state, its start and the counts.

        If they name another state, change to it.
        """
        old, lease, epoch, now = self._settings, self._lease, self.epoch, self._finite_time(now)
        cooldown = self.cooldown
        self._apply_settings(settings)
        if old.cooldown is not settings.cooldown and old.cooldown != settings.cooldown:
            self.cooldowns = Cooldown(settings.cooldown, settings.random)
            in_use = epoch.state in ("open", "half_open")
            self._set_cooldown(self.cooldowns.after(self.reopened) if in_use else self.cooldowns.seconds)
        if old.state != settings.state:
            self.change_state(now, settings.state)
            return
        if (old.ratio is None) != (settings.ratio is None) and epoch.admits_all:
            epoch.failure_streak = self._first_streak(epoch.state)  # a streak cannot be converted to a ratio
        epoch.judged = epoch.judged.resized(settings.window, settings.calls)
        if self._slow_ratio is None:
            epoch.timed = None
        elif epoch.timed is None:
            epoch.timed = new_window(settings.window, settings.calls)
        else:
            epoch.timed = epoch.timed.resized(settings.window, settings.calls)
        if epoch.state == "open":
            epoch.until += self.cooldown - cooldown
        elif epoch.stage:
            epoch.until += self._lease - lease
            epoch.stage = min(epoch.stage, len(self._reopening))
            if not epoch.stage:
                self.change_state(now, "closed")
        elif epoch.state == "half_open":
            self._decide_half_open(epoch, now)

    def _apply_settings(self, settings: CircuitBreakerSettings) -> None:
        self._settings = settings
        self._slow = inf if settings.slow is None else settings.slow
        self._reopening = settings.reopening or ()
        self._ratio, self._slow_ratio = exact(settings.ratio), exact(settings.slow_ratio)
        self._probe_ratio = exact(settings.probe_ratio)
        self._minimum = settings.minimum if settings.calls is None else min(settings.minimum, settings.calls)

    def _set_cooldown(self, seconds: float) -> None:
        self.cooldown = seconds  # the current one, or the last one
        self._lease = max(seconds, SHORTEST_LEASE)

    def _new_epoch(self, now: float, state: State, stage: int = 0) -> StateEpoch:
        window, calls = self._settings.window, self._settings.calls
        timed = None if self._slow_ratio is None else new_window(window, calls)
        epoch = StateEpoch(state, now, new_window(window, calls), timed, stage)
        epoch.failure_streak = self._first_streak(state)
        if state == "open":
            epoch.until = now + self.cooldown
        elif stage:
            epoch.until = now + self._lease
        return epoch

    def _first_streak(self, state: State) -> int:
        return int(self._ratio is not None and state in ("closed", "metrics_only"))

    def _finite_time(self, now: float) -> float:
        """Return ``now``, or the last finite time if the clock returned NaN or an infinity."""
        if -inf < now < inf:
            self._now = now
        return self._now

    # ----------------------------------------------------------------- half open

    def _cooldown_left(self, now: float) -> float:
        """Return for how many seconds the circuit stays open."""
        left = self.epoch.until - now
        if left > self.cooldown:  # the clock was replaced: restart the cooldown
            self.epoch.until, left = now + self.cooldown, self.cooldown
        return left if left > ROUNDING else 0.0

    def _due_state(self, now: float) -> tuple[State, int]:
        """Return the state and the stage of reopening that are due: time alone causes some changes."""
        epoch = self.epoch
        if epoch.state == "open" and not self._cooldown_left(now):
            return "half_open", 0
        if epoch.stage and epoch.until - now > self._lease:  # the clock was replaced: restart the stage
            epoch.until = now + self._lease
        if not epoch.stage or now < epoch.until or not epoch.judged.calls:
            return epoch.state, epoch.stage
        failing = self._ratio is None and epoch.failure_streak > 0
        if failing or self._threshold_reached(epoch, 1):
            return "open", 0
        return self._stage_of_reopening(epoch.stage + 1)

    def _stage_of_reopening(self, stage: int) -> tuple[State, int]:
        """Return the state in a stage of reopening, and its number; after the last stage it is closed."""
        return ("half_open", stage) if stage <= len(self._reopening) else ("closed", 0)

    def _admits_probe(self, epoch: StateEpoch, now: float) -> bool:
        oldest = next(iter(epoch.probes), None)
        if oldest is not None and not -self._lease < now - oldest.started < self._lease:
            del epoch.probes[oldest]  # lost: its task was dropped, it hangs, or the clock was replaced
            epoch.calls.pop(oldest, None)
            oldest.epoch = None
        if not epoch.stage:
            return epoch.probed + len(epoch.probes) < self._settings.probes
        # Otherwise a service with very few calls would never leave the stage.
        overdue = now >= epoch.until and not epoch.probes
        return self._settings.random.random() < self._reopening[epoch.stage - 1] or overdue

    def _decide_half_open(self, epoch: StateEpoch, now: float) -> None:
        """Change the state as soon as the results of the missing probes could make no difference."""
        left = max(0, self._settings.probes - epoch.probed)
        if self._probes_fail(epoch.failed, epoch.slow):
            self.change_state(now, "open")
        elif not self._probes_fail(epoch.failed + left, epoch.slow + left):
            self.change_state(now, *self._stage_of_reopening(1))

    def _probes_fail(self, failed: int, slow: int) -> bool:
        """Return True if so many failed and slow probes open the circuit."""
        probes = self._settings.probes
        too_slow = self._slow_ratio is not None and reaches(slow, probes, self._slow_ratio)
        if self._probe_ratio is None:
            return failed > 0 or too_slow
        return reaches(failed, probes, self._probe_ratio) or too_slow

    # ------------------------------------------------------------------ counting

    def _record(self, epoch: StateEpoch, bad: bool | None, slow: bool | None, now: float) -> None:
        """Count a call, and change the state if a threshold is reached.

        bad: None if it has no verdict yet. slow: None if its duration does not count, or was counted before.
        """
        if epoch.state == "half_open" and not epoch.stage:
            epoch.probed += bad is not None
            epoch.failed += bad is True
            epoch.slow += slow is True
            self._decide_half_open(epoch, now)
            return
        if bad is not None:
            if self._ratio is None:
                epoch.failure_streak = epoch.failure_streak + 1 if bad else 0
            if self._ratio is not None or epoch.stage:
                epoch.judged.record(bad, now)
        if slow is not None and epoch.timed is not None:
            epoch.timed.record(slow, now)
        if self._threshold_reached(epoch, self._minimum):
            if epoch.state == "metrics_only":
                self._exceed(epoch, now)
            else:
                self.change_state(now, "open")

    def _threshold_reached(self, epoch: StateEpoch, minimum: int) -> bool:
        if self._ratio is None:
            if epoch.failure_streak >= self._settings.failures:
                return True
        else:
            calls = epoch.judged.calls
            if calls >= minimum and epoch.judged.bad * self._ratio[1] >= calls * self._ratio[0]:
                return True
        timed, slow_ratio = epoch.timed, self._slow_ratio
        if timed is None or slow_ratio is None:
            return False
        return timed.calls >= minimum and reaches(timed.bad, timed.calls, slow_ratio)

    def _exceed(self, epoch: StateEpoch, now: float) -> None:
        """Record that the circuit would have opened: at most once in the cooldown that it would have."""
        if 0 < epoch.until - now <= self.cooldown:
            return
        self._set_cooldown(self.cooldowns.after(0))
        epoch.until = now + self.cooldown
        epoch.exceeded += 1
        lasted = max(0.0, now - epoch.since)
        self.changes.append(StateChange("exceeded", epoch.state, lasted, 0, self.cooldown))

    def _count_slow_calls(self, now: float) -> None:
        """Count calls in flight that have become slow, without waiting for their end.

        Without a share of slow calls they are failures, and their results are ignored.
        """
        epoch, slow = self.epoch, self._slow
        calls = epoch.calls
        while calls and slow < inf:
            oldest = next(iter(calls))
            passed = now - oldest.started
            if -slow < passed < slow:
                return
            del calls[oldest]
            if passed < 0:  # the clock was replaced
                continue
            as_failure = self._slow_ratio is None
            if as_failure:
                oldest.epoch = None
                epoch.probes.pop(oldest, None)
            if epoch is self.epoch:
                self.last_failure = SLOW
                self._record(self.epoch, True if as_failure else None, None if as_failure else True, now)


def exact(ratio: float | None) -> Share | None:
    """Return a share as it was written: 0.07 is 7 of 100."""
    return None if ratio is None else Fraction(str(ratio)).as_integer_ratio()


def reaches(bad: int, calls: int, share: Share) -> bool:
    """Return True if at least this share of the calls is bad."""
    return bad * share[1] >= calls * share[0]
