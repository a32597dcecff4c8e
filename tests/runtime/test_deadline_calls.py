"""Policies under a deadline, in every colour and shape: nothing begins after it; async code is cancelled."""

from __future__ import annotations

from typing import Any

import pytest

import redouble
from redouble import Reason, Report, Retry, Worker, deadline, errors, remaining, report
from redouble._runtime.backend import backend
from redouble.testing import Script, ScriptedFailure, VirtualClock, fail, ok, virtual_time
from tests.support.call_shapes import ASYNC_CLOSING_SHAPES, CLOSING_SHAPES
from tests.support.drivers.stuck_operations import IN_A_WHILE, SOON, stuck
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

HOUR = 3600.0
VIRTUAL = [place for place in PLACES if place.startswith(("asyncio", "trio"))]  # where all time is virtual


async def for_ever() -> None:
    await backend().sleep(1e6)


def report_of(error: BaseException) -> Report:
    reported = report(error)
    assert reported is not None
    return reported


def check(name: str, script: Script, error: BaseException, calls: int) -> None:
    reported = report_of(error)
    assert (name, len(script.calls), reported.attempts) == (name, calls, calls)
    assert (reported.reason, reported.limit) == (Reason.timeout, "deadline")


@pytest.mark.parametrize("place", PLACES)
def test_no_delay_begins_that_would_end_after_the_deadline(place: str) -> None:
    """The last error is raised at once instead."""
    policy = Retry(attempts=9, backoff=[4] * 9, give_up_after=None)

    def blocking(clock: VirtualClock) -> None:
        for name, shape in CLOSING_SHAPES.items():
            script, began = Script(*["fail"] * 9), clock.now()
            with pytest.raises(ScriptedFailure) as caught, deadline(10):
                shape(policy, script)
            check(name, script, caught.value, 3)
            assert clock.now() - began == 8

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in ASYNC_CLOSING_SHAPES.items():
            script, began = Script(*["fail"] * 9), clock.now()
            with pytest.raises(ScriptedFailure) as caught, deadline(10):
                await shape(policy, script.aio)
            check(name, script, caught.value, 3)
            assert clock.now() - began == 8

    at(place, blocking, waiting)


@pytest.mark.parametrize("spent", [0, 5])
@pytest.mark.parametrize("place", PLACES)
def test_no_attempt_begins_after_the_deadline(place: str, spent: float) -> None:
    def blocking(clock: VirtualClock) -> None:
        for name, shape in CLOSING_SHAPES.items():
            script = Script()
            with deadline(spent):
                clock.advance(spent)
                with pytest.raises(errors.DeadlineExceeded) as caught:
                    shape(Retry(), script)
            check(name, script, caught.value, 0)

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in ASYNC_CLOSING_SHAPES.items():
            script = Script()
            with deadline(spent):
                clock.advance(spent)
                with pytest.raises(errors.DeadlineExceeded) as caught:
                    await shape(Retry(), script.aio)
            check(name, script, caught.value, 0)

    at(place, blocking, waiting)


@pytest.mark.parametrize("steps", [["fail"], []], ids=["after a failure", "at once"])
@pytest.mark.parametrize("place", VIRTUAL)
def test_async_code_is_cancelled_at_the_deadline(place: str, steps: list[Any]) -> None:
    policy = Retry(backoff=[1] * 3)

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in ASYNC_CLOSING_SHAPES.items():
            script, began = Script(*steps, ok(takes=HOUR)), clock.now()
            with pytest.raises(errors.DeadlineExceeded) as caught, deadline(10):
                await shape(policy, script.aio)
            check(name, script, caught.value, len(steps) + 1)
            assert clock.now() - began == 10
            cause = caught.value.__cause__
            assert cause is caught.value.last
            assert type(cause) is (ScriptedFailure if steps else type(None))

    at(place, lambda _: None, waiting)


