"""Switches for tests: how many attempts every policy makes, in this context and in no other."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
import trio

import redouble
from redouble import Reason, Retry, report
from redouble._runtime.ambient import ambient
from redouble.testing import Script, attempts, no_retries, ok, recorded, virtual_time
from tests.support.fakes import ASYNC, in_colour
from tests.support.virtual_time import unwaiting
from tests.testing.test_virtual_shapes import AEVERY, EVERY

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


POLICIES = {
    "four": Retry(backoff=[0] * 20),
    "one": Retry(attempts=1, backoff=[0] * 20),
    "ten": Retry(attempts=10, backoff=[0] * 20),
    "no limit": Retry(attempts=None, backoff=[0] * 20, give_up_after=60),
}


def made(policy: Retry = POLICIES["four"]) -> int:
    """Return the number of attempts that a policy makes at a call that always fails."""
    script = Script(*[ConnectionError] * 20)
    with pytest.raises(ConnectionError):
        policy.call(script)
    return len(script.calls)


# ------------------------------------------------------------------------------ what it does


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("most", [1, 3, 7])
def test_every_shape_makes_as_many_attempts(colour: str, policy: str, most: int) -> None:
    def check(shape: str, script: Script, error: Exception) -> None:
        said = report(error)
        assert said is not None
        assert (shape, len(script.calls), said.attempts) == (shape, most, most)
        assert said.reason is Reason.attempts

    def blocking() -> None:
        for name, shape in EVERY.items():
            script = Script(*[ConnectionError] * 20)
            with attempts(most), pytest.raises(ConnectionError) as caught:
                shape(POLICIES[policy], script)
            check(name, script, caught.value)

    async def waiting() -> None:
        for name, shape in AEVERY.items():
            script = Script(*[ConnectionError] * 20)
            with attempts(most), pytest.raises(ConnectionError) as caught:
                await shape(POLICIES[policy], script.aio)
            check(name, script, caught.value)

    in_colour(colour, blocking, waiting)


def test_no_retries_is_one_attempt() -> None:
    with no_retries():
        assert [made(policy) for policy in POLICIES.values()] == [1] * 4
    assert [made(policy) for policy in (POLICIES["four"], POLICIES["one"])] == [4, 1]


scripted: list[Script] = []


@redouble.retry(backoff=[0] * 9)
def imported() -> object:
    return scripted[0]()


def test_what_was_decorated_at_import_obeys_it() -> None:
    for most in (1, 2, 9):
        scripted[:] = [Script(*[ConnectionError] * 9)]
        with attempts(most), pytest.raises(ConnectionError):
            imported()
        assert len(scripted[0].calls) == most


def test_only_the_number_changes() -> None:
    """Limits, backoffs that end and what is not worth retrying are as they were."""
    with attempts(9), virtual_time() as clock:
        for policy, script, reason in [
            (Retry(backoff=[1]), Script("fail", "fail"), "backoff_ended"),
            (Retry(backoff=[20] * 9, give_up_after=30), Script("fail", "fail"), "timeout"),
            (Retry(backoff=[1] * 9), Script("fail", ValueError), "stopped"),
        ]:
            with pytest.raises(Exception) as caught:  # noqa: PT011  of several kinds
                policy.call(script)
            said = report(caught.value)
            assert said is not None
            assert (said.reason, said.attempts) == (reason, 2)
        assert Retry(attempts=1, backoff=[1]).call(Script("fail", ok("done"))) == "done"
        assert clock.delays == [1, 20, 1, 1]


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3, 4])])
def test_a_stream_that_resumes_begins_anew_each_time(most: int, expected: list[int]) -> None:
    """The attempt that broke is the first one; every second one here does not even begin."""
    opened: list[int] = []

    def numbers(last: int = 0) -> Iterator[int]:
        opened.append(last)
        if last > 1 and opened.count(last) == 1:
            raise ConnectionError("not yet")
        yield last + 1
        if last == 3:
            raise ValueError("the end of the test")
        raise ConnectionError("broken")

    seen: list[int] = []
    with attempts(most), pytest.raises((ConnectionError, ValueError)):
        seen.extend(POLICIES["four"].stream(numbers, resume=numbers))
    assert seen == expected


# ------------------------------------------------------------------------------- where


def test_the_innermost_counts() -> None:
    with attempts(3):
        assert made() == 3
        with no_retries():
            assert made() == 1
            with attempts(7):
                assert made() == 7
            assert made() == 1
        assert made() == 3
    assert made() == 4


def test_other_threads_do_not_notice() -> None:
    with no_retries(), ThreadPoolExecutor(1) as pool:
        assert (pool.submit(made).result(), made()) == (4, 1)


def test_threads_have_their_own() -> None:
    interval = sys.getswitchinterval()

    def work(most: int) -> set[int]:
        seen: set[int] = set()
        for _ in range(50):
            with attempts(most):
                seen.add(made())
        return seen

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(work, range(1, 9))) == [{most} for most in range(1, 9)]
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("colour", ASYNC)
def test_tasks_inherit_it_and_keep_their_own(colour: str) -> None:
    seen: dict[str, int] = {}

    async def task(name: str) -> None:
        seen[name] = made()

    async def own() -> None:
        with attempts(6):
            await redouble.SYSTEM.asleep(0)
            seen["its own"] = made()
            await redouble.SYSTEM.asleep(0)

    async def main() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(own)
                with no_retries():
                    nursery.start_soon(task, "inherits")
                    await trio.lowlevel.checkpoint()
                    await trio.lowlevel.checkpoint()
                nursery.start_soon(task, "after")
        else:
            first = asyncio.ensure_future(own())
            with no_retries():
                await asyncio.create_task(task("inherits"))
            await asyncio.gather(first, task("after"))
        seen["here"] = made()

    in_colour(colour, lambda: None, main)
    assert seen == {"inherits": 1, "its own": 6, "after": 4, "here": 4}


def test_a_task_that_outlives_the_block_retries_again() -> None:
    async def main() -> int:
        over = asyncio.Event()

        async def later() -> int:
            await over.wait()
            return made()

        with no_retries():
            task = asyncio.ensure_future(later())
            await asyncio.sleep(0)
        over.set()
        return await task

    with recorded():  # so that calls look for switches
        assert asyncio.run(main()) == 4


def test_it_can_be_left_in_another_context() -> None:
    def fixture() -> Iterator[None]:
        with no_retries():
            yield

    one, other, generator = copy_context(), copy_context(), fixture()
    one.run(next, generator)
    assert (one.run(made), made()) == (1, 4)
    assert other.run(next, generator, "over") == "over"
    assert not ambient.active
    with recorded():
        assert one.run(made) == 4


def test_an_error_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError), no_retries():
        _ = 1 / 0
    assert made() == 4


BAD: list[Any] = [0, -1, True, 1.0, "3", None]


@pytest.mark.parametrize("most", BAD)
def test_a_number_that_makes_no_sense(most: Any) -> None:
    error = ValueError if most in (0, -1) else TypeError
    with (
        pytest.raises(error, match=rf"^attempts={most!r}: write a whole number, 1 for no retries$"),
        attempts(most),
    ):
        pass
    assert not ambient.active
