"""One call that is tried by several at once: who is running, who has won, what comes out. Pure.

Rule 1: the first acceptable outcome wins: a result that is not refused, or an error that ``on`` does not
        name.
Rule 2: an attempt that fails leaves it to the others. If all have failed, what comes out is the first one's.
Rule 3: nobody is started because somebody failed: that is what a `Retry` is for. One that was told to wait
        puts the next one off for as long.

Closing a result that nobody is going to use, whatever it is.

One attempt of a race, whatever async library runs it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from redouble._failures.verdict import Ended, FailureFilter, Until, accepted, told_when
from redouble._internal.logger import log
from redouble._runtime.clock import SYSTEM

__all__ = ["Race", "Unawaitable", "attempted", "close_all", "closes"]


FIRST = 1


class Unawaitable(TypeError):
    """A mistake of whoever wrote the call: no rule is asked about it."""


class Race:
    """The attempts of one call, by number; the first is running."""

    __slots__ = (
        "_error",
        "_failures",
        "_first",
        "_results",
        "_until",
        "_value",
        "begun",
        "not_before",
        "running",
        "winner",
    )

    def __init__(self, failures: FailureFilter, until: Until | None) -> None:
        self._failures, self._until = failures, until
        self.begun = self.running = 1
        self.winner: int | None = None
        self.not_before = 0.0  # by the clock of whoever tells the time
        self._results: list[Any] = []
        self._value: Any = None
        self._error: Exception | None = None
        self._first: tuple[Any, Exception | None] = (None, None)

    @property
    def over(self) -> bool:
        """Whether it is decided."""
        return self.winner is not None or not self.running

    def begin(self) -> int:
        """Start another one; return its number."""
        self.begun += 1
        self.running += 1
        return self.begun

    def returned(self, number: int, value: Any) -> None:
        """Take in a result."""
        self.running -= 1
        self._results.append(value)
        if self.winner is not None:
            return
        until = self._until
        try:
            good = until is None or accepted(until, Ended(number, value=value)).action == "accept"
        except Exception as failed:  # the caller's own rule
            self._decide(number, None, failed)
        else:
            (self._decide if good else self._fell)(number, value, None)

    def raised(self, number: int, error: Exception, now: float) -> None:
        """Take in an error."""
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
        after = told_when(verdict, error).after
        if after is not None:
            self.not_before = max(self.not_before, now + after)
        self._fell(number, None, error)

    def cut(self) -> None:
        """Take in that one was cancelled."""
        self.running -= 1

    def outcome(self) -> Any:
        """Return what comes out, or raise it."""
        value, error = (self._value, self._error) if self.winner is not None else self._first
        self.forget()
        if error is not None:
            try:
                raise error
            finally:
                del error  # or its traceback would keep this frame, and this frame it
        return value

    def unwanted(self, *, wanted: bool) -> list[Any]:
        """Return the results that nobody gets; ``wanted``: somebody gets what comes out."""
        kept = self._value if self.winner is not None else self._first[0]
        others = {id(value): value for value in self._results if not (wanted and value is kept)}
        return list(others.values())

    def forget(self) -> None:
        """Keep nothing of what there was: nobody will ask."""
        self._error, self._first, self._value = None, (None, None), None
        self._results.clear()

    def _decide(self, number: int, value: Any, error: Exception | None) -> None:
        self.winner, self._value, self._error = number, value, error

    def _fell(self, number: int, value: Any, error: Exception | None) -> None:
        if number == FIRST:
            self._first = (value, error)


FAILED = "the result of an attempt that lost could not be closed"


def closes(result: object) -> bool:
    """Say whether there is anything to close."""
    return any(callable(getattr(result, name, None)) for name in ("aclose", "close"))


async def close_all(results: list[Any]) -> None:
    """Close them one after the other."""
    for result in results:
        await _close(result)


async def _close(result: Any) -> None:
    """Close it by ``aclose()`` or ``close()``, if it has one; a failure is logged."""
    for name in ("aclose", "close"):
        method = getattr(result, name, None)
        if callable(method):
            try:
                closing = method()
                if isawaitable(closing):
                    await closing
            except Exception:
                log(FAILED, trouble=True)
            return


async def attempted(
    contest: Race,
    number: int,
    fn: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Make it, and tell the contest how it ended. What is no `Exception`, such as a cancellation, goes on."""
    ended = False
    try:
        value = await fn(*args, **kwargs)
        ended = True
        contest.returned(number, value)
    except Exception as error:
        ended = True
        contest.raised(number, error, SYSTEM.now())
    finally:
        if not ended:
            contest.cut()
