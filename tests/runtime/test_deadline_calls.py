"""Policies under a deadline, in every colour and shape: nothing begins after it, and what can be cut is."""

from __future__ import annotations

from typing import Any

import pytest

import redouble
from redouble import Reason, Report, Retry, Worker, deadline, errors, remaining, report
from redouble._runtime.backend import backend
from redouble.testing import Script, ScriptedFailure, VirtualClock, fail, ok, virtual_time
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour
from tests.support.stuck_operations import IN_A_WHILE, SOON, stuck
from tests.support.virtual_time import PLACES, at, unwaiting
from tests.testing.test_virtual_shapes import AEVERY, EVERY

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)

HOUR = 3600.0
CUTTING = [place for place in PLACES if place.startswith(("asyncio", "trio"))]  # where all time is virtual


async def for_ever() -> None:
    await backend().sleep(1e6)


def told(error: BaseException) -> Report:
    said = report(error)
    assert said is not None
    return said


def check(name: str, script: Script, error: BaseException, calls: int) -> None:
    said = told(error)
    assert (name, len(script.calls), said.attempts) == (name, calls, calls)
    assert (said.reason, said.limit) == (Reason.timeout, "deadline")


@pytest.mark.parametrize("place", PLACES)
def test_nothing_begins_that_could_not_begin_before_it(place: str) -> None:
    """A delay that would end after it is not started either: the last error is raised at once."""
    policy = Retry(attempts=9, backoff=[4] * 9, give_up_after=None)

    def blocking(clock: VirtualClock) -> None:
        for name, shape in EVERY.items():
            script, began = Script(*["fail"] * 9), clock.now()
            with pytest.raises(ScriptedFailure) as caught, deadline(10):
                shape(policy, script)
            check(name, script, caught.value, 3)
            assert clock.now() - began == 8

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in AEVERY.items():
            script, began = Script(*["fail"] * 9), clock.now()
            with pytest.raises(ScriptedFailure) as caught, deadline(10):
                await shape(policy, script.aio)
            check(name, script, caught.value, 3)
            assert clock.now() - began == 8

    at(place, blocking, waiting)


@pytest.mark.parametrize("spent", [0, 5])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_called_after_it(place: str, spent: float) -> None:
    def blocking(clock: VirtualClock) -> None:
        for name, shape in EVERY.items():
            script = Script()
            with deadline(spent):
                clock.advance(spent)
                with pytest.raises(errors.DeadlineExceeded) as caught:
                    shape(Retry(), script)
            check(name, script, caught.value, 0)

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in AEVERY.items():
            script = Script()
            with deadline(spent):
                clock.advance(spent)
                with pytest.raises(errors.DeadlineExceeded) as caught:
                    await shape(Retry(), script.aio)
            check(name, script, caught.value, 0)

    at(place, blocking, waiting)


@pytest.mark.parametrize("steps", [["fail"], []], ids=["after a failure", "at once"])
@pytest.mark.parametrize("place", CUTTING)
def test_what_is_async_is_cut_by_it(place: str, steps: list[Any]) -> None:
    policy = Retry(backoff=[1] * 3)

    async def waiting(clock: VirtualClock) -> None:
        for name, shape in AEVERY.items():
            script, began = Script(*steps, ok(takes=HOUR)), clock.now()
            with pytest.raises(errors.DeadlineExceeded) as caught, deadline(10):
                await shape(policy, script.aio)
            check(name, script, caught.value, len(steps) + 1)
            assert clock.now() - began == 10
            cause = caught.value.__cause__
            assert cause is caught.value.last
            assert type(cause) is (ScriptedFailure if steps else type(None))

    at(place, lambda _: None, waiting)


@pytest.mark.parametrize("shape", AEVERY)
@pytest.mark.parametrize("colour", ASYNC)
def test_what_is_async_is_cut_in_real_time(colour: str, shape: str) -> None:
    async def waiting() -> None:
        with deadline(SOON):
            await AEVERY[shape](Retry(), for_ever)

    with pytest.raises(errors.DeadlineExceeded) as caught:
        in_colour(colour, lambda: None, waiting)
    assert told(caught.value).limit == "deadline"


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
@pytest.mark.parametrize("place", CUTTING)
def test_the_shortest_limit_is_the_one_reported(
    place: str, options: dict[str, Any], seconds: float, limit: str
) -> None:
    async def waiting(clock: VirtualClock) -> None:
        with deadline(seconds):
            outcome = await Retry(**options).run(Script(ok(takes=HOUR)).aio)
        assert (outcome.report.limit, clock.now()) == (limit, 5)

    at(place, lambda _: None, waiting)


def test_plain_blocking_code_is_never_cut() -> None:
    """A blocking call cannot be interrupted; so a late success is a success."""
    with virtual_time(), deadline(1):
        assert Retry().call(Script(ok(3, takes=2))) == 3
        assert remaining() == 0
        with pytest.raises(errors.DeadlineExceeded):
            Retry().call(Script())


def test_a_policy_with_a_clock_of_its_own(colour: str) -> None:
    """By its clock the deadline is as far away as by the real one."""
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
    assert told(caught.value).limit == "deadline"


def test_blocking_code_on_a_worker_is_cut_by_it() -> None:
    with stuck() as operation, deadline(IN_A_WHILE), pytest.raises(errors.DeadlineExceeded) as caught:
        Retry(worker=Worker(grace=0)).call(operation)
    assert (told(caught.value).limit, told(caught.value).workers_left) == ("deadline", 1)


@pytest.mark.parametrize("colour", ASYNC)
def test_blocking_code_called_from_async_code_is_cut_by_it(colour: str) -> None:
    with stuck() as operation:

        async def waiting() -> None:
            with deadline(IN_A_WHILE):
                await Retry(worker=Worker(grace=0)).acall(operation)

        with pytest.raises(errors.DeadlineExceeded) as caught:
            in_colour(colour, lambda: None, waiting)
    assert (told(caught.value).limit, told(caught.value).workers_left) == ("deadline", 1)


def test_observers_learn_whose_limit_it_was() -> None:
    events: list[Any] = []
    with virtual_time(), redouble.observe(events.append), deadline(3), pytest.raises(ScriptedFailure):
        Retry(backoff=[2] * 9).call(Script(fail(), fail()))
    assert [(event.what, event.limit) for event in events if event.limit] == [("give_up", "deadline")]
