"""The state of one call under a `Timeout`, and what the code inside finds of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from types import FrameType
from typing import TYPE_CHECKING

from redouble._runtime.ambient import ambient
from redouble._runtime.backend import backend
from redouble._runtime.call_stack import variables_of
from redouble._runtime.clock import SYSTEM, Clock, context_clock
from redouble._runtime.deadline import deadline_left
from redouble._telemetry.emit import emit_timeout
from redouble.errors import AttemptTimeout, Limit

if TYPE_CHECKING:
    from redouble._layers.timeout.learned_limit import LearnedLimit
    from redouble._runtime.backend import CancelScope
    from redouble._runtime.call_stack import EnclosingCall


class TimeoutCall:
    """The state of one call under a limit; `run_on_worker` uses it in place of a `Run`."""

    clock: Clock = SYSTEM

    def __init__(self, seconds: float, name: str) -> None:
        self._seconds, self._name = seconds, name
        self.refresh_now = context_clock()
        if ambient.active:
            self.refresh_now()  # the first reading binds a virtual clock to this context
        self.stuck = False

    def time_left(self, *, own: bool = True) -> float:
        """Return the seconds that the call may take, and record which limit that is."""
        left = deadline_left() if ambient.active else inf
        limit = self._seconds if own else inf
        self._limiting_limit: Limit = "attempt" if limit <= left else "deadline"
        self.allowed = limit if limit <= left else max(0.0, left)
        return self.allowed

    def expired(self) -> AttemptTimeout:
        """Return the error to raise when the limit is reached, and emit it."""
        text = f"took longer than {self.allowed:g} s" if self.allowed else "was not called: its limit is 0 s"
        if self._limiting_limit == "deadline":
            cut = f"was cut after {self.allowed:g} s: the deadline"
            text = cut if self.allowed else "was not called: the deadline has passed"
        error = AttemptTimeout(f"{self._name} {text}", limit=self._limiting_limit, seconds=self.allowed)
        return emit_timeout(error, self._name)

    def leave_worker(self, *, alone: bool) -> None:
        """Record that the worker did not stop; ``alone``: no other may run beside it."""
        self.stuck = alone


class Timing:
    """A ``with`` that records how long a call took, for a limit that is learned."""

    __slots__ = ("_learned", "_now", "_started")

    def __init__(self, learned: LearnedLimit | None, now: Callable[[], float]) -> None:
        self._learned, self._now = learned, now

    def __enter__(self) -> None:
        self._started = 0.0 if self._learned is None else self._now()

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> None:
        if self._learned is not None:
            now = self._now()
            self._learned.record(max(0.0, now - self._started), error, now)


class CallInScope:
    """A call under a limit that cancels it, as the code inside finds it: no call of a policy."""

    attempt = 0
    attempts = None
    name = ""
    labels: Mapping[str, str] = {}
    ends_with_first_item = False  # it interrupts

    def __init__(self, limit: CancelScope) -> None:
        self._limit = limit

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until the limit, which interrupts."""
        return inf if soft else backend().seconds_left(self._limit)


def read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of an async function under a `Timeout`; a worker has a deadline."""
    limit = variables_of(frame).get("limit")
    return None if limit is None else CallInScope(limit)
