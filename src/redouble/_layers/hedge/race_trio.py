"""The race runner for Trio, imported when Trio is running. `Race` decides which attempt wins.

All attempts, and the task that starts the next one, belong to one nursery: none outlives the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from trio import Cancelled, CancelScope, Event, Nursery, open_nursery, sleep

from redouble._layers.hedge.race import Race, close_all, run_attempt
from redouble._runtime.clock import SYSTEM

if TYPE_CHECKING:
    from redouble._layers.hedge.control import Operation, RaceRules

__all__ = ["run_race"]


class RaceNurseryTask:
    """One hedged call, and the task that starts its extra attempts."""

    def __init__(
        self, delay: float, rules: RaceRules, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._delay, self._rules, self._fn, self._args, self._kwargs = delay, rules, fn, args, kwargs
        self.race: Race | None = None  # None while there is only one attempt
        self.attempt_ended = Event()

    async def watch(self, nursery: Nursery) -> None:
        """Start further attempts after each delay, if the rules allow it."""
        rules, delay = self._rules, self._delay
        while True:
            await sleep(delay)
            race, now = self.race, SYSTEM.now()
            if race is not None and race.over:
                return
            if race is not None and race.not_before > now:
                delay = race.not_before - now
                continue
            if not rules.allow_attempt():
                return
            if race is None:
                self.race = race = rules.new_race()
            number = race.start_attempt()
            nursery.start_soon(self._attempt, nursery.cancel_scope, race, number)
            if number > rules.hedges:
                return
            delay = rules.delay()

    @staticmethod
    def first_ended(race: Race, value: Any, error: BaseException | None) -> None:
        """Record how the first attempt ended."""
        if isinstance(error, Exception):
            race.record_error(1, error, SYSTEM.now())
        else:
            race.record_result(1, value)

    async def _attempt(self, race_scope: CancelScope, race: Race, number: int) -> None:
        try:
            await run_attempt(race, number, self._rules.different or self._fn, self._args, self._kwargs)
        finally:
            self.attempt_ended.set()
            if race.winner is not None:
                race_scope.cancel()


async def run_race(
    rules: RaceRules, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    call = RaceNurseryTask(delay, rules, fn, args, kwargs)
    value: Any = None
    error: BaseException | None = None
    decided = False
    try:
        with CancelScope() as whole:
            async with open_nursery() as nursery:
                nursery.start_soon(call.watch, nursery)
                try:
                    value = await fn(*args, **kwargs)
                except Exception as failed:
                    error = failed
                if call.race is not None:
                    call.first_ended(call.race, value, error)
                    value = error = None
                    while not call.race.over:
                        call.attempt_ended = Event()
                        await call.attempt_ended.wait()
                whole.shield = True  # the other attempts end now; an outer cancellation comes later
                nursery.cancel_scope.cancel()
        decided = True
    except BaseExceptionGroup as group:
        error = _unwrapped(group)
    finally:
        if call.race is not None:
            with CancelScope(shield=True):
                await close_all(call.race.unused_results(delivered=decided))
            if not decided:
                call.race.clear()
    try:
        if error is not None:
            raise error
        return value if call.race is None else rules.outcome(call.race)
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
