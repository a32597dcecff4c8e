"""`Call`: the logical call in progress. `Context`: the part of it that a ``retry_if`` receives."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from redouble._drivers.calls import begin_run
from redouble._engine.options import Options
from redouble._engine.run import Run
from redouble._internal.public import public
from redouble._runtime.clock import context_clock
from redouble._runtime.deadline import (
    deadline_left,
    remaining,
    times_left_for_stream,
    uninterrupted_time_left,
)
from redouble._telemetry.bound_fields import Value
from redouble.llm._spend.account import Account
from redouble.llm._spend.meter import Meter
from redouble.llm._timeouts import Timeouts, limit_of


@public("redouble.llm")
class Context(NamedTuple):
    """The call that a ``retry_if`` decides on; ``bound`` holds the values of `redouble.bind`."""

    provider: str
    model: str
    bound: Mapping[str, Value] = MappingProxyType({})
    stream: bool = False


RetryIf: TypeAlias = Callable[[Exception, int, Context], bool | None]


@public("redouble.llm")
@dataclass(frozen=True)
class Call:
    """One logical call, the same in all of its attempts.

    key: its idempotency key, if it has one.
    headers: the headers that send the key to the provider.

    ``attempt``, ``attempts``, ``remaining``, ``name``, ``labels``: as in the result of `redouble.current`.
    """

    provider: str
    model: str
    timeouts: Timeouts
    stream: bool = False
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    _meter: Meter = field(default_factory=Meter, repr=False, compare=False)
    _account: Account | None = field(default=None, repr=False, compare=False)
    _run: Run | None = field(init=False, default=None, repr=False, compare=False)
    _ends_at: float = field(init=False, repr=False, compare=False)  # a time of ``_now``
    _around_ends_at: float = field(init=False, repr=False, compare=False)  # a limit of a call around this one
    _stream_ends_at: float = field(init=False, repr=False, compare=False)  # the same after the first chunk
    _now: Callable[[], float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        now = context_clock()
        # The call begins outside of its own policy, so that only the limits around the model count.
        around, for_stream = now() + uninterrupted_time_left(), now() + times_left_for_stream()[1]
        ends_at = now() + limit_of(self.timeouts.total)
        vars(self).update(_now=now, _ends_at=ends_at, _around_ends_at=around, _stream_ends_at=for_stream)

    @property
    def timeout(self) -> dict[str, float | None]:
        """The time limits for an HTTP client from now on: ``httpx2.Timeout(**call.timeout)``."""
        return self.timeouts.within(max(0.0, self.left()), stream=self.stream)

    def begin_run(self, policy: Options, name: str, *, aio: bool) -> Run:
        """Begin the run of this call: its events and its report have what the call has used."""
        run = begin_run(Run, policy, name, aio=aio)
        run.usage = self._meter.used
        vars(self)["_run"] = run
        return run

    @property
    def attempt(self) -> int:
        """The number of the running attempt, counted from 1; 0 before the first."""
        return 0 if self._run is None else self._run.attempt

    @property
    def attempts(self) -> int | None:
        """The most attempts of the call; None for no limit but time."""
        return None if self._run is None else self._run.attempts

    @property
    def name(self) -> str:
        """The name of the call in events and reports."""
        return "" if self._run is None else self._run.name

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the policy."""
        return {} if self._run is None else self._run.labels

    @property
    def remaining(self) -> float | None:
        """The seconds left of all limits, also of the model's own total limit; None without a limit."""
        seconds = min(self.left(), remaining(inf))
        return None if seconds == inf else max(0.0, seconds)

    def begin_stream(self) -> None:
        """Record that the first chunk was delivered: there end the limits of the calls of streams around."""
        vars(self)["_around_ends_at"] = self._stream_ends_at

    def left(self) -> float:
        """Return the seconds until its total limit, or until a limit around it, whichever is earlier."""
        return min(min(self._ends_at, self._around_ends_at) - self._now(), deadline_left())


CURRENT: ContextVar[Call | None] = ContextVar("redouble_llm_call", default=None)


@contextmanager
def in_context(call: Call) -> Generator[None]:
    """Make this the current call; settle its spend at the end, unless it is a stream."""
    before = CURRENT.get()
    CURRENT.set(call)
    try:
        yield
    finally:
        if call._account is not None and not call.stream:
            call._account.close()
        leave(call, before)


def leave(call: Call, before: Call | None) -> None:
    """Make the call before this one the current one again."""
    if CURRENT.get() is call:  # else the event loop was closed meanwhile, and this is another context
        CURRENT.set(before)


@public("redouble.llm")
def current() -> Call:
    """Return the call that the running code is an attempt of: for functions that make requests themselves.

    >>> from redouble import llm
    >>> model = llm.Model("openai", "gpt-5", idempotency="auto")
    >>> @model
    ... def ask(prompt: str) -> str:
    ...     return f"{prompt}, under one key: {len(llm.current().headers)} header"
    >>> ask("once more")
    'once more, under one key: 1 header'
    """
    call = CURRENT.get()
    if call is None:
        raise LookupError("current() is for functions that an llm.Model calls: there is no call here")
    return call
