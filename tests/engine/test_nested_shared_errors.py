"""One exception instance that several calls get: none of them is nested in another, whatever clocks read."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import trio

from redouble import SYSTEM, Clock, Outcome, Retry, Worker
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour, options
from tests.support.thread_switching import switching

__all__ = ["switching"]


def policy_of(**given: Any) -> Retry:
    return Retry(**options(on=Boom, attempts=3, backoff=[0, 0], nested="stop") | given)


def ended(outcome: Outcome[Any]) -> tuple[str | None, int]:
    return outcome.report.reason, outcome.report.attempts


THREE = ("attempts", 3)


def raising(errors: list[Exception]) -> Iterator[Exception]:
    """Yield the errors of one call after the other: the last one of a call is the first of the next."""
    while True:
        yield from errors
        errors.reverse()


@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("clock", [SYSTEM, Virtual()])
def test_a_mock_that_raises_one_instance_is_retried_by_every_call(
    colour: str, clock: Clock, *, alternating: bool
) -> None:
    """Also on a clock that stands still: the times of all calls are equal then."""
    policy = policy_of(clock=clock)
    boom = Boom("the one")
    effect: Any = (
        raising([boom, Boom("2"), Boom("3")])
        if alternating and (colour not in ASYNC or clock is SYSTEM)
        else boom
    )
    mock, amock = Mock(side_effect=effect), AsyncMock(side_effect=effect)

    def fetch() -> None:
        mock()

    async def afetch() -> None:
        await amock()

    async def calls() -> list[Outcome[None]]:
        return [await policy.run(afetch) for _ in range(4)]

    outcomes = in_colour(colour, lambda: [policy.run(fetch) for _ in range(4)], calls)
    assert [ended(outcome) for outcome in outcomes] == [THREE] * 4
    assert mock.call_count + amock.call_count == 12


def test_a_mock_is_retried_by_blocks_of_one_function() -> None:
    clock, mock, attempts = Virtual(), Mock(side_effect=Boom("the one")), list[int]()
    first, second = policy_of(clock=clock), policy_of(clock=clock)
    with pytest.raises(Boom):
        for attempt in first:
            with attempt:
                mock()
    with pytest.raises(Boom):
        for another in second:
            with another:
                attempts.append(another.number)
                mock()
    assert attempts == [1, 2, 3]


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_threads_that_share_an_instance_do_not_stop_each_other(attempts: int) -> None:
    """The second call begins during the first attempt of the first one, and gives up during it."""
    boom, started, finished = Boom("a connection that has failed"), Event(), Event()
    policy, other = policy_of(), policy_of(attempts=attempts)

    def slow() -> None:
        started.set()
        assert finished.wait(20)
        raise boom

    def fails() -> None:
        raise boom

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(policy.run, slow)
        assert started.wait(20)
        assert ended(other.run(fails)) == ("attempts", attempts)
        finished.set()
        assert ended(first.result()) == THREE


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize("attempts", [1, 3])
def test_tasks_that_share_an_instance_do_not_stop_each_other(colour: str, attempts: int) -> None:
    boom, slow_started = Boom("the one"), False
    policy, other = policy_of(), policy_of(attempts=attempts)

    async def fails() -> None:
        raise boom

    outcomes: dict[str, Outcome[None]] = {}

    async def main() -> None:
        nonlocal slow_started
        started, finished = (
            (trio.Event(), trio.Event()) if colour == "trio" else (asyncio.Event(), asyncio.Event())
        )

        async def slow() -> None:
            started.set()
            await finished.wait()
            raise boom

        async def first() -> None:
            outcomes["first"] = await policy.run(slow)

        async def second() -> None:
            await started.wait()
            outcomes["second"] = await other.run(fails)
            finished.set()

        if colour == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first)
                nursery.start_soon(second)
        else:
            await asyncio.gather(first(), second())

    in_colour(colour, lambda: None, main)
    assert (ended(outcomes["first"]), ended(outcomes["second"])) == (THREE, ("attempts", attempts))


def test_a_thread_that_fails_with_another_error_before_the_shared_one() -> None:
    """Its call begins during the attempt, has retried, and got the instance once: as a nested call would."""
    boom, started, finished = Boom("a connection that has failed"), Event(), Event()
    errors = iter([Boom("another"), boom])

    def slow() -> None:
        started.set()
        assert finished.wait(20)
        raise boom

    def fails() -> None:
        raise next(errors)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(policy_of().run, slow)
        assert started.wait(20)
        assert ended(policy_of(attempts=2).run(fails)) == ("attempts", 2)
        finished.set()
        assert ended(first.result()) == THREE


def test_a_task_that_fails_with_another_error_before_the_shared_one() -> None:
    boom, outcomes = Boom("a connection that has failed"), list[Outcome[None]]()
    errors = iter([Boom("another"), boom])

    async def fails() -> None:
        raise next(errors)

    async def main() -> None:
        finished = asyncio.Event()

        async def slow() -> None:
            await finished.wait()
            raise boom

        first = asyncio.create_task(policy_of().run(slow))
        await asyncio.sleep(0)
        outcomes.append(await policy_of(attempts=2).run(fails))
        finished.set()
        outcomes.append(await first)

    asyncio.run(main())
    assert [ended(outcome) for outcome in outcomes] == [("attempts", 2), THREE]


@pytest.mark.parametrize("worker", [None, Worker()])
def test_many_threads_that_share_an_instance(worker: Worker | None) -> None:
    boom, together = Boom("the one"), Barrier(4)
    policy = policy_of(worker=worker)

    def fails() -> None:
        together.wait(20)
        raise boom

    with ThreadPoolExecutor(4) as pool:
        outcomes = [future.result() for future in [pool.submit(policy.run, fails) for _ in range(4)]]
    assert [ended(outcome) for outcome in outcomes] == [THREE] * 4


@pytest.mark.stress
def test_threads_that_replace_the_traceback_of_their_error(switching: None) -> None:
    """Python keeps one traceback for each instance, whichever thread raises it."""
    boom, policy = Boom("the one"), policy_of()

    def fails() -> None:
        raise boom

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(policy.run, fails) for _ in range(5000)]
        assert {ended(call.result()) for call in calls} == {THREE}


def test_a_failed_future_that_two_calls_wait_for() -> None:
    future = Future[None]()
    future.set_exception(Boom("its task has failed"))
    policy, together = policy_of(), Barrier(2)

    def wait_for_it() -> None:
        together.wait(20)
        future.result()

    with ThreadPoolExecutor(2) as pool:
        outcomes = [call.result() for call in [pool.submit(policy.run, wait_for_it) for _ in range(2)]]
    assert [ended(outcome) for outcome in outcomes] == [THREE] * 2


def test_an_instance_that_an_earlier_attempt_swallowed() -> None:
    """On a clock that stands still, and on the same call stack."""
    clock, boom, calls = Virtual(), Boom("the one"), list[int]()
    inner = policy_of(attempts=2, backoff=[0], clock=clock)

    def fails() -> None:
        raise boom

    def operation() -> None:
        calls.append(1)
        if len(calls) == 1:
            assert not inner.run(fails).ok
            raise Boom
        raise boom

    assert ended(policy_of(clock=clock).run(operation)) == THREE


def test_an_error_of_another_process_that_is_raised_again() -> None:
    """Its report counts in the call that got it."""

    def fails() -> None:
        raise Boom

    mock, policy = Mock(side_effect=pickle.loads(pickle.dumps(policy_of().run(fails).error))), policy_of()

    def fetch() -> None:
        mock()

    assert ended(policy.run(fetch)) == ("nested", 1)
    assert ended(policy.run(fetch)) == THREE


# ---------------------------------------------------------------------- and yet they are found


def each(*, raise_one: bool) -> Callable[[], Exception]:
    one = Boom("the one")
    return lambda: one if raise_one else Boom()


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("colour", ASYNC)
def test_an_inner_policy_below_the_attempt_stops_the_outer_one(colour: str, *, one: bool) -> None:
    """On a clock that stands still, although the instance is always the same."""
    clock, error, calls = Virtual(), each(raise_one=one), list[int]()

    @policy_of(clock=clock)
    async def inner() -> None:
        calls.append(1)
        raise error()

    async def main() -> Outcome[None]:
        return await policy_of(clock=clock).run(inner)

    assert [ended(in_colour(colour, lambda: None, main)) for _ in range(2)] == [("nested", 1)] * 2
    assert len(calls) == 6
