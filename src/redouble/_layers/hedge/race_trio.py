"""Attempts side by side on Trio. Imported only once Trio is running; who wins is decided in `_contest`.

Every attempt, and whoever waits to start the next, is a task of one nursery: nobody is left behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from trio import Cancelled, CancelScope, Event, Nursery, open_nursery, sleep

from redouble._layers.hedge.race import Race, attempted, close_all
from redouble._runtime.clock import SYSTEM

if TYPE_CHECKING:
    from redouble._layers.hedge.control import Operation, RaceRules

__all__ = ["race"]


class RaceNurseryTask:
    """One call."""

    def __init__(
        self, delay: float, rules: RaceRules, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._delay, self._rules, self._fn, self._args, self._kwargs = delay, rules, fn, args, kwargs
        self.contest: Race | None = None  # there is none as long as there is one attempt
        self.turn = Event()

    async def watch(self, nursery: Nursery) -> None:
        """Start others when it is late."""
        rules, delay = self._rules, self._delay
        while True:
            await sleep(delay)
            contest, now = self.contest, SYSTEM.now()
            if contest is not None and contest.over:
                return
            if contest is not None and contest.not_before > now:
                delay = contest.not_before - now
                continue
            if not rules.may():
                return
            if contest is None:
                self.contest = contest = rules.contest()
            number = contest.begin()
            nursery.start_soon(self._attempt, nursery.cancel_scope, contest, number)
            if number > rules.hedges:
                return
            delay = rules.delay()

    @staticmethod
    def first_ended(contest: Race, value: Any, error: BaseException | None) -> None:
        """Take in how the first attempt ended."""
        if isinstance(error, Exception):
            contest.raised(1, error, SYSTEM.now())
        else:
            contest.returned(1, value)

    async def _attempt(self, all_of_them: CancelScope, contest: Race, number: int) -> None:
        try:
            await attempted(contest, number, self._rules.different or self._fn, self._args, self._kwargs)
        finally:
            self.turn.set()
            if contest.winner is not None:
                all_of_them.cancel()


async def race(
    rules: RaceRules, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Make a call, and others beside it when it is late; return the first acceptable result, or raise."""
    heat = RaceNurseryTask(delay, rules, fn, args, kwargs)
    value: Any = None
    error: BaseException | None = None
    decided = False
    try:
        with CancelScope() as whole:
            async with open_nursery() as nursery:
                nursery.start_soon(heat.watch, nursery)
                try:
                    value = await fn(*args, **kwargs)
                except Exception as failed:
                    error = failed
                if heat.contest is not None:
                    heat.first_ended(heat.contest, value, error)
                    value = error = None
                    while not heat.contest.over:
                        heat.turn = Event()
                        await heat.turn.wait()
                whole.shield = True  # what is left ends at once, and then this is the caller's
                nursery.cancel_scope.cancel()
        decided = True
    except BaseExceptionGroup as group:
        error = _unwrapped(group)
    finally:
        if heat.contest is not None:
            with CancelScope(shield=True):
                await close_all(heat.contest.unwanted(wanted=decided))
            if not decided:
                heat.contest.forget()
    try:
        if error is not None:
            raise error
        return value if heat.contest is None else rules.outcome(heat.contest)
    finally:
        del error  # or its traceback would keep this frame, and this frame it


def _unwrapped(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return what Trio has wrapped: the one that is no cancellation; or one of those, which come together."""
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
