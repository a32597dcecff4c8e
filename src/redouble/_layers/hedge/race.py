"""The race of one hedged call: which attempts are running, which one won, and the outcome.

Rule 1: the first acceptable outcome wins: a result that ``until`` accepts, or an error that ``on`` does not
        name.
Rule 2: a failed attempt leaves the decision to the others. If all fail, the outcome of the first one counts.
Rule 3: a failure starts no attempt, which is the task of a `Retry`, unless the hedge has ``failover``. A
        ``Retry-After`` of a failure delays the next attempt.

`Race` is pure. `HedgedCall` decides when its attempts start, and a subclass for each way to run code side by
side runs them. `close_all` closes unused results, in any async library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from redouble._failures.verdict import (
    ACCEPT,
    Ended,
    FailureFilter,
    Until,
    Verdict,
    judge_result,
    with_retry_after,
)
from redouble._internal.callables import UsageError, display_name
from redouble._internal.logger import log
from redouble._layers.hedge.extra_calls import Call, different_call
from redouble._runtime.call_stack import InheritedCall
from redouble._runtime.clock import SYSTEM, context_clock
from redouble._runtime.deadline import InheritedCalls, wait_limit
from redouble._telemetry.emit import emit_layer

if TYPE_CHECKING:
    from redouble._engine.budgets.retries_in_flight import CallInFlight
    from redouble._layers.hedge.shared_state import HedgeState
    from redouble._runtime.call_stack import EnclosingCall

FIRST = 1


class Race:
    """The attempts of one call, by number; the first is running."""

    __slots__ = (
        "_failures",
        "_outcome",
        "_results",
        "_until",
        "not_before",
        "running",
        "started",
        "waiting",
        "winner",
    )

    def __init__(self, failures: FailureFilter, until: Until | None) -> None:
        self._failures, self._until = failures, until
        self.started = self.running = 1
        self.winner: int | None = None
        self.waiting = False  # True while the next attempt waits for the time that a failure asked for
        self.not_before = 0.0  # the next attempt starts no earlier, by the clock of `now`
        self._results: list[Any] = []
        # The value and the error of the winner; while there is none, those of the first attempt.
        self._outcome: tuple[Any, Exception | None] = (None, None)

    @property
    def over(self) -> bool:
        """True if an attempt has won, or none is running and none is about to start."""
        return self.winner is not None or not (self.running or self.waiting)

    def start_attempt(self) -> int:
        """Count another attempt as running and return its number."""
        self.started += 1
        self.running += 1
        return self.started

    def record_result(self, number: int, value: Any, now: float) -> None:
        """Record the result of an attempt."""
        self.running -= 1
        self._results.append(value)
        if self.winner is not None:
            return
        until = self._until
        try:
            verdict = ACCEPT if until is None else judge_result(until, Ended(number, value=value))
        except Exception as failed:  # raised by the rule
            self._record(number, None, failed, wins=True)
            return
        self._delay_next(verdict, now)
        self._record(number, value, None, wins=verdict.action == "accept")

    def record_error(self, number: int, error: Exception, now: float) -> None:
        """Record the error of an attempt."""
        self.running -= 1
        if self.winner is not None:
            return
        try:
            verdict = self._failures.verdict(error)
        except Exception as failed:  # raised by a rule
            self._record(number, None, failed, wins=True)
            return
        lost = verdict is not None and verdict.action == "retry"
        if verdict is not None and lost:
            self._delay_next(with_retry_after(verdict, error), now)
        self._record(number, None, error, wins=not lost)

    def _delay_next(self, verdict: Verdict, now: float) -> None:
        if verdict.after is not None:
            self.not_before = max(self.not_before, now + verdict.after)

    def record_cancelled(self) -> None:
        """Record that an attempt was cancelled."""
        self.running -= 1

    def outcome(self) -> Any:
        """Return the result of the race, or raise its error; once."""
        value, error = self._outcome
        self.clear()
        if error is not None:
            try:
                raise error
            finally:
                del error  # a reference cycle: the traceback refers to this frame
        return value

    def take_unused(self, *, delivered: bool) -> list[Any]:
        """Remove and return the results to close; ``delivered``: all but the one that the caller receives."""
        outcome = self._outcome[0]
        unused = {id(value): value for value in self._results if not (delivered and value is outcome)}
        self._results = [value for value in self._results if id(value) not in unused]
        return list(unused.values())

    def clear(self) -> None:
        """Drop all references to results and errors."""
        self._outcome = (None, None)
        self._results.clear()

    def _record(self, number: int, value: Any, error: Exception | None, *, wins: bool) -> None:
        if wins:
            self.winner = number
        if wins or number == FIRST:
            self._outcome = (value, error)


class HedgedCall:
    """One hedged call and its attempts: when the next one starts. A subclass runs them.

    ``delay``: that of the first extra attempt, None if lateness starts none.
    """

    def __init__(self, state: HedgeState, delay: float | None, call: Call) -> None:
        self._state, self._delay, self._call = state, delay, call
        self.race: Race | None = None  # None while there is only one attempt

    calls_around: Callable[[], Iterable[EnclosingCall]]
    """Return the calls of policies and timeouts that enclose this one, innermost first: of a subclass."""

    # Of the class, because most calls never set them.
    started_at: float | None = None  # when the call began, if that is known
    _delays: Sequence[float | None] | None = None  # those of all extra attempts; None: that of the hedge
    _is_stream = False
    _in_flight: Mapping[int, CallInFlight] = MappingProxyType({})  # extra attempts that a budget counts
    _inherited: InheritedCalls | None = None  # the calls around this one, once an attempt is to start

    def plan(self, delays: Sequence[float | None] | None, *, is_stream: bool) -> None:
        """Set a delay for each extra attempt, or None; a stream has no result that ``until`` could judge."""
        self._delays, self._is_stream = delays, is_stream
        if delays is not None:
            self._delay = delays[0]
        self.started_at = SYSTEM.now()

    def new_race(self) -> Race:
        """Return a race with the first attempt running."""
        return Race(self._state.failures, None if self._is_stream else self._state.settings.until)

    def start(self, race: Race, number: int) -> None:
        """Start an extra attempt, which ends by `record_result`, `record_error` or a cancellation."""

    def schedule(self, seconds: float | None) -> None:
        """Call `start_next` after this time, and no earlier; None: never."""

    def start_next(self) -> float | None:
        """Start another attempt, if that is allowed; return the seconds until the next one, or None."""
        state, now = self._state, SYSTEM.now()
        settings = state.settings
        race = self.race or self.new_race()
        race.waiting = False
        if race.winner is not None or race.started > settings.hedges:
            return None
        if race.over and not settings.failover:
            return None
        if self._inherited is None:
            clock = context_clock()
            self._inherited = InheritedCalls(InheritedCall(call, clock) for call in self.calls_around())
        wait = race.not_before - now
        if min(wait_limit(None), self._inherited.shortest()) <= max(wait, 0.0):
            return None  # it could not start in time
        if wait > 0:
            race.waiting = settings.failover
            return wait
        allowed = state.allow_attempt()
        if allowed is False:
            return None
        if self.started_at is None:
            self.started_at = now - (self._delay or 0.0)
        self.race = race
        number = race.start_attempt()
        if allowed is not True:
            self._in_flight = {**self._in_flight, number: allowed}
        emit_layer("hedged", "hedge", settings.name, attempt=number, elapsed=now - self.started_at)
        self.start(race, number)
        return self._delay_after(number)

    def _delay_after(self, number: int) -> float | None:
        """Return how long the attempt after this one has to wait, or None if lateness starts none."""
        if number > self._state.settings.hedges:
            return None
        if self._delays is None:
            return self._state.latencies.threshold
        return next(iter(self._delays[number - 1 : number]), None)  # there may be more hedges since a reload

    def different(self, number: int) -> Call:
        """Return the function and the arguments of an extra attempt."""
        others = self._state.others
        if not others:
            return self._call
        other = others[min(number - FIRST, len(others)) - 1]
        return different_call(other, self._call)

    def record_result(self, race: Race, number: int, value: Any) -> None:
        """Record the result of an attempt; if it was refused, the next one may start."""
        self._ended(number)
        race.record_result(number, value, SYSTEM.now())
        self._after_attempt(race)

    def record_error(self, race: Race, number: int, error: Exception) -> None:
        """Record the error of an attempt; the next one may start."""
        self._ended(number)
        race.record_error(number, error, SYSTEM.now())
        self._after_attempt(race)

    def _ended(self, number: int) -> None:
        if number in self._in_flight:
            self._in_flight[number].end_retry()

    def _after_attempt(self, race: Race) -> None:
        if self._state.settings.failover and race.winner is None:
            self.schedule(self.start_next())


class AsyncHedgedCall(HedgedCall):
    """One hedged call of an async function."""

    async def run(self) -> Any:
        """Return or raise the first acceptable outcome, when all attempts have ended."""

    async def run_attempt(self, race: Race, number: int) -> None:
        """Run an extra attempt and record how it ended. A cancellation propagates, as any BaseException."""
        ended = False
        try:
            cast("InheritedCalls", self._inherited).apply()  # set by `start_next`
            fn, args, kwargs = self.different(number)
            result = fn(*args, **kwargs)
            if not isawaitable(result):
                raise UsageError(f"{display_name(fn)} returned a {type(result).__name__}: make it async")
            value = await result
            ended = True
            self.record_result(race, number, value)
        except Exception as error:
            ended = True
            self.record_error(race, number, error)
        finally:
            if not ended:
                self._ended(number)
                race.record_cancelled()


CLOSE_FAILED = "the result of an attempt that lost could not be closed"


def close_method(result: Any) -> Callable[[], object] | None:
    """Return the ``aclose()`` or the ``close()`` of a result, or None if it has neither."""
    methods = (getattr(result, name, None) for name in ("aclose", "close"))
    return next(filter(callable, methods), None)


async def close_all(results: list[Any]) -> None:
    """Close the results that can be closed, one after the other; log failures."""
    for close in map(close_method, results):
        try:
            closing = None if close is None else close()
            if isawaitable(closing):
                await closing
        except Exception:
            log(CLOSE_FAILED, error=True)
