"""An inner policy in another task, thread or process, in a block or in a stream: the outer one finds it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from multiprocessing.pool import ThreadPool
from threading import Thread
from typing import Any

import pytest
import trio

from redouble import Outcome, Retry, Worker, report
from tests.support.fakes import ASYNC, Boom, Ledger, in_colour, options
from tests.support.workers.functions import PROCESS, retry_in_vain

Calls = list[int]


def policy_of(**given: Any) -> Retry:
    return Retry(**options(on=(Boom, ExceptionGroup), attempts=3, backoff=[0, 0], nested="stop") | given)


class Nest:
    """An operation that always fails under an inner policy: with a new error, or always the same one."""

    def __init__(self, *, one: bool = False) -> None:
        self.calls, self.error = 0, Boom("the one") if one else None

    def fails(self) -> None:
        self.calls += 1
        raise self.error or Boom(f"{self.calls}")

    async def afails(self) -> None:
        self.fails()

    def inner(self) -> None:
        policy_of().call(self.fails)

    async def ainner(self) -> None:
        await policy_of().call(self.afails)

    def in_a_block(self) -> None:
        for attempt in policy_of():
            with attempt:
                self.fails()

    async def in_an_async_block(self) -> None:
        async for attempt in policy_of():
            with attempt:
                self.fails()

    def in_a_stream(self) -> None:
        def opened() -> Iterator[int]:
            self.fails()
            yield 1

        assert list(policy_of().stream(opened)) == []

    async def in_an_async_stream(self) -> None:
        async def opened() -> AsyncIterator[int]:
            self.fails()
            yield 1

        assert [item async for item in policy_of().stream(opened)] == []


def thread_with_result(nest: Nest) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(nest.inner).result()


def thread_with_context(nest: Nest) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, nest.inner).result()


def thread_with_map(nest: Nest) -> None:
    with ThreadPoolExecutor(1) as pool:
        list(pool.map(policy_of().call, [nest.fails]))


def pool_of_threads(nest: Nest) -> None:
    with ThreadPool(1) as pool:
        pool.apply(nest.inner)


def loop_in_a_thread(nest: Nest) -> None:
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(nest.ainner(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def thread_with_a_list(nest: Nest) -> None:
    errors: list[Exception] = []

    def work() -> None:
        errors.extend(error for error in [policy_of().run(nest.fails).error] if error is not None)

    thread = Thread(target=work)
    thread.start()
    thread.join()
    raise errors[0]


def generator(nest: Nest) -> None:
    def items() -> Iterator[None]:
        nest.inner()
        yield

    list(items())


def builtin_functions(nest: Nest) -> None:
    list(map(lambda call: call(), [nest.inner]))  # noqa: C417  the frame of a C function is in between


def outcome(nest: Nest) -> None:
    policy_of().run(nest.fails).unwrap()


def raised_elsewhere(nest: Nest) -> None:
    def caught() -> BaseException:
        try:
            nest.inner()
        except Boom as error:
            return error
        raise AssertionError

    raise caught()


def chained(nest: Nest) -> None:
    try:
        nest.inner()
    except Boom as error:
        raise Boom("translated") from error


def block(nest: Nest) -> None:
    nest.in_a_block()


def stream(nest: Nest) -> None:
    nest.in_a_stream()


def worker(nest: Nest) -> None:
    policy_of(attempts=1, nested="allow", worker=Worker()).call(nest.inner)


SAME_THREAD = [generator, builtin_functions, outcome, raised_elsewhere, chained, block, stream]
OTHER_THREAD = [
    thread_with_result,
    thread_with_context,
    thread_with_map,
    pool_of_threads,
    loop_in_a_thread,
    worker,
]


def seen(outcome: Outcome[Any], nest: Nest) -> tuple[str | None, int]:
    return outcome.report.reason, nest.calls


@pytest.mark.parametrize("how", [*SAME_THREAD, *OTHER_THREAD])
def test_blocking_code(how: Callable[[Nest], None]) -> None:
    nest = Nest()
    assert seen(policy_of().run(how, nest), nest) == ("nested", 3)


@pytest.mark.parametrize("how", SAME_THREAD)
def test_one_instance_on_one_call_stack(how: Callable[[Nest], None]) -> None:
    """The instance is the same in all attempts, which alone would mean nothing."""
    nest = Nest(one=True)
    assert seen(policy_of().run(how, nest), nest) == ("nested", 3)


@pytest.mark.parametrize("how", [*SAME_THREAD, *OTHER_THREAD])
@pytest.mark.parametrize("outer", ["block", "worker"])
def test_outer_policies_of_other_shapes(outer: str, how: Callable[[Nest], None]) -> None:
    nest = Nest()
    with pytest.raises(Boom) as caught:
        if outer == "block":
            for attempt in policy_of():
                with attempt:
                    how(nest)
        else:
            policy_of(worker=Worker()).call(how, nest)
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, nest.calls) == ("nested", 3)


@pytest.mark.parametrize("one", [False, True])
def test_blocks_in_one_function(*, one: bool) -> None:
    nest = Nest(one=one)
    with pytest.raises(Boom) as caught:
        for attempt in policy_of():
            with attempt:
                for inner in policy_of():
                    with inner:
                        nest.fails()
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, nest.calls) == ("nested", 3)


def test_async_blocks_in_one_function() -> None:
    nest = Nest(one=True)

    async def main() -> None:
        async for attempt in policy_of():
            with attempt:
                async for inner in policy_of():
                    with inner:
                        nest.fails()

    with pytest.raises(Boom):
        asyncio.run(main())
    assert nest.calls == 3


@pytest.mark.parametrize("one", [False, True])
def test_an_error_that_code_takes_from_a_list_is_missed(*, one: bool) -> None:
    """It may be of a call beside this one: nothing in its path tells that this attempt has made the call."""
    nest = Nest(one=one)
    assert seen(policy_of().run(thread_with_a_list, nest), nest) == ("attempts", 9)


async def awaited(nest: Nest) -> None:
    await nest.ainner()


async def async_block(nest: Nest) -> None:
    await nest.in_an_async_block()


async def async_stream(nest: Nest) -> None:
    await nest.in_an_async_stream()


async def on_a_worker(nest: Nest) -> None:
    await policy_of(attempts=1, nested="allow").acall(nest.inner)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("how", [awaited, async_block, async_stream, on_a_worker])
def test_async_code(colour: str, how: Callable[[Nest], Awaitable[None]]) -> None:
    nest = Nest()

    async def main() -> Outcome[None]:
        async def attempt() -> None:
            await how(nest)

        return await policy_of().run(attempt)

    assert seen(in_colour(colour, lambda: None, main), nest) == ("nested", 3)


async def task(nest: Nest) -> None:
    await asyncio.create_task(nest.ainner())


async def gathered(nest: Nest) -> None:
    await asyncio.gather(nest.ainner(), asyncio.sleep(0))


async def waited(nest: Nest) -> None:
    await asyncio.wait_for(nest.ainner(), 20)


async def shielded(nest: Nest) -> None:
    await asyncio.shield(nest.ainner())


async def task_group(nest: Nest) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(nest.ainner())


async def to_thread(nest: Nest) -> None:
    await asyncio.to_thread(nest.inner)


async def executor(nest: Nest) -> None:
    await asyncio.get_running_loop().run_in_executor(None, nest.inner)


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("how", [task, gathered, waited, shielded, task_group, to_thread, executor])
def test_tasks_and_threads_of_asyncio(how: Callable[[Nest], Awaitable[None]], *, one: bool) -> None:
    """The event loop hands the error over, also if it is always the same one."""
    nest = Nest(one=one)

    async def main() -> Outcome[None]:
        async def attempt() -> None:
            await how(nest)

        return await policy_of().run(attempt)

    assert seen(asyncio.run(main()), nest) == ("nested", 3)


async def nursery(nest: Nest) -> None:
    async with trio.open_nursery() as group:
        group.start_soon(nest.ainner)


async def trio_thread(nest: Nest) -> None:
    await trio.to_thread.run_sync(nest.inner)


@pytest.mark.parametrize("how", [nursery, trio_thread])
def test_tasks_and_threads_of_trio(how: Callable[[Nest], Awaitable[None]]) -> None:
    nest = Nest()

    async def main() -> Outcome[None]:
        async def attempt() -> None:
            await how(nest)

        return await policy_of().run(attempt)

    assert seen(trio.run(main), nest) == ("nested", 3)


@pytest.mark.parametrize("how", [*SAME_THREAD, *OTHER_THREAD, thread_with_a_list])
def test_an_exhausted_budget(how: Callable[[Nest], None]) -> None:
    """The inner policy has made one attempt only."""
    nest, empty = Nest(), policy_of(budget=Ledger(retries=0))
    assert seen(policy_of(nested="allow").run(how, ExhaustedNest(nest, empty)), nest) == ("nested", 1)


class ExhaustedNest(Nest):
    """A nest whose inner policy has no budget left, whatever shape it has."""

    def __init__(self, nest: Nest, policy: Retry) -> None:
        self.nest, self.policy = nest, policy

    def fails(self) -> None:
        self.policy.call(self.nest.fails)


def test_an_inner_policy_in_a_worker_process(tmp_path: Any) -> None:
    log = tmp_path / "calls"
    outcome = policy_of(on=Exception, worker=PROCESS).run(retry_in_vain, str(log))
    assert outcome.report.reason == "nested"
    assert len(log.read_text()) == 3
