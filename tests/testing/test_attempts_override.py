"""`attempts` and `no_retries`: the number of attempts of every policy, in this context only."""

from __future__ import annotations

import asyncio
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
from tests.support.call_shapes import ASYNC_CLOSING_SHAPES, CLOSING_SHAPES
from tests.support.fakes import ASYNC, in_colour
from tests.support.thread_switching import frequent_switches
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


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


# -------------------------------------------------------------------------- attempts


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("most", [1, 3, 7])
def test_every_shape_makes_the_given_number_of_attempts(colour: str, policy: str, most: int) -> None:
    def check(shape: str, script: Script, error: Exception) -> None:
        reported = report(error)
        assert reported is not None
        assert (shape, len(script.calls), reported.attempts) == (shape, most, most)
        assert reported.reason is Reason.attempts

    def blocking() -> None:
        for name, shape in CLOSING_SHAPES.items():
            script = Script(*[ConnectionError] * 20)
            with attempts(most), pytest.raises(ConnectionError) as caught:
                shape(POLICIES[policy], script)
            check(name, script, caught.value)

    async def waiting() -> None:
        for name, shape in ASYNC_CLOSING_SHAPES.items():
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


def test_attempts_apply_to_functions_decorated_at_import() -> None:
    for most in (1, 2, 9):
        scripted[:] = [Script(*[ConnectionError] * 9)]
        with attempts(most), pytest.raises(ConnectionError):
            imported()
        assert len(scripted[0].calls) == most


def test_only_the_number_of_attempts_changes() -> None:
    """Limits, the ends of backoffs and errors that are not retried stay as they are."""
    with attempts(9), virtual_time() as clock:
        for policy, script, reason in [
            (Retry(backoff=[1]), Script("fail", "fail"), "backoff_ended"),
            (Retry(backoff=[20] * 9, give_up_after=30), Script("fail", "fail"), "timeout"),
            (Retry(backoff=[1] * 9), Script("fail", ValueError), "stopped"),
        ]:
            with pytest.raises(Exception) as caught:  # noqa: PT011  of several kinds
                policy.call(script)
            reported = report(caught.value)
            assert reported is not None
            assert (reported.reason, reported.attempts) == (reason, 2)
        assert Retry(attempts=1, backoff=[1]).call(Script("fail", ok("done"))) == "done"
        assert clock.delays == [1, 20, 1, 1]


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3, 4])])
def test_attempts_of_a_resumed_stream_are_counted_from_each_item(most: int, expected: list[int]) -> None:
    """The break counts as the first attempt; every second attempt here fails before its first item."""
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


# ----------------------------------------------------------------------------- contexts


def test_the_innermost_block_counts() -> None:
    with attempts(3):
        assert made() == 3
        with no_retries():
            assert made() == 1
            with attempts(7):
                assert made() == 7
            assert made() == 1
        assert made() == 3
    assert made() == 4


def test_other_threads_are_not_affected() -> None:
    with no_retries(), ThreadPoolExecutor(1) as pool:
        assert (pool.submit(made).result(), made()) == (4, 1)


def test_each_thread_has_its_own_number_of_attempts() -> None:

    def work(most: int) -> set[int]:
        seen: set[int] = set()
        for _ in range(50):
            with attempts(most):
                seen.add(made())
        return seen

    with frequent_switches(), ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(1, 9))) == [{most} for most in range(1, 9)]


@pytest.mark.parametrize("colour", ASYNC)
def test_tasks_inherit_the_number_and_may_have_their_own(colour: str) -> None:
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

    with recorded():  # so that calls look for overrides
        assert asyncio.run(main()) == 4


def test_a_block_may_be_exited_in_another_context() -> None:
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


def test_the_override_ends_with_an_error() -> None:
    with pytest.raises(ZeroDivisionError), no_retries():
        _ = 1 / 0
    assert made() == 4


BAD: list[Any] = [0, -1, True, 1.0, "3", None]


@pytest.mark.parametrize("most", BAD)
def test_invalid_numbers_are_refused(most: Any) -> None:
    error = ValueError if most in (0, -1) else TypeError
    with (
        pytest.raises(error, match=rf"^attempts={most!r}: write a whole number, 1 for no retries$"),
        attempts(most),
    ):
        pass
    assert not ambient.active
