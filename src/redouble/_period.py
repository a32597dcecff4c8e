"""What a circuit breaker's state machine is made of: periods, calls, and what changed."""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from redouble._internal.sliding_counter import Recent

__all__ = ["Call", "Change", "Period", "State", "Ticket"]

State: TypeAlias = Literal["closed", "open", "half_open", "isolated"]


class Period:
    """A time spent in one state, and the ticket of those who were let in meanwhile."""

    __slots__ = ("bad", "calls", "good", "noting", "since", "stage", "state", "total", "until")

    def __init__(self, state: State, now: float, until: float = inf, stage: int = 0) -> None:
        self.state: State = state
        self.since, self.until = now, until
        self.stage = stage  # of reopening: 0 for the probes, then one for each share
        self.noting = 0  # whether it matters that a call went well: how many failed in a row
        self.good = 0
        self.total, self.bad = Recent(), Recent()
        self.calls: OrderedDict[Call, None] = OrderedDict()  # on their way, the oldest first

    @property
    def period(self) -> Period:
        """Itself: as a ticket."""
        return self


class Call:
    """One call whose time matters: a probe, or any where slow ones count. A ticket."""

    __slots__ = ("counted", "period", "started")

    noting = 1

    def __init__(self, period: Period, now: float) -> None:
        self.period: Period | None = period
        self.started = now
        self.counted = False  # as a slow one


Ticket: TypeAlias = Period | Call


class Change(NamedTuple):
    """What happened to the circuit: the new state, or that a call was rejected for the first time."""

    what: State | Literal["rejected"]
    state: State  # it is in now
    lasted: float  # the state before, or this one if nothing changed
    rejected: int  # calls since it opened
    retry_after: float | None = None
