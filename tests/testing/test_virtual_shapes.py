"""Virtual time in every shape of a call: the result, the delays and the time at the end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import redouble
from redouble import Hints, Retry, report
from redouble.testing import Script, VirtualClock, fail, ok
from tests.support.call_shapes import (
    ASYNC_CLOSING_SHAPES,
    CLOSING_SHAPES,
)
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


IMPORTED = Retry(backoff=[3600, 7200.5, 1800], give_up_after=None)
ROWS: dict[str, tuple[Retry, list[Any], str, list[float], float]] = {
    # a policy, a script, the result, the delays, and the time at the end
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


def end_of(error: Exception) -> str:
    reported = report(error)
    assert reported is not None
    return f"{reported.reason} after {reported.elapsed:g}"


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("place", PLACES)
def test_every_shape_waits_in_virtual_time(place: str, row: str) -> None:
    policy, steps, expected, delays, end = ROWS[row]

    def blocking(clock: VirtualClock) -> None:
        for name, shape in CLOSING_SHAPES.items():
            began = clock.now()
            clock.delays.clear()
            try:
                result: object = shape(policy, Script(*steps))
            except Exception as error:
                result = end_of(error)
            assert (name, result, clock.delays) == (name, expected, delays)
            assert clock.now() - began == end

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in ASYNC_CLOSING_SHAPES.items():
            began = clock.now()
            clock.delays.clear()
            try:
                result: object = await shape(policy, Script(*steps).aio)
            except Exception as error:
                result = end_of(error)
            assert (name, result, clock.delays) == (name, expected, delays)
            assert clock.now() - began == end

    at(place, blocking, waiting)


scripted: list[Script] = []


@redouble.retry(backoff=[3600], give_up_after=None)
def fetch(url: str) -> object:
    return scripted[0](url)


@redouble.retry(backoff=[3600], give_up_after=None)
async def afetch(url: str) -> object:
    return await scripted[0].aio(url)


@pytest.mark.parametrize("place", PLACES)
def test_virtual_time_applies_to_functions_decorated_at_import(place: str) -> None:
    def blocking(clock: VirtualClock) -> tuple[object, ...]:
        return fetch("here"), clock.delays, clock.now()

    async def waiting(clock: VirtualClock) -> tuple[object, ...]:
        return await afetch("here"), clock.delays, clock.now()

    scripted[:] = [Script("fail", ok("done"))]
    assert at(place, blocking, waiting) == ("done", [3600], 3600)
    assert scripted[0].calls == [(("here",), {})] * 2
