"""Tasks, threads and workers that start inside a deadline inherit it, until its block is exited."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

import pytest

from redouble import SYSTEM, Reason, Retry, Timeout, Worker, cancelled, deadline, errors, remaining, report
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.drivers.stuck_operations import SOON, stuck
from tests.support.fakes import ASYNC, in_colour
from tests.support.runtime.tasks import together
from tests.support.virtual_time import at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

HOUR = 3600.0
PLACES = ["asyncio around", "asyncio inside", "trio around", "trio inside"]


# ------------------------------------------------------------------------------------ tasks


@pytest.mark.parametrize("place", PLACES)
def test_tasks_started_inside_inherit_the_deadline(place: str) -> None:
    seen: list[object] = []

    async def child() -> None:
        await SYSTEM.asleep(4)
        seen.append(remaining())
        with deadline(2):
            seen.append(remaining())
        with pytest.raises(errors.DeadlineExceeded) as caught:
            await Retry().call(Script(ok(takes=HOUR)).aio)
        reported = report(caught.value)
        seen.append(reported and reported.limit)

    async def waiting(clock: VirtualClock) -> float:
        with deadline(10):
            await together(place, child, child)
        return clock.now()

    assert at(place, lambda _: None, waiting) == 10
    assert seen == [6, 2, 6, 2, "deadline", "deadline"]


def test_a_task_that_outlives_the_block_has_no_deadline() -> None:
    async def child(left: asyncio.Event) -> list[object]:
        seen: list[object] = [remaining()]
        await left.wait()
        seen.append(remaining())
        await asyncio.sleep(HOUR)
        return [*seen, remaining(), await Retry().call(Script(ok(3)).aio)]

    async def main() -> list[object]:
        left = asyncio.Event()
        with virtual_time():
            with deadline(10):
                task = asyncio.create_task(child(left))
                await asyncio.sleep(0)
            left.set()
            return await task

    assert asyncio.run(main()) == [10, None, None, 3]


def test_a_task_started_before_does_not_inherit_the_deadline() -> None:
    async def child(inside: asyncio.Event) -> object:
        await inside.wait()
        return remaining()

    async def main() -> object:
        inside = asyncio.Event()
        task = asyncio.create_task(child(inside))
        with deadline(10):
            inside.set()
            return await task

    assert asyncio.run(main()) is None


# ---------------------------------------------------------------------- threads and workers


def test_a_thread_inherits_the_deadline_by_a_copied_context_only() -> None:
    with virtual_time(), deadline(10), ThreadPoolExecutor(1) as pool:
        assert pool.submit(remaining).result() is None
        assert pool.submit(copy_context().run, remaining).result() == 10


@pytest.mark.parametrize(
    ("seconds", "options", "expected"),
    [
        (10, {}, 10),
        (10, {"attempt_timeout": 60}, 10),
        (10, {"attempt_timeout": 5}, 5),
        (10, {"timeout": 5}, 5),
        (10, {"give_up_after": 5}, 5),
        (None, {"attempt_timeout": 5}, 5),
        (None, {"timeout": 5, "attempt_timeout": 8}, 5),
        (None, {"work_timeout": 4}, 4),
        (None, {}, None),
    ],
)
def test_on_a_worker_the_limit_of_the_attempt_is_a_deadline(
    seconds: float | None, options: dict[str, Any], expected: float | None
) -> None:
    policy = Retry(worker=Worker(), **options)
    with virtual_time():
        if seconds is None:
            assert policy.call(remaining) == expected
        else:
            with deadline(seconds):
                assert policy.call(remaining) == expected
        assert remaining() is None


@pytest.mark.parametrize("colour", ASYNC)
def test_a_worker_of_async_code_inherits_the_deadline(colour: str) -> None:
    async def waiting() -> float:
        with deadline(HOUR):
            left = await Retry(attempt_timeout=2 * HOUR).acall(remaining)
            assert left is not None
            return left

    assert HOUR / 2 < in_colour(colour, lambda: None, waiting) <= HOUR


def test_a_context_that_outlives_its_attempt_has_no_deadline() -> None:
    kept: list[Context] = []

    def operation() -> bool:
        kept.append(copy_context())
        return cancelled()

    with virtual_time() as clock:
        assert Retry(attempt_timeout=5, worker=Worker()).call(operation) is False
        clock.advance(60)
        assert (kept[0].run(remaining), kept[0].run(cancelled)) == (None, False)


def begin_late(begun: list[str]) -> None:
    """Try to begin calls under a policy and under a timeout."""

    @Retry()
    def decorated() -> None:
        begun.append("decorated")

    @Timeout(HOUR, worker=Worker())
    def limited() -> None:
        begun.append("limited")

    def looped() -> None:
        for attempt in Retry():
            with attempt:
                begun.append("looped")

    for fn in (decorated, limited, looped):
        with pytest.raises(TimeoutError):
            fn()


@pytest.mark.parametrize("how", ["limit", "cancellation"])
def test_nothing_begins_on_an_abandoned_worker(how: str) -> None:
    begun, wrong, over = list[str](), list[BaseException](), threading.Event()

    with stuck() as until_released:

        def operation() -> None:
            until_released()
            try:
                assert (cancelled(), remaining()) == (True, 0)
                begin_late(begun)
            except BaseException as error:
                wrong.append(error)
            over.set()

        async def cancel() -> None:
            task = asyncio.create_task(Retry(worker=Worker(grace=0)).acall(operation))
            await asyncio.to_thread(until_released.started.acquire)
            until_released.started.release()
            task.cancel()
            await asyncio.wait([task])

        if how == "limit":
            with pytest.raises(errors.AttemptTimeout):
                Retry(attempts=1, attempt_timeout=SOON, worker=Worker(grace=0)).call(operation)
        else:
            asyncio.run(cancel())
    over.wait()
    assert (begun, wrong) == ([], [])


def test_async_code_on_a_worker_is_cancelled_by_the_limit_of_its_attempt() -> None:
    """The cancelled worker ends, so that none is left."""

    async def slow() -> None:
        await asyncio.Event().wait()

    def operation() -> None:
        asyncio.run(Timeout(HOUR)(slow)())

    outcome = Retry(attempts=1, attempt_timeout=SOON, worker=Worker(grace=HOUR)).run(operation)
    assert isinstance(outcome.error, errors.AttemptTimeout)
    assert (outcome.report.reason, outcome.report.workers_left) == (Reason.attempts, 0)
