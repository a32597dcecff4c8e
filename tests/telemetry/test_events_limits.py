"""Events of a `Timeout`: that it was reached, once, by which limit, and after how long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from redouble import Retry, Timeout, Worker, cancelled, deadline, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock, recorded
from redouble.types import Event
from tests.drivers.test_attempt import AT_ONCE, SOON, Stuck, until_told
from tests.layers.timeout.test_timeout import HOUR, PLACES, in_time
from tests.support.fakes import in_colour
from tests.telemetry.test_observers import nobody_is_left_listening

pytestmark = pytest.mark.usefixtures(nobody_is_left_listening.__name__)


async def slow() -> None:
    await backend().sleep(HOUR)


async def quick() -> None: ...


async def items() -> AsyncIterator[int]:
    await slow()
    yield 1


async def first() -> None:
    async for _ in Timeout(2)(items)():
        return


WAYS: dict[str, Callable[[], Awaitable[object]]] = {
    "decorator": Timeout(2)(slow),
    "call": lambda: Timeout(2).call(slow),
    "stream": first,
    "pipeline": (Timeout(60) | Timeout(2))(slow),
}


def told(events: list[Event]) -> list[tuple[str, str | None, float]]:
    return [(event.name, event.limit, event.elapsed) for event in events if event.what == "timeout"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("left", "limit", "took"), [(HOUR, "attempt", 2), (1, "deadline", 1), (0, "deadline", 0)]
)
def test_a_reached_limit_is_emitted_once(place: str, way: str, left: float, limit: str, took: float) -> None:
    async def main(_: VirtualClock) -> None:
        with deadline(left), pytest.raises(errors.AttemptTimeout) as caught:
            await WAYS[way]()
        seen.append(caught.value)

    seen: list[Exception] = []
    with recorded() as events:
        in_time(place, main)
    assert told(events) == [("items" if way == "stream" else "slow", limit, took)]
    [event] = events
    assert event.error is seen[0]
    assert (event.attempt, event.attempt_elapsed, event.by, event.labels) == (0, took, None, {})


def test_a_worker_that_goes_on() -> None:
    """The error is that the worker still runs; the event is that the limit was reached."""
    with Stuck() as stuck, recorded() as events:
        with pytest.raises(errors.WorkerStillRunning) as caught:
            Timeout(SOON, worker=AT_ONCE)(stuck.__call__)()
        assert stuck.called(1)
    [event] = events
    assert event.error is caught.value.__cause__
    assert (event.what, event.limit, event.elapsed) == ("timeout", "attempt", SOON)


def test_a_worker_that_stops_when_cancelled() -> None:
    with recorded() as events, pytest.raises(errors.AttemptTimeout) as caught:
        Timeout(SOON, worker=Worker(grace=60))(until_told)()
    assert told(events) == [("until_told", "attempt", SOON)]
    assert events[0].error is caught.value


def test_before_it_has_begun() -> None:
    with recorded() as events, deadline(0), pytest.raises(errors.AttemptTimeout):
        Timeout(9, worker=AT_ONCE)(until_told)()
    assert told(events) == [("until_told", "deadline", 0)]


def test_a_limit_that_is_not_reached_emits_nothing() -> None:
    with recorded() as events:
        assert Timeout(60, worker=AT_ONCE)(cancelled)() is False
        in_colour("asyncio", int, Timeout(60)(quick))
        in_colour("trio", int, Timeout(60)(quick))
    assert not events


@pytest.mark.parametrize("place", PLACES)
def test_inside_a_policy_each_attempt_has_its_own(place: str) -> None:
    """The limits of a policy are in the policy's own events: as the limit that cancelled its attempt."""

    async def main(_: VirtualClock) -> None:
        for policy in (
            Retry(on=TimeoutError, attempts=2, backoff=[0]) | Timeout(2),
            Retry(on=TimeoutError, attempts=2, backoff=[0], attempt_timeout=2),
        ):
            with recorded() as events, pytest.raises(errors.AttemptTimeout):
                await policy.call(slow)
            heard.append(" ".join(event.what for event in events))

    heard: list[str] = []
    in_time(place, main)
    assert heard == [
        "before_attempt timeout failure retry before_attempt timeout failure give_up",
        "before_attempt failure retry before_attempt failure give_up",
    ]
