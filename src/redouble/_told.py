"""A run that somebody listens to: the same decisions, told step by step.

Observers take time, so between two steps the clock is read again. This file decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from redouble._ambient import ambient
from redouble._events import Event, What, tell
from redouble._options import Options
from redouble._run import Run
from redouble.errors import Reason

__all__ = ["begin"]


def begin(
    policy: Options,
    started: float,
    name: str,
    now: Callable[[], float],
    cancelling: Callable[[], bool] | None,
    attempt: int = 1,
) -> Run:
    """Begin a run, told only if somebody listens."""
    if policy.silent and not ambient.active:
        return Run(policy, started, name, attempt=attempt, cancelling=cancelling)
    run = Told(policy, started, name, attempt=attempt, cancelling=cancelling)
    run.reading = now
    return run


class Told(Run):
    """A run that tells the policy's observers, and the process's, what happens."""

    __slots__ = ("reading",)
    reading: Callable[[], float]

    def start(self, now: float) -> Exception | None:
        refusal = self.refusal(now)
        if refusal is None:
            self.tell("before_attempt", number=self.attempt + 1)
            refusal = self.refusal(self.reading())
        if refusal is None:
            self.begin(self.now)
        return refusal

    def failed(self, error: Exception, now: float) -> float | None:
        self.judge(error, now)
        if self.verdict.action != "accept":
            self.tell("failure", error)
        return self.told(error)

    def returned(self, value: object, now: float) -> float | None:
        if self.accepts(value, now):
            return None
        self.tell("failure")
        return self.told(None)

    def told(self, error: Exception | None) -> float | None:
        delay = self.decide(error, self.reading())
        if delay is None:
            return None
        self.tell("retry", error, delay=delay)
        if self.moved(self.reading()) + delay >= self.until:  # the observers used up the time
            self.give_up(Reason.timeout, error)
            return None
        return self.commit(error, delay)

    def succeed(self, error: Exception | None) -> None:
        super().succeed(error)
        self.tell("success", error)

    def give_up(self, reason: Reason, error: Exception | None, *, ended: bool = True) -> None:
        super().give_up(reason, error, ended=ended)
        self.tell("give_up", error)

    def tell(
        self, what: What, error: Exception | None = None, *, delay: float | None = None, number: int | None = None
    ) -> None:
        before = what == "before_attempt"
        bad = what in ("failure", "retry", "give_up") and self.attempt > 0
        event = Event(
            what=what,
            name=self.name,
            attempt=self.attempt if number is None else number,
            elapsed=self.now - self.started,
            attempt_elapsed=None if before else self.now - self.attempt_started,
            error=error,
            value=None if before else self.value,
            verdict=self.verdict if bad else None,
            kind=self.kind(error) if bad else None,
            delay=delay,
            hint=self.verdict.after if bad else None,
            reason=self.reason,
            limit=self.limit,
            labels=self.policy.labels,
        )
        own = getattr(self.policy, what if before else f"on_{what}")
        tell(event, own)
