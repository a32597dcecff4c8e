"""The race runner for Trio, imported when Trio is running. `Race` decides which attempt wins.

All attempts, and the task that starts the next one, belong to one nursery: none outlives the call.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from math import inf
from typing import Any, cast

from trio import Cancelled, CancelScope, Event, Nursery, current_effective_deadline, open_nursery, sleep
from trio.lowlevel import Task, current_task

from redouble._layers.hedge.outer_calls import calls_around
from redouble._layers.hedge.race import FIRST, AsyncHedgedCall, Race, close_all
from redouble._runtime.call_stack import EnclosingCall, calls_of_task


class RaceNurseryTask(AsyncHedgedCall):
    """One hedged call, and the task that starts its extra attempts."""

    _nursery: Nursery
    _task: Task
    _attempt_ended: Event

    _timer: CancelScope | None = None

    def schedule(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = CancelScope()
            self._nursery.start_soon(self._start_after, seconds, self._timer)

    async def _start_after(self, seconds: float, timer: CancelScope) -> None:
        """Start another attempt after a delay, if that is allowed."""
        with timer:
            await sleep(seconds)
        if not timer.cancel_called:
            self.schedule(self.start_next())
            self._attempt_ended.set()

    def calls_around(self) -> Iterable[EnclosingCall]:
        if current_task() is self._task:
            return calls_of_task(sys._getframe(1))
        return calls_around(self._task, self._task.coro, RaceNurseryTask.run.__code__, self)

    def start_next(self) -> float | None:
        is_cancelled = current_effective_deadline() == -inf
        return None if is_cancelled else super().start_next()

    def start(self, race: Race, number: int) -> None:
        self._nursery.start_soon(self._attempt, race, number)

    async def _attempt(self, race: Race, number: int) -> None:
        try:
            await self.run_attempt(race, number)
        finally:
            self._attempt_ended.set()
            if race.winner is not None:
                self._nursery.cancel_scope.cancel()

    async def run(self) -> Any:
        """Return or raise the first acceptable outcome, when all attempts have ended."""
        self._attempt_ended, self._task = Event(), current_task()
        fn, args, kwargs = self._call
        value: Any = None
        error: BaseException | None = None
        decided = False
        try:
            with CancelScope() as whole:
                async with open_nursery() as nursery:
                    self._nursery = nursery
                    if self._state.settings.failover:
                        self.race = self.new_race()
                    self.schedule(self._delay)
                    try:
                        value = await fn(*args, **kwargs)
                    except Exception as failed:
                        error = failed
                    if self.race is not None:
                        if isinstance(error, Exception):
                            self.record_error(self.race, FIRST, error)
                        else:
                            self.record_result(self.race, FIRST, value)
                        value = error = None
                        while not self.race.over:
                            self._attempt_ended = Event()
                            await self._attempt_ended.wait()
                    whole.shield = True  # the other attempts end now; an outer cancellation comes later
                    nursery.cancel_scope.cancel()
            decided = True
        except BaseExceptionGroup as group:
            error = _unwrapped(group)
        finally:
            if self.race is not None:
                with CancelScope(shield=True):
                    await close_all(self.race.take_unused(delivered=decided))
                if not decided:
                    self.race.clear()
        try:
            if error is not None:
                raise error
            return value if self.race is None else self._state.outcome(self.race, self.started_at)
        finally:
            del error  # a reference cycle: the traceback refers to this frame


def _unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the exception in Trio's group: the only one that is no cancellation, or else a cancellation."""
    others = [error for error in group.exceptions if not _cancelled(error)]
    if len(others) > 1:
        return group
    error: BaseException = next(iter(others or group.exceptions))
    while not others and isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _cancelled(error: BaseException) -> bool:
    if not isinstance(error, BaseExceptionGroup):
        return isinstance(error, Cancelled)
    return all(_cancelled(member) for member in cast("BaseExceptionGroup[BaseException]", error).exceptions)
