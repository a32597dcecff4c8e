"""The race runner for asyncio, imported when asyncio is running. `Race` decides which attempt wins.

Rule 1: the first attempt runs in the task of the caller. Until the hedge delay has passed, the only overhead
        is an entry in the loop's timer.
Rule 2: when `run` returns or raises, every attempt has ended and unused results are closed, even if the
        caller is cancelled while the other attempts are being ended.
"""

from __future__ import annotations

import sys
from asyncio import CancelledError, Event, Task, TimerHandle, current_task, get_running_loop, wait
from collections.abc import Iterable, Sequence
from contextvars import Context, copy_context
from math import inf
from typing import TYPE_CHECKING, Any, Self, cast

from redouble._layers.hedge.extra_calls import Call
from redouble._layers.hedge.outer_calls import calls_around
from redouble._layers.hedge.race import FIRST, AsyncHedgedCall, Race, close_all, close_method
from redouble._runtime.asyncio_timer import RepeatingTimerEntry
from redouble._runtime.call_stack import EnclosingCall, calls_of_task

if TYPE_CHECKING:
    from redouble._layers.hedge.shared_state import HedgeState


class RaceTask(AsyncHedgedCall, RepeatingTimerEntry):
    """One hedged call, and the timer entry that starts its extra attempts."""

    def __init__(self, state: HedgeState, delay: float, call: Call) -> None:
        AsyncHedgedCall.__init__(self, state, delay, call)
        RepeatingTimerEntry.__init__(self, delay)
        self._context = copy_context()

    def calls_around(self) -> Iterable[EnclosingCall]:
        task = cast("Task[Any]", self._task)  # it has not ended, or no attempt would start
        if current_task() is task:
            return calls_of_task(sys._getframe(1))
        return calls_around(task, task.get_coro(), RaceTask.run.__code__, self)

    def expire(self) -> None:
        """Start another attempt, if that is allowed: the hedge delay has passed."""
        task = self._task
        if task is None or task.cancelling() > self._before:  # the call has ended, or is being cancelled
            return
        seconds = self._context.run(self.start_next)
        if seconds is not None:
            self.rearm(seconds)

    def start(self, race: Race, number: int) -> None:
        if number == FIRST + 1:
            self._prepare()
        attempt = self._attempt(race, number)
        self._tasks.append(get_running_loop().create_task(attempt, context=self._context.copy()))

    def _begin_race(self) -> None:
        """Begin a race when the first attempt has ended alone, if another one may start therefore."""

    def _prepare(self) -> None:
        self._attempt_ended = Event()  # the first attempt may wait for the others
        self._tasks: list[Task[None]] = []
        self._cancelled: list[Task[None]] = []

    async def _attempt(self, race: Race, number: int) -> None:
        try:
            await self.run_attempt(race, number)
        finally:
            self._attempt_ended.set()
            if race.winner is not None or not isinstance(sys.exception(), CancelledError | None):
                self.cancel_soon()

    def _end(self) -> None:
        if self._task is not None:  # else the first attempt ends the others
            self._cancel()
        super()._end()

    def _cancel(self) -> None:
        while self._tasks:  # each once: a second cancellation would interrupt its cleanup
            task = self._tasks.pop()
            self._cancelled.append(task)
            task.cancel()

    async def run(self) -> Any:
        """Return or raise the first acceptable outcome, when all attempts have ended."""
        decided = done = False
        fn, args, kwargs = self._call
        try:
            with self:
                try:
                    value = await fn(*args, **kwargs)
                except Exception as error:
                    if self.race is None:
                        self._begin_race()
                    if self.race is None:
                        raise
                    self.record_error(self.race, FIRST, error)
                else:
                    if self.race is None:
                        return value
                    self.record_result(self.race, FIRST, value)
                while not self.race.over:
                    self._attempt_ended.clear()
                    await self._attempt_ended.wait()
            decided = True
        finally:
            race = self.race
            if race is not None:  # pragma: no branch  without one, the call has returned or raised by now
                try:
                    await self._end_others(race, delivered=decided)
                    done = decided
                finally:
                    if not done:
                        race.clear()
        # Without a race the call has returned above.
        return self._state.outcome(cast("Race", race), self.started_at)

    async def _end_others(self, race: Race, *, delivered: bool) -> None:
        """End the other attempts and close unused results; all results if the caller is cancelled."""
        self._cancel()
        cancelled = await _wait_all(self._cancelled)
        for extra in self._in_flight.values():  # a task that was cancelled before its first step has not run
            extra.end_retry()
        later = await _close_shielded(race.take_unused(delivered=delivered and cancelled is None))
        if cancelled is None and later is not None:  # then the outcome is not delivered either
            await _close_shielded(race.take_unused(delivered=False))
        cancelled = cancelled or later
        ended = [task.exception() for task in self._cancelled if not task.cancelled()]
        self._cancelled.clear()  # a reference cycle: their errors refer to this object
        to_raise = next((error for error in ended if error is not None), cancelled)  # such as SystemExit
        try:
            if to_raise is not None:
                raise to_raise
        finally:
            del to_raise, cancelled, ended  # a reference cycle: the traceback refers to this frame


class ScheduledRaceTask(RaceTask):
    """A hedged call whose extra attempts may start at any time: it has a timer of the loop, to be moved."""

    def __init__(self, state: HedgeState, delay: float | None, call: Call) -> None:
        AsyncHedgedCall.__init__(self, state, delay, call)
        RepeatingTimerEntry.__init__(self, inf)
        self.bind()
        self._context = copy_context()
        self._handle: TimerHandle | None = None

    def plan(self, delays: Sequence[float | None] | None, *, is_stream: bool) -> None:
        super().plan(delays, is_stream=is_stream)
        if self._state.settings.until is not None:  # the result of the first attempt may start another one
            self._begin_race()

    def _begin_race(self) -> None:
        if self._state.settings.failover:
            self._prepare()
            self.race = self.new_race()

    def __enter__(self) -> Self:
        self.schedule(self._delay)
        return self

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        self.schedule(None)
        return super().__exit__(kind, error, tb)

    def schedule(self, seconds: float | None) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if seconds is not None and self._task is not None:
            self._handle = get_running_loop().call_later(seconds, self.expire, context=Context())

    def start_next(self) -> float | None:
        task = self._task
        # The call has ended, or is being cancelled; or its coroutine is driven by hand, without a loop.
        ended = task is None or task.cancelling() > self._before
        return None if ended else super().start_next()

    def expire(self) -> None:
        self.schedule(self._context.run(self.start_next))
        if self.race is not None and self.race.over:
            self._attempt_ended.set()


async def _wait_all(tasks: list[Task[None]]) -> CancelledError | None:
    """Wait until all tasks have ended; return the cancellation that arrived meanwhile."""
    cancelled = None
    while running := [task for task in tasks if not task.done()]:
        try:
            await wait(running)
        except CancelledError as error:
            cancelled = error
    return cancelled


async def _close_shielded(results: list[Any]) -> CancelledError | None:
    """Close results in a separate task, which a cancellation of this one does not interrupt."""
    closing = [result for result in results if close_method(result) is not None]
    return await _wait_all([get_running_loop().create_task(close_all(closing))]) if closing else None
