"""The race of one hedged call: which attempts are running, which one won, and the outcome.

Rule 1: the first acceptable outcome wins: a result that ``until`` accepts, or an error that ``on`` does not
        name.
Rule 2: a failed attempt leaves the decision to the others. If all fail, the outcome of the first one counts.
Rule 3: a failure starts no attempt: that is the task of a `Retry`. A ``Retry-After`` of a failure delays the
        next attempt.

`Race` is pure; the functions below it run one attempt and close unused results in any async library.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from redouble._failures.verdict import Ended, FailureFilter, Until, judge_result, with_retry_after
from redouble._internal.logger import log
from redouble._runtime.clock import SYSTEM

__all__ = ["Race", "Unawaitable", "closable", "close_all", "run_attempt"]


FIRST = 1


class Unawaitable(TypeError):
    """Raised if ``different`` returns no awaitable: it decides the race at once, and no rule judges it."""


class Race:
    """The attempts of one call, by number; the first is running."""

    __slots__ = (
        "_error",
        "_failures",
        "_first_outcome",
        "_results",
        "_until",
        "_value",
        "not_before",
        "running",
        "started",
        "winner",
    )

    def __init__(self, failures: FailureFilter, until: Until | None) -> None:
        self._failures, self._until = failures, until
        self.started = self.running = 1
        self.winner: int | None = None
        self.not_before = 0.0  # the next attempt starts no earlier, by the clock of `now`
        self._results: list[Any] = []
        self._value: Any = None
        self._error: Exception | None = None
        self._first_outcome: tuple[Any, Exception | None] = (None, None)

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
            self._decide(number, None, failed)
        else:
            (self._decide if good else self._record_loss)(number, value, None)

    def record_error(self, number: int, error: Exception, now: float) -> None:
        """Record the error of an attempt."""
        self.running -= 1
        if self.winner is not None:
            return
        try:
            verdict = None if isinstance(error, Unawaitable) else self._failures.verdict(error)
        except Exception as failed:
            self._decide(number, None, failed)
            return
        if verdict is None or verdict.action != "retry":
            self._decide(number, None, error)
            return
        after = with_retry_after(verdict, error).after
        if after is not None:
            self.not_before = max(self.not_before, now + after)
        self._record_loss(number, None, error)

    def record_cancelled(self) -> None:
        """Record that an attempt was cancelled."""
        self.running -= 1

    def outcome(self) -> Any:
        """Return the result of the race, or raise its error; once."""
        value, error = (self._value, self._error) if self.winner is not None else self._first_outcome
        self.clear()
        if error is not None:
            try:
                raise error
            finally:
                del error  # a reference cycle: the traceback refers to this frame
        return value

    def unused_results(self, *, delivered: bool) -> list[Any]:
        """Return the results to close; ``delivered``: all but the one that the caller receives."""
        outcome = self._value if self.winner is not None else self._first_outcome[0]
        others = {id(value): value for value in self._results if not (delivered and value is outcome)}
        return list(others.values())

    def clear(self) -> None:
        """Drop all references to results and errors."""
        self._error, self._first_outcome, self._value = None, (None, None), None
        self._results.clear()

    def _decide(self, number: int, value: Any, error: Exception | None) -> None:
        self.winner, self._value, self._error = number, value, error

    def _record_loss(self, number: int, value: Any, error: Exception | None) -> None:
        if number == FIRST:
            self._first_outcome = (value, error)


CLOSE_FAILED = "the result of an attempt that lost could not be closed"


def closable(result: object) -> bool:
    """Return True if ``result`` has an ``aclose()`` or a ``close()``."""
    return any(callable(getattr(result, name, None)) for name in ("aclose", "close"))


async def close_all(results: list[Any]) -> None:
    """Close the results one after the other."""
    for result in results:
        await _close(result)


async def _close(result: Any) -> None:
    """Call ``aclose()`` or ``close()`` of the result, if it has one; log a failure."""
    for name in ("aclose", "close"):
        method = getattr(result, name, None)
        if callable(method):
            try:
                closing = method()
                if isawaitable(closing):
                    await closing
            except Exception:
                log(CLOSE_FAILED, error=True)
            return


async def run_attempt(
    race: Race,
    number: int,
    fn: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Run one attempt and record how it ended. A `BaseException`, such as a cancellation, propagates."""
    ended = False
    try:
        value = await fn(*args, **kwargs)
        ended = True
        race.record_result(number, value)
    except Exception as error:
        ended = True
        race.record_error(number, error, SYSTEM.now())
    finally:
        if not ended:
            race.record_cancelled()
