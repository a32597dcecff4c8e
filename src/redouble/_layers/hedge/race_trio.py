"""The race runner for Trio, imported when Trio is running. `Race` decides which attempt wins.

All attempts, and the task that starts the next one, belong to one nursery: none outlives the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from trio import Cancelled, CancelScope, Event, Nursery, open_nursery, sleep

from redouble._layers.hedge.race import FIRST, HedgedCall, Operation, Race, close_all
from redouble._runtime.clock import SYSTEM

if TYPE_CHECKING:
    from redouble._layers.hedge.hedge import Hedge


class RaceNurseryTask(HedgedCall):
    """One hedged call, and the task that starts its extra attempts."""

    nursery: Nursery
    attempt_ended: Event

    async def watch(self, delay: float | None) -> None:
        """Start further attempts after each delay, if that is allowed."""
        while delay is not None:
            await sleep(delay)
            delay = self.start_next()

    def start(self, race: Race, number: int) -> None:
        self.nursery.start_soon(self._attempt, race, number)

    async def _attempt(self, race: Race, number: int) -> None:
        try:
            await self.run_attempt(race, number)
        finally:
            self.attempt_ended.set()
            if race.winner is not None:
                self.nursery.cancel_scope.cancel()


async def run_race(
    hedge: Hedge, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    call = RaceNurseryTask(hedge, fn, args, kwargs)
    call.attempt_ended = Event()
    value: Any = None
    error: BaseException | None = None
    decided = False
    try:
        with CancelScope() as whole:
            async with open_nursery() as nursery:
                call.nursery = nursery
                nursery.start_soon(call.watch, delay)
                try:
                    value = await fn(*args, **kwargs)
                except Exception as failed:
                    error = failed
                if call.race is not None:
                    if isinstance(error, Exception):
                        call.race.record_error(FIRST, error, SYSTEM.now())
                    else:
                        call.race.record_result(FIRST, value)
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
                await close_all(call.race.take_unused(delivered=decided))
            if not decided:
                call.race.clear()
    try:
        if error is not None:
            raise error
        return value if call.race is None else hedge._outcome(call.race)
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
