"""Virtual time in every shape a call can have: what comes out, which delays, and how late it is then."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

import redouble
from redouble import Hints, Retry, report
from redouble.testing import Script, VirtualClock, fail, ok
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape, AsyncWork, Shape, Work
from tests.support.virtual_time import PLACES, at, unwaiting

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


def streamed(policy: Retry, work: Work) -> object:
    def items() -> Iterator[object]:
        yield work()

    with policy.stream(items) as stream:
        return next(stream)


def generated(policy: Retry, work: Work) -> object:
    @policy
    def items() -> Iterator[object]:
        yield work()

    (item,) = items()
    return item


def entered(policy: Retry, work: Work) -> object:
    @contextmanager
    def manager() -> Generator[object]:
        yield work()

    with policy.enter(manager) as value:
        return value


async def astreamed(policy: Retry, work: AsyncWork) -> object:
    async def items() -> AsyncIterator[object]:
        yield await work()

    async with policy.stream(items) as stream:
        return await anext(stream)


async def agenerated(policy: Retry, work: AsyncWork) -> object:
    @policy
    async def items() -> AsyncIterator[object]:
        yield await work()

    (item,) = [item async for item in items()]
    return item


async def aentered(policy: Retry, work: AsyncWork) -> object:
    @asynccontextmanager
    async def manager() -> AsyncGenerator[object]:
        yield await work()

    async with policy.enter(manager) as value:
        return value


EVERY: dict[str, Shape] = SHAPES | {"stream": streamed, "generator": generated, "enter": entered}
AEVERY: dict[str, AsyncShape] = ASYNC_SHAPES | {
    "stream": astreamed,
    "generator": agenerated,
    "enter": aentered,
}

IMPORTED = Retry(backoff=[3600, 7200.5, 1800], give_up_after=None)
ROWS: dict[str, tuple[Retry, list[Any], str, list[float], float]] = {
    # a policy, a script, what comes of it, the delays, and how late it is then
    "at once": (IMPORTED, [ok("done")], "done", [], 0),
    "two hours": (IMPORTED, ["fail", "fail", ok("done")], "done", [3600, 7200.5], 10800.5),
    "all": (IMPORTED, ["fail"] * 4, "attempts after 12600.5", [3600, 7200.5, 1800], 12600.5),
    "slow": (IMPORTED, [fail(takes=2), ok("done", takes=0.5)], "done", [3600], 3602.5),
    "stopped": (IMPORTED, [fail(ValueError, takes=timedelta(minutes=1))], "stopped after 60", [], 60),
    "a limit": (
        Retry(backoff=[20] * 3, give_up_after=100),
        [fail(takes=60), fail(takes=30)],
        "timeout after 110",
        [20],
        110,
    ),
    "a hint": (Retry(on=lambda _: 5000.0, hints=Hints(spread=0), give_up_after=None),
               ["fail", ok("done")], "done", [5000], 5000),
}  # fmt: skip


def told(error: Exception) -> str:
    said = report(error)
    assert said is not None
    return f"{said.reason} after {said.elapsed:g}"


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("place", PLACES)
def test_every_shape_waits_in_virtual_time(place: str, row: str) -> None:
    policy, steps, expected, delays, late = ROWS[row]

    def blocking(clock: VirtualClock) -> None:
        for name, shape in EVERY.items():
            began = clock.now()
            clock.delays.clear()
            try:
                came: object = shape(policy, Script(*steps))
            except Exception as error:
                came = told(error)
            assert (name, came, clock.delays) == (name, expected, delays)
            assert clock.now() - began == late

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in AEVERY.items():
            began = clock.now()
            clock.delays.clear()
            try:
                came: object = await shape(policy, Script(*steps).aio)
            except Exception as error:
                came = told(error)
            assert (name, came, clock.delays) == (name, expected, delays)
            assert clock.now() - began == late

    at(place, blocking, waiting)


scripted: list[Script] = []


@redouble.retry(backoff=[3600], give_up_after=None)
def fetch(url: str) -> object:
    return scripted[0](url)


@redouble.retry(backoff=[3600], give_up_after=None)
async def afetch(url: str) -> object:
    return await scripted[0].aio(url)


@pytest.mark.parametrize("place", PLACES)
def test_what_was_decorated_at_import_obeys_it(place: str) -> None:
    def blocking(clock: VirtualClock) -> tuple[object, ...]:
        return fetch("here"), clock.delays, clock.now()

    async def waiting(clock: VirtualClock) -> tuple[object, ...]:
        return await afetch("here"), clock.delays, clock.now()

    scripted[:] = [Script("fail", ok("done"))]
    assert at(place, blocking, waiting) == ("done", [3600], 3600)
    assert scripted[0].calls == [(("here",), {})] * 2
