"""Async calls with time limits: every shape, operations of given durations, and the result of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from redouble import Report, Retry, report
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from redouble.types import Event
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, AsyncShape, AsyncWork
from tests.support.fakes import in_colour
from tests.support.fakes import options as defaults
from tests.support.virtual_time import in_virtual_time

LONG = 1000.0


SHAPES = pytest.mark.parametrize("shape", EVERY_ASYNC_SHAPE.values(), ids=EVERY_ASYNC_SHAPE)
LIMIT_NAMES = {"timeout": "total", "attempt_timeout": "attempt", "work_timeout": "work"}
COLOURS = pytest.mark.parametrize("colour", ["asyncio", "trio", "bare"])


@dataclass
class LimitedCall:
    """The result of one call, its duration, and the emitted events."""

    value: object = None
    error: BaseException | None = None
    took: float = 0.0
    event_texts: list[str] = field(default_factory=list[str])
    events: list[Event] = field(default_factory=list[Event])

    @property
    def report(self) -> Report:
        found = report(self.error)
        assert found is not None
        return found

    def record(self, event: Event) -> None:
        self.events.append(event)
        self.event_texts.append(
            " ".join(str(word) for word in (event.what, event.attempt, event.limit) if word)
        )


def working(*steps: tuple[float, object]) -> AsyncWork:
    """Return an operation with the duration and the result of each attempt; the last one repeats."""
    left = list(steps)

    async def work() -> object:
        takes, ending = left.pop(0) if len(left) > 1 else left[0]
        if takes:
            await backend().sleep(takes)
        if isinstance(ending, BaseException):
            raise ending
        return ending

    return work


def swallowing(then: object = "late", waits: float = 0.0) -> AsyncWork:
    """Return an operation that swallows its cancellation."""

    async def work() -> object:
        try:
            await backend().sleep(LONG)
        except (asyncio.CancelledError, trio.Cancelled):
            if waits:
                await backend().sleep(waits)
            if isinstance(then, BaseException):
                raise then from None
        return then

    return work


def hooks(observer: Callable[[Event], None]) -> dict[str, Any]:
    return dict.fromkeys(("on_success", "on_failure", "on_retry", "on_give_up"), observer)


def policy_of(call: LimitedCall, *, observed: bool, **options: Any) -> Retry:
    arguments = defaults(on=Exception, backoff=[1] * 9, give_up_after=None)
    return Retry(**arguments | (hooks(call.record) if observed else {}) | options)


async def make_call(
    call: LimitedCall, shape: AsyncShape, policy: Retry, work: AsyncWork, now: Callable[[], float]
) -> None:
    began = now()
    try:
        call.value = await shape(policy, work)
    except Exception as error:
        call.error = error
    call.took = now() - began


def call_in_virtual_time(
    colour: str, shape: AsyncShape, work: AsyncWork, *, observed: bool = True, **options: Any
) -> LimitedCall:
    """Make a call in virtual time; in the colour ``bare`` with Trio's test clock only."""
    call = LimitedCall()
    policy = policy_of(call, observed=observed, **options)

    async def bare() -> None:
        await make_call(call, shape, policy, work, trio.current_time)

    async def waiting(clock: VirtualClock) -> None:
        await make_call(call, shape, policy, work, clock.now)

    if colour == "bare":
        trio.run(bare, clock=MockClock(autojump_threshold=0))
    else:
        in_virtual_time(colour, waiting)
    return call


def call_in_real_time(
    colour: str, shape: AsyncShape, work: AsyncWork, *, observed: bool = True, **options: Any
) -> LimitedCall:
    """Make a call in real time."""
    call = LimitedCall()
    policy = policy_of(call, observed=observed, **defaults(backoff=[0] * 9) | options)

    async def main() -> None:
        await make_call(call, shape, policy, work, backend().now)

    in_colour(colour, lambda: None, main)
    return call