@pytest.mark.parametrize("shape", ASYNC_CLOSING_SHAPES)
@pytest.mark.parametrize("colour", ASYNC)
def test_async_code_is_cancelled_in_real_time(colour: str, shape: str) -> None:
    async def waiting() -> None:
        with deadline(SOON):
            await ASYNC_CLOSING_SHAPES[shape](Retry(), for_ever)

    with pytest.raises(errors.DeadlineExceeded) as caught:
        in_colour(colour, lambda: None, waiting)
    assert report_of(caught.value).limit == "deadline"


@pytest.mark.parametrize(
    ("options", "seconds", "limit"),
    [
        ({"timeout": 5}, 9, "total"),
        ({"timeout": 9}, 5, "deadline"),
        ({"timeout": 5}, 5, "total"),
        ({"attempt_timeout": 5, "attempts": 1}, 9, "attempt"),
        ({"attempt_timeout": 5, "attempts": 1}, 5, "attempt"),
        ({"attempt_timeout": 9, "attempts": 1}, 5, "deadline"),
        ({"work_timeout": 5}, 5, "work"),
        ({"work_timeout": 9}, 5, "deadline"),
        ({"give_up_after": 1}, 5, "deadline"),
    ],
)
@pytest.mark.parametrize("place", VIRTUAL)
def test_the_shortest_limit_is_reported(
    place: str, options: dict[str, Any], seconds: float, limit: str
) -> None:
    async def waiting(clock: VirtualClock) -> None:
        with deadline(seconds):
            outcome = await Retry(**options).run(Script(ok(takes=HOUR)).aio)
        assert (outcome.report.limit, clock.now()) == (limit, 5)

    at(place, lambda _: None, waiting)


def test_blocking_code_is_never_interrupted() -> None:
    """It cannot be; so a late success is a success."""
    with virtual_time(), deadline(1):
        assert Retry().call(Script(ok(3, takes=2))) == 3
        assert remaining() == 0
        with pytest.raises(errors.DeadlineExceeded):
            Retry().call(Script())


def test_a_deadline_applies_to_a_policy_with_its_own_clock(colour: str) -> None:
    """The deadline is as far away by this clock as by the real one."""
    clock, calls = Virtual(), list[float]()

    def fetch() -> None:
        calls.append(clock.time)
        clock.time += 2 * HOUR
        raise Boom

    async def afetch() -> None:
        fetch()

    policy = Retry(on=Boom, backoff=[0] * 9, give_up_after=None, clock=clock)

    def blocking() -> None:
        with deadline(3 * HOUR):
            policy.call(fetch)

    async def waiting() -> None:
        with deadline(3 * HOUR):
            await policy.call(afetch)

    with pytest.raises(Boom) as caught:
        in_colour(colour, blocking, waiting)
    assert calls == [0, 2 * HOUR]
    assert report_of(caught.value).limit == "deadline"


def test_a_worker_is_abandoned_at_the_deadline() -> None:
    with stuck() as operation, deadline(IN_A_WHILE), pytest.raises(errors.DeadlineExceeded) as caught:
        Retry(worker=Worker(grace=0)).call(operation)
    assert (report_of(caught.value).limit, report_of(caught.value).workers_left) == ("deadline", 1)


@pytest.mark.parametrize("colour", ASYNC)
def test_a_worker_of_async_code_is_abandoned_at_the_deadline(colour: str) -> None:
    with stuck() as operation:

        async def waiting() -> None:
            with deadline(IN_A_WHILE):
                await Retry(worker=Worker(grace=0)).acall(operation)

        with pytest.raises(errors.DeadlineExceeded) as caught:
            in_colour(colour, lambda: None, waiting)
    assert (report_of(caught.value).limit, report_of(caught.value).workers_left) == ("deadline", 1)


def test_events_name_the_deadline_as_the_limit() -> None:
    events: list[Any] = []
    with virtual_time(), redouble.observe(events.append), deadline(3), pytest.raises(ScriptedFailure):
        Retry(backoff=[2] * 9).call(Script(fail(), fail()))
    assert [(event.what, event.limit) for event in events if event.limit] == [("give_up", "deadline")]
