"""Attempts side by side on asyncio. Imported only once asyncio is running; who wins is decided in `_contest`.

Rule 1: the first attempt runs in the task of the caller, as if nobody stood by. Until it is late, there is
        no more to it than an entry in the loop's timer.
Rule 2: nobody is left behind. Whatever happens, also a cancellation while others are put down, every attempt
        has ended before we return, and the results of those that lost are closed.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError, Event, Task, get_running_loop, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, cast

from redouble._layers.hedge.race import Race, attempted, close_all, closes
from redouble._runtime.asyncio_timer import RepeatingTimerEntry
from redouble._runtime.clock import SYSTEM

if TYPE_CHECKING:
    from redouble._layers.hedge.control import Operation, RaceRules

__all__ = ["race"]


class RaceTask(RepeatingTimerEntry):
    """One call, and the moment when it is late."""

    __slots__ = ("_args", "_context", "_cut", "_fn", "_kwargs", "_rules", "_tasks", "contest", "turn")

    def __init__(
        self, delay: float, rules: RaceRules, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._rules, self._fn, self._args, self._kwargs = rules, fn, args, kwargs
        self._context = copy_context()
        self.contest: Race | None = None  # there is none as long as there is one attempt
        super().__init__(delay)

    def cut(self) -> None:
        """Start another attempt, if there may be one."""
        task = self._task
        if task is None or task.cancelling() > self._before:  # the call is over, or nobody wants it any more
            return
        contest, now = self.contest, SYSTEM.now()
        if contest is not None and contest.over:
            return
        if contest is not None and contest.not_before > now:
            self.again(contest.not_before - now)
            return
        if not self._rules.may():
            return
        if contest is None:
            self.contest = contest = self._rules.contest()
            self.turn = Event()  # of the first attempt, if it waits for the others
            self._tasks: list[Task[None]] = []
            self._cut: list[Task[None]] = []  # those that we have cancelled
        number = contest.begin()
        self._tasks.append(
            get_running_loop().create_task(self._attempt(contest, number), context=self._context.copy())
        )
        if number <= self._rules.hedges:
            self.again(self._rules.delay())

    async def _attempt(self, contest: Race, number: int) -> None:
        try:
            await attempted(contest, number, self._rules.different or self._fn, self._args, self._kwargs)
        finally:
            self.turn.set()
            if contest.winner is not None or not isinstance(sys.exception(), CancelledError | None):
                self.end()

    def _end(self) -> None:
        if self._task is not None:  # else the first one puts them down
            self._cancel()
        super()._end()

    def _cancel(self) -> None:
        while self._tasks:  # each once: a second time would interrupt its tidying up
            task = self._tasks.pop()
            self._cut.append(task)
            task.cancel()

    async def put_down(self, contest: Race, *, wanted: bool) -> None:
        """End all others, and close the results that nobody gets: all, if we are cancelled meanwhile."""
        self._cancel()
        cancelled = await _over(self._cut)
        left = contest.unwanted(wanted=wanted and cancelled is None)
        later = await _closed(left)
        if cancelled is None and later is not None:  # so that nobody gets what came out, either
            closed = {id(value) for value in left}
            await _closed([value for value in contest.unwanted(wanted=False) if id(value) not in closed])
        cancelled = cancelled or later
        ended = [task.exception() for task in self._cut if not task.cancelled()]
        self._cut.clear()  # or their errors and this would keep each other alive
        worse = next((error for error in ended if error is not None), cancelled)  # an exit, say
        try:
            if worse is not None:
                raise worse
        finally:
            del worse, cancelled, ended  # or the error and this frame would keep each other alive


async def _over(tasks: list[Task[None]]) -> CancelledError | None:
    """Wait until all of them have ended; return the cancellation that came meanwhile."""
    cancelled = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await wait(running)
        except CancelledError as error:
            cancelled = error
    return cancelled


async def _closed(results: list[Any]) -> CancelledError | None:
    """Close them, in a task of its own, which no cancellation of ours interrupts."""
    closing = [result for result in results if closes(result)]
    return await _over([get_running_loop().create_task(close_all(closing))]) if closing else None


async def race(
    rules: RaceRules, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a call, and others beside it when it is late; return the first acceptable result, or raise."""
    heat = RaceTask(delay, rules, fn, args, kwargs)
    decided = done = False
    try:
        with heat:
            try:
                value = await fn(*args, **kwargs)
            except Exception as error:
                if heat.contest is None:
                    raise
                heat.contest.raised(1, error, SYSTEM.now())
            else:
                if heat.contest is None:
                    return value
                heat.contest.returned(1, value)
            while not heat.contest.over:
                heat.turn.clear()
                await heat.turn.wait()
        decided = True
    finally:
        contest = heat.contest
        if contest is not None:  # pragma: no branch  without one we have returned by now, or raised
            try:
                await heat.put_down(contest, wanted=decided)
                done = decided
            finally:
                if not done:
                    contest.forget()
    return rules.outcome(cast("Race", contest))  # or we would not have come here
