"""The race of one hedged call: which attempts are running, which one won, and the outcome.

Rule 1: the first acceptable outcome wins: a result that ``until`` accepts, or an error that ``on`` does not
        name.
Rule 2: a failed attempt leaves the decision to the others. If all fail, the outcome of the first one counts.
Rule 3: a failure starts no attempt: that is the task of a `Retry`. A ``Retry-After`` of a failure delays the
        next attempt.

`Race` is pure. `HedgedCall` runs its attempts, and `close_all` closes unused results, in any async library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from redouble._failures.verdict import Ended, FailureFilter, Until, judge_result, with_retry_after
from redouble._internal.logger import log
from redouble._runtime.clock import SYSTEM

if TYPE_CHECKING:
    from redouble._layers.hedge.hedge import Hedge

Operation: TypeAlias = Callable[..., Awaitable[Any]]

FIRST = 1


class Race:
    """The attempts of one call, by number; the first is running."""

    __slots__ = ("_failures", "_outcome", "_results", "_until", "not_before", "running", "started", "winner")

    def __init__(self, failures: FailureFilter, until: Until | None) -> None:
        self._failures, self._until = failures, until
        self.started = self.running = 1
        self.winner: int | None = None
        self.not_before = 0.0  # the next attempt starts no earlier, by the clock of `now`
        self._results: list[Any] = []
        # The value and the error of the winner; while there is none, those of the first attempt.
        self._outcome: tuple[Any, Exception | None] = (None, None)

    @property
    def over(self) -> bool:
        """True if an attempt has won, or none is running."""
        return self.winner is not None or not self.running

    def start_attempt(self) -> int:
        """Count another attempt as running and return its number."""
        self.started += 1
        self.running += 1
        return self.started

    def record_result(self, number: int, value: Any) -> None:
        """Record the result of an attempt."""
        self.running -= 1
        self._results.append(value)
        if self.winner is not None:
            return
        until = self._until
        try:
            good = until is None or judge_result(until, Ended(number, value=value)).action == "accept"
        except Exception as failed:  # raised by the rule
            self._record(number, None, failed, wins=True)
        else:
            self._record(number, value, None, wins=good)

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
        after = with_retry_after(verdict, error).after if verdict is not None and lost else None
        if after is not None:
            self.not_before = max(self.not_before, now + after)
        self._record(number, None, error, wins=not lost)

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
    """One hedged call and its attempts; a subclass for each async library starts the extra ones."""

    def __init__(
        self, hedge: Hedge, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._hedge, self._delay, self._fn, self._args, self._kwargs = hedge, delay, fn, args, kwargs
        self.race: Race | None = None  # None while there is only one attempt

    async def run(self) -> Any:
        """Return or raise the first acceptable outcome, when all attempts have ended."""

    def start(self, race: Race, number: int) -> None:
        """Start a task that calls `run_attempt`."""

    def start_next(self) -> float | None:
        """Start another attempt, if that is allowed; return the seconds until the next one, or None."""
        hedge, now = self._hedge, SYSTEM.now()
        race = self.race or Race(hedge._failures, hedge.settings.until)
        if race.not_before > now and not race.over:
            return race.not_before - now
        if race.over or not hedge._allow_attempt():
            return None
        self.race = race
        number = race.start_attempt()
        self.start(race, number)
        return (hedge._latencies.threshold or 0.0) if number <= hedge.settings.hedges else None

    async def run_attempt(self, race: Race, number: int) -> None:
        """Run an extra attempt and record how it ended. A cancellation propagates, as any BaseException."""
        ended = False
        try:
            value = await (self._hedge._different or self._fn)(*self._args, **self._kwargs)
            ended = True
            race.record_result(number, value)
        except Exception as error:
            ended = True
            race.record_error(number, error, SYSTEM.now())
        finally:
            if not ended:
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
