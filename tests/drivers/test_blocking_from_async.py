"""`Retry.acall`: blocking functions called from async code do not block the event loop."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Event, Thread, current_thread
from typing import Any

import pytest
import trio

from redouble import Retry, report
from tests.support.drivers.blocking_calls import failure, run_beside, turns_until
from tests.support.fakes import ASYNC, Boom, Panic, Virtual, run_async
from tests.support.workers.threads import VAR, idle

pytestmark = [pytest.mark.parametrize("colour", ASYNC), pytest.mark.usefixtures(idle.__name__)]


# -------------------------------------------------------------------------------- the call


def test_the_loop_runs_while_the_function_blocks(colour: str) -> None:
    """Otherwise the function would block for ever."""
    begun, go = Event(), Event()

    def work(word: str, *, times: int) -> str:
        begun.set()
        go.wait()
        return word * times

    async def main() -> None:
        seen: list[str] = []

        async def call() -> None:
            seen.append(await Retry().acall(work, "x", times=3))

        async def other() -> None:
            await turns_until(begun.is_set)
            go.set()
            await turns_until(lambda: bool(seen))

        await run_beside(colour, call, other)
        assert seen == ["xxx"]

    run_async(colour, main)


def test_everything_but_the_attempts_stays_in_the_loop(colour: str) -> None:
    attempts, others = set[Thread](), set[Thread]()
    clock = Virtual()

    def work() -> int:
        attempts.add(current_thread())
        if clock.waits != [1, 2]:
            raise Boom
        return len(clock.waits)

    def here(_: object) -> bool:
        others.add(current_thread())
        return True

    policy = Retry(on=here, until=here, on_retry=here, on_failure=here, backoff=[1, 2], clock=clock)
    assert run_async(colour, lambda: policy.acall(work)) == 2
    assert others == {current_thread()}
    assert len(attempts) == 1
    assert next(iter(attempts)).daemon
    assert current_thread() not in attempts


def test_a_result_that_until_rejects_is_retried(colour: str) -> None:
    results = ["pending", "pending", "done"]
    policy = Retry(until=lambda value: value == "done", backoff=[0, 0])
    assert run_async(colour, lambda: policy.acall(results.pop, 0)) == "done"


def test_the_function_runs_in_a_copy_of_the_callers_context(colour: str) -> None:
    def work() -> str:
        before = VAR.get()
        VAR.set("changed on the worker")
        return before

    async def main() -> tuple[str, str]:
        VAR.set("in the task")
        return await Retry().acall(work), VAR.get()

    assert run_async(colour, main) == ("in the task", "in the task")


def test_concurrent_calls_have_a_thread_each(colour: str) -> None:
    together, seen = threading.Barrier(20), set[Thread]()

    def work() -> None:
        together.wait()
        seen.add(current_thread())

    async def main() -> None:
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(Retry().acall, work)
        else:
            await asyncio.gather(*(Retry().acall(work) for _ in range(20)))

    run_async(colour, main)
    assert len(seen) == 20


# ---------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("kind", [Boom, Panic, GeneratorExit])
def test_errors_are_raised_with_the_traceback_of_the_worker(colour: str, kind: type[BaseException]) -> None:
    raised = kind("on the worker")

    def where_it_went_wrong() -> None:
        raise raised

    error = failure(colour, Retry(attempts=1), where_it_went_wrong)
    assert error is raised
    assert traceback.extract_tb(error.__traceback__)[-1].name == "where_it_went_wrong"
    assert (report(error) is None) is not isinstance(error, Exception)


def test_a_stop_iteration_cannot_leave_a_coroutine(colour: str) -> None:
    """Python turns it into a RuntimeError, and nothing hangs."""
    error = failure(colour, Retry(attempts=1), partial(next, iter(())))
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, StopIteration)


async def coroutine() -> None: ...


async def numbers() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


@contextmanager
def manager() -> Generator[None]:
    yield


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (coroutine, "acall is for blocking functions, .*a coroutine function.*policy.call"),
        (partial(coroutine), "acall is for blocking functions, .*a coroutine function.*policy.call"),
        (numbers, "acall is for blocking functions, .*an async generator function.*policy.call"),
        (generator, "acall is for blocking functions, .*a generator function.*policy.call"),
        (manager, "makes a context manager"),
        (None, "not callable"),
        (lambda: coroutine(), "returned something to await"),  # noqa: PLW0108  it is not a coroutine function
    ],
)
def test_acall_refuses_what_is_no_blocking_function(colour: str, fn: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        run_async(colour, lambda: Retry().acall(fn))
