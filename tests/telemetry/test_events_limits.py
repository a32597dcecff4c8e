"""Events of a `Timeout`: emitted once, with the limit that was reached and the time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from redouble import Retry, Timeout, Worker, cancelled, deadline, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock, recorded
from redouble.types import Event
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import NO_GRACE, StuckAttempt, until_cancelled
from tests.support.fakes import in_colour
from tests.support.virtual_time import HOUR, LOOP_PLACES, in_virtual_time

pytestmark = pytest.mark.usefixtures("no_observers_left")


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


def timeouts(events: list[Event]) -> list[tuple[str, str | None, float]]:
    return [(event.name, event.limit, event.elapsed) for event in events if event.what == "timeout"]


@pytest.mark.parametrize("place", LOOP_PLACES)
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
        in_virtual_time(place, main)
    assert timeouts(events) == [("items" if way == "stream" else "slow", limit, took)]
    [event] = events
    assert event.error is seen[0]
    assert (event.attempt, event.attempt_elapsed, event.by, event.labels) == (0, took, "timeout", {})


def test_a_worker_that_still_runs_emits_the_reached_limit() -> None:
    """The error is that the worker still runs, the event is that the limit was reached."""
    with StuckAttempt() as stuck, recorded() as events:
        with pytest.raises(errors.WorkerStillRunning) as caught:
            Timeout(SOON, worker=NO_GRACE)(stuck.__call__)()
        assert stuck.called(1)
    [event] = events
    assert event.error is caught.value.__cause__
    assert (event.what, event.limit, event.elapsed) == ("timeout", "attempt", SOON)


def test_a_worker_that_stops_when_cancelled_emits_the_reached_limit() -> None:
    with recorded() as events, pytest.raises(errors.AttemptTimeout) as caught:
        Timeout(SOON, worker=Worker(grace=60))(until_cancelled)()
    assert timeouts(events) == [("until_cancelled", "attempt", SOON)]
    assert events[0].error is caught.value


def test_a_deadline_in_the_past_is_emitted() -> None:
    with recorded() as events, deadline(0), pytest.raises(errors.AttemptTimeout):
        Timeout(9, worker=NO_GRACE)(until_cancelled)()
    assert timeouts(events) == [("until_cancelled", "deadline", 0)]


def test_a_limit_that_is_not_reached_emits_nothing() -> None:
    with recorded() as events:
        assert Timeout(60, worker=NO_GRACE)(cancelled)() is False
        in_colour("asyncio", int, Timeout(60)(quick))
        in_colour("trio", int, Timeout(60)(quick))
    assert not events


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_each_attempt_of_a_policy_emits_its_own_timeout(place: str) -> None:
    """The limits of a policy are in the policy's own events: as the limit that cancelled its attempt."""

    async def main(_: VirtualClock) -> None:
        for policy in (
            Retry(on=TimeoutError, attempts=2, backoff=[0]) | Timeout(2),
            Retry(on=TimeoutError, attempts=2, backoff=[0], attempt_timeout=2),
        ):
            with recorded() as events, pytest.raises(errors.AttemptTimeout):
                await policy.call(slow)
            emitted.append(" ".join(event.what for event in events))

    emitted: list[str] = []
    in_virtual_time(place, main)
    assert emitted == [
        "before_attempt timeout failure retry before_attempt timeout failure give_up",
        "before_attempt failure retry before_attempt failure give_up",
    ]
