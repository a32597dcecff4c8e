"""The state machine of a circuit breaker.

Rule 1: it is told what happened and when, and answers; it has no clock, no lock and no log.
Rule 2: a call's ticket is the period it was let in during, or knows it. What a call of another period has to
        say changes nothing: it tells of a service as it was.
Rule 3: calls that nobody can learn from (cancelled, refused further in, judged by no rule) leave no trace.

What a circuit breaker's state machine is made of: periods, calls, and what changed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from fractions import Fraction
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble._layers.breaker.settings import CircuitBreakerSettings

__all__ = ["Circuit", "State", "StateChange", "StateEpoch", "Ticket", "TrackedCall"]


State: TypeAlias = Literal["closed", "open", "half_open", "isolated"]


class StateEpoch:
    """A time spent in one state, and the ticket of those who were let in meanwhile."""

    __slots__ = ("bad", "calls", "good", "noting", "since", "stage", "state", "total", "until")

    def __init__(self, state: State, now: float, until: float = inf, stage: int = 0) -> None:
        self.state: State = state
        self.since, self.until = now, until
        self.stage = stage  # of reopening: 0 for the probes, then one for each share
        self.noting = 0  # whether it matters that a call went well: how many failed in a row
        self.good = 0
        self.total, self.bad = SlidingCounter(), SlidingCounter()
        self.calls: OrderedDict[TrackedCall, None] = OrderedDict()  # on their way, the oldest first

    @property
    def period(self) -> StateEpoch:
        """Itself: as a ticket."""
        return self


class TrackedCall:
    """One call whose time matters: a probe, or any where slow ones count. A ticket."""

    __slots__ = ("counted", "period", "started")

    noting = 1

    def __init__(self, period: StateEpoch, now: float) -> None:
        self.period: StateEpoch | None = period
        self.started = now
        self.counted = False  # as a slow one


Ticket: TypeAlias = StateEpoch | TrackedCall


class StateChange(NamedTuple):
    """What happened to the circuit: the new state, or that a call was rejected for the first time."""

    what: State | Literal["rejected"]
    state: State  # it is in now
    lasted: float  # the state before, or this one if nothing changed
    rejected: int  # calls since it opened
    retry_after: float | None = None


SHORTEST_LEASE = 1.0  # second, after which a probe that says nothing is taken for lost
SLOW = "a slow call"
ROUNDING = 1e-9  # who was told to come back in 0.3 s must not come 0.00000000000000004 s too early


class Circuit:
    """Whether calls may pass."""

    def __init__(self, settings: CircuitBreakerSettings, chance: Callable[[], float], now: float) -> None:
        self._chance, self._now = chance, now
        self._go_by(settings)
        self.period = StateEpoch("closed", now)
        self.period.noting = int(settings.ratio is not None)
        self.rejected = 0
        self.last = "failures"  # what the last one was
        self.changes: deque[StateChange] = deque()  # not yet told to anybody

    def admit(self, now: float) -> Ticket | None:
        """Let a call in, or return None."""
        now = self._sane(now)
        self._notice_slow(now)
        self._pass_time(now)
        period = self.period
        ticket: Ticket | None = None
        if period.state == "closed":
            ticket = period if self._slow == inf else TrackedCall(period, now)
        elif period.state == "half_open":
            ticket = self._probe(period, now)
        if ticket is None:
            self.rejected += 1
            if self.rejected == 1:
                lasted = max(0.0, now - self.period.since)
                self.changes.append(
                    StateChange("rejected", self.period.state, lasted, 1, self.retry_after(now))
                )
        elif isinstance(ticket, TrackedCall):
            period.calls[ticket] = None
        return ticket

    def ended(self, ticket: Ticket, bad: bool | None, now: float, error: str = "") -> None:
        """Learn how a call ended; ``bad=None`` says nothing about the service."""
        now = self._sane(now)
        if self._slow < inf:
            self._notice_slow(now)
        period = ticket.period
        if isinstance(ticket, TrackedCall):
            ticket.period = None  # who ends twice says nothing new
            if period is not None:
                period.calls.pop(ticket, None)
            if ticket.counted:
                return
            if now - ticket.started >= self._slow:
                bad, error = True, error if bad else SLOW
        if period is self.period and bad is not None:
            self.last = error if bad else self.last
            self._learn(self.period, bad, now)

    def state(self, now: float) -> State:
        """Tell the state as the next call would find it."""
        period = self.period
        if period.state == "open" and not self._rest(now):
            return "half_open"
        if self._stage_is_over(period, now):
            last = period.stage == len(self._reopening)
            return "open" if self._went_badly(period) else "closed" if last else "half_open"
        return period.state

    def retry_after(self, now: float) -> float | None:
        """Tell when to come back, if that is known."""
        return self._rest(now) if self.period.state == "open" else None

    def counted(self, now: float) -> tuple[int, int]:
        """Tell how many calls were counted, and how many of them failed."""
        period = self.period
        if self._settings.ratio is None:
            return period.noting, period.noting
        index = int(self._sane(now) * SLICES // self._settings.window)
        return period.total.seen(index), period.bad.seen(index)

    def become(self, state: State, now: float, until: float = inf, stage: int = 0) -> None:
        """Change the state."""
        before = self.period
        self.period = period = StateEpoch(state, now, until, stage)
        if state == "closed":
            period.noting = int(self._settings.ratio is not None)
        if before.state == state:  # one stage further, or counting begins anew
            period.since = before.since
            return
        after = self._settings.cooldown if state == "open" else None
        self.changes.append(StateChange(state, state, max(0.0, now - before.since), self.rejected, after))
        if state == "closed":
            self.rejected = 0

    def reconfigure(self, settings: CircuitBreakerSettings, now: float) -> None:
        """Use other settings from now on. The state, its start and the counts stay."""
        old, lease, period, now = self._settings, self._lease, self.period, self._sane(now)
        self._go_by(settings)
        if (old.ratio is None) != (settings.ratio is None) and period.state == "closed":
            period.noting = int(settings.ratio is not None)  # how many in a row says nothing of a share
        if old.window != settings.window:
            period.total.redate(old.window, settings.window)
            period.bad.redate(old.window, settings.window)
        if period.state == "open":
            period.until += settings.cooldown - old.cooldown
        elif period.stage:
            period.until += self._lease - lease
            period.stage = min(period.stage, len(self._reopening))
            if not period.stage:
                self.become("closed", now)
        elif period.state == "half_open" and period.good >= settings.probes:
            self._reopen(1, now)

    def _go_by(self, settings: CircuitBreakerSettings) -> None:
        self._settings = settings
        self._slow = inf if settings.slow is None else settings.slow
        self._reopening = settings.reopening or ()
        ratio = Fraction(str(settings.ratio or 0))
        self._up, self._down = ratio.numerator, ratio.denominator
        self._lease = max(settings.cooldown, SHORTEST_LEASE)

    def _sane(self, now: float) -> float:
        """Return the time; a clock that tells nonsense once stands still."""
        if -inf < now < inf:
            self._now = now
        return self._now

    # ----------------------------------------------------------------- half open

    def _rest(self, now: float) -> float:
        """Tell how long it stays open yet."""
        rest = self.period.until - now
        if rest > self._settings.cooldown:  # by another clock: begin to count here
            self.period.until, rest = now + self._settings.cooldown, self._settings.cooldown
        return rest if rest > ROUNDING else 0.0

    def _pass_time(self, now: float) -> None:
        """Do what time alone does: half open it, or go on to the next stage of reopening."""
        period = self.period
        if period.state == "open":
            if not self._rest(now):
                self.become("half_open", now)
        elif self._stage_is_over(period, now):
            if self._went_badly(period):
                self._open(now)
            else:
                self._reopen(period.stage + 1, now)

    def _stage_is_over(self, period: StateEpoch, now: float) -> bool:
        if period.stage and period.until - now > self._lease:  # by another clock: begin to count here
            period.until = now + self._lease
        return bool(period.stage) and now >= period.until and period.total.total > 0

    def _went_badly(self, period: StateEpoch) -> bool:
        failing = self._settings.ratio is None and period.noting > 0
        return failing or self._too_bad(period, 1)

    def _probe(self, period: StateEpoch, now: float) -> Ticket | None:
        oldest = next(iter(period.calls), None)
        if oldest is not None and not -self._lease < now - oldest.started < self._lease:
            del period.calls[oldest]  # lost: its task was dropped, or it hangs, or the clock is another one
            oldest.period = None
        if not period.stage:
            room = period.good + len(period.calls) < self._settings.probes
        else:
            # So that a service with hardly any calls gets beyond the stage at all.
            overdue = now >= period.until and not period.calls
            room = self._chance() < self._reopening[period.stage - 1] or overdue
        return TrackedCall(period, now) if room else None

    def _reopen(self, stage: int, now: float) -> None:
        if stage > len(self._reopening):
            self.become("closed", now)
        else:
            self.become("half_open", now, now + self._lease, stage)

    # ------------------------------------------------------------------ learning

    def _learn(self, period: StateEpoch, bad: bool, now: float) -> None:
        """Take in that a call went well, or did not."""
        if period.state == "half_open" and not period.stage:
            if bad:
                self._open(now)
                return
            period.good += 1
            if period.good >= self._settings.probes:
                self._reopen(1, now)
            return
        self._count(period, bad, now)
        if self._too_bad(period, self._settings.minimum):
            self._open(now)

    def _count(self, period: StateEpoch, bad: bool, now: float) -> None:
        if self._settings.ratio is None:
            period.noting = period.noting + 1 if bad else 0
            if not period.stage:
                return
        total, failed = period.total, period.bad
        index = int(now * SLICES // self._settings.window)
        if index != total.latest:
            total.move(index)
            failed.move(index)
        total.counts[total.place] += 1  # flat: every call comes here
        total.total += 1
        if bad:
            failed.counts[failed.place] += 1
            failed.total += 1

    def _too_bad(self, period: StateEpoch, minimum: int) -> bool:
        if self._settings.ratio is None:
            return period.noting >= self._settings.failures
        total, bad = period.total.total, period.bad.total
        return total >= minimum and bad * self._down >= total * self._up

    def _notice_slow(self, now: float) -> None:
        """Count the calls that have been on their way for too long, without waiting for their end."""
        slow, calls = self._slow, self.period.calls
        while calls and slow < inf:
            oldest = next(iter(calls))
            passed = now - oldest.started
            if -slow < passed < slow:
                return
            del calls[oldest]
            oldest.counted = passed > 0  # else it began by another clock
            if oldest.counted and oldest.period is self.period:
                self.last = SLOW
                self._learn(self.period, True, now)

    def _open(self, now: float) -> None:
        self.become("open", now, now + self._settings.cooldown)
