"""The epochs of a circuit, and what it returns: the tickets of calls, rejections, and changes of state."""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Literal, NamedTuple, TypeAlias

from redouble._internal.validation import format_seconds
from redouble._layers.breaker.call_window import CallWindow

State: TypeAlias = Literal["closed", "open", "half_open", "isolated", "disabled", "metrics_only"]

DEFAULT_NAME = "the circuit breaker"


class StateEpoch:
    """An interval spent in one state, with its counts. It is the ticket of the calls admitted in it."""

    def __init__(
        self, state: State, now: float, judged: CallWindow, timed: CallWindow | None, stage: int = 0
    ) -> None:
        self.state: State = state
        self.admits_all = state in ("closed", "disabled", "metrics_only")
        # The end of an open state and of a stage; in metrics_only the time from which the circuit may open.
        self.since, self.until = now, -inf if state == "metrics_only" else inf
        self.stage = stage  # of reopening: 0 for the probes, then one for each share
        # Consecutive failures. While it is 0, the wrapper does not report successes. With a ratio successes
        # count too, so the circuit sets it to 1 in a state that admits all calls.
        self.failure_streak = 0
        self.judged = judged  # calls with a verdict; the bad ones failed
        self.timed = timed  # calls with a duration; the bad ones were slow. None: no share of slow calls
        self.probed = self.failed = self.slow = 0  # probes with a verdict, those that failed, slow ones
        self.exceeded = 0  # how often it would have opened in metrics_only
        self.probes: OrderedDict[TrackedCall, None] = OrderedDict()  # in flight, the oldest first
        self.calls: OrderedDict[TrackedCall, None] = OrderedDict()  # in flight that may become slow

    @property
    def epoch(self) -> StateEpoch:
        """This object: an epoch can be used as a ticket, and every ticket has an ``epoch``."""
        return self


class TrackedCall:
    """The ticket of a call whose duration matters: a probe, or any call if ``slow`` is set.

    epoch: None if its result does not count: it has ended, is lost, or was counted as a failure because it
        was slow before it ended.
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
    """A change to publish: a new state, the first rejection since the circuit opened, or what it would do.

    ``exceeded``: in the state metrics_only, a circuit that was closed would have opened.
    """

    what: State | Literal["rejected", "exceeded"]
    state: State  # the current state
    lasted: float  # seconds in the previous state; in the current one, for a rejection
    rejected: int  # calls rejected since the circuit opened
    retry_after: float | None = None
