"""`current`: which call, and which of its attempts, the running code is part of."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import trio

from redouble import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout, Worker, current, remaining
from redouble.testing import VirtualClock, attempts
from redouble.types import CurrentCall
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, EVERY_SHAPE
from tests.support.fakes import Boom
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour, no_real_waits
from tests.support.workers import functions as in_process

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

EVERY = pytest.mark.parametrize("shape", EVERY_SHAPE)


def accept(_: object) -> bool:
    return True


def ignore(_: object) -> None:
    pass


def names(call: CurrentCall | None) -> tuple[str, int, int | None] | None:
    return None if call is None else (call.name, call.attempt, call.attempts)


@VIRTUAL_COLOURS
@EVERY
@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 10},
        {"give_up_after": 10},
        {"timeout": 10, "until": accept},
        {"timeout": 10, "on_failure": ignore},
        {"work_timeout": 60, "timeout": 10},
    ],
)
def test_each_attempt_knows_its_number(colour: str, shape: str, options: dict[str, Any]) -> None:
    if "until" in options and shape in ("loop", "generator", "stream", "enter"):
        options = {"timeout": 10}  # these have no result
    policy = Retry(on=Boom, attempts=3, backoff=[2, 2], name="fetch", labels={"team": "a"}, **options)
    seen: list[CurrentCall | None] = []

    def work() -> str:
        seen.append(current())
        if len(seen) < 3:
            raise Boom
        return "done"

    async def coroutine() -> str:
        return work()

    def blocking(clock: VirtualClock) -> object:
        return EVERY_SHAPE[shape](policy, work), current()

    async def waiting(clock: VirtualClock) -> object:
        return await EVERY_ASYNC_SHAPE[shape](policy, coroutine), current()

    assert in_virtual_colour(colour, blocking, waiting) == ("done", None)
    labels = {"team": "a"}
    assert seen == [CurrentCall(n, 3, left, "fetch", labels) for n, left in ((1, 10), (2, 8), (3, 6))]


@VIRTUAL_COLOURS
@EVERY
def test_without_limits(colour: str, shape: str) -> None:
    policy = Retry(attempts=None)
    seen: list[CurrentCall | None] = []

    async def coroutine() -> None:
        seen.append(current())

    def blocking(clock: VirtualClock) -> object:
        return EVERY_SHAPE[shape](policy, lambda: seen.append(current()))

    async def waiting(clock: VirtualClock) -> object:
        return await EVERY_ASYNC_SHAPE[shape](policy, coroutine)

    in_virtual_colour(colour, blocking, waiting)
    [call] = seen
    assert call is not None
    assert (call.attempt, call.attempts, call.remaining, dict(call.labels)) == (1, None, None, {})
    assert call.name == ("block" if shape == "loop" else call.name)
    assert call.name


def test_it_can_be_pickled() -> None:
    call = Retry(labels={"team": "a"}).call(current)
    assert pickle.loads(pickle.dumps(call)) == call


def test_outside_there_is_none() -> None:
    assert current() is None
    for layer in (Bulkhead(1), CircuitBreaker(), Fallback(value=3, on=Boom), Timeout(5, worker=Worker())):
        assert layer.call(current) is None


def test_the_innermost_call_is_the_current_one() -> None:
    outer, inner = Retry(name="outer"), Retry(name="inner", attempts=2)

    def work() -> list[object]:
        return [names(inner.call(current)), names(current())]

    assert outer.call(work) == [("inner", 1, 2), ("outer", 1, 4)]

    def loops() -> Iterator[object]:
        for attempt in outer:
            with attempt:
                for nested in inner:
                    with nested:
                        yield names(current())
                yield names(current())
        yield current()

    assert list(loops()) == [("inner", 1, 2), ("outer", 1, 4), None]


def test_the_override_of_a_test_counts() -> None:
    with attempts(2):
        call = Retry(attempts=9).call(current)
    assert call is not None
    assert call.attempts == 2


@pytest.mark.parametrize("options", [{}, {"attempt_timeout": 60}, {"timeout": 60, "until": bool}])
def test_on_a_worker(options: dict[str, Any]) -> None:
    seen: list[object] = []

    def work() -> str:
        seen.append(names(current()))
        if len(seen) % 2:
            raise Boom
        return "done"

    policy = Retry(on=Boom, backoff=[0], worker=Worker(), name="fetch", **options)
    assert policy(work)() == policy.call(work) == asyncio.run(policy.acall(work)) == "done"
    assert seen == [("fetch", 1, 4), ("fetch", 2, 4)] * 3


@pytest.mark.parametrize("colour", ["sync", "asyncio", "trio"])
def test_in_a_worker_process(colour: str) -> None:
    """Also the limits that cannot interrupt it."""
    policy = Retry(name="fetch", labels={"team": "a"}, give_up_after=3600, worker=in_process.PROCESS)
    if colour == "sync":
        call, left = policy.call(in_process.current_call)
        assert Timeout(60, in_process.PROCESS).call(in_process.current_call)[0] is None
    else:
        runner: Any = {"asyncio": asyncio_run, "trio": trio.run}[colour]
        call, left = runner(policy.acall, in_process.current_call)
    assert call is not None
    assert call == CurrentCall(1, 4, call.remaining, "fetch", {"team": "a"})
    assert call.remaining is not None
    assert left is not None
    assert 3000 < left <= call.remaining <= 3600


def asyncio_run(fn: Any, *args: Any) -> Any:
    return asyncio.run(fn(*args))


def test_a_timeout_on_a_worker_inside_a_call() -> None:
    policy = Retry(name="fetch") | Timeout(60, worker=Worker())
    assert names(policy.call(current)) == ("fetch", 1, 4)


def test_in_every_item_of_a_stream() -> None:
    """Limits end with the first item, and the attempt does not."""
    policy = Retry(timeout=5, name="feed", on=Boom, backoff=[0])

    def items() -> Iterator[object]:
        yield names(current()), remaining("none") == "none"
        yield names(current()), remaining("none") == "none"

    async def aitems() -> AsyncIterator[object]:
        for item in items():
            yield item

    async def read() -> list[object]:
        decorated = [item async for item in policy(aitems)()]
        return decorated + [item async for item in policy.stream(aitems)]

    one = ("feed", 1, 4)
    expected = [(one, False), (one, True)]
    assert list(policy(items)()) == list(policy.stream(items)) == expected
    assert asyncio.run(read()) == expected * 2


def test_a_stream_that_is_resumed() -> None:
    def items() -> Iterator[object]:
        yield names(current())
        raise Boom

    def rest(last: object) -> Iterator[object]:
        yield names(current())

    stream = Retry(on=Boom, backoff=[0], name="feed").stream(items, resume=rest)
    assert list(stream) == [("feed", 1, 4), ("feed", 2, 4)]


def test_async_generators_of_other_layers_have_no_call_of_their_own() -> None:
    async def items() -> AsyncIterator[object]:
        yield names(current())

    async def read() -> list[object]:
        pipelines = (Timeout(5), Bulkhead(1), Retry(name="fetch") | Timeout(5))
        return [item for layer in pipelines for item in [item async for item in layer(items)()]]

    assert asyncio.run(read()) == [None, None, ("fetch", 1, 4)]
