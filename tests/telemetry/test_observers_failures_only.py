"""An observer of failures only costs a successful call nothing, and receives the failures of every path."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from redouble import Retry, RetryBudget, Worker, observe
from redouble._runtime.ambient import ambient
from redouble.types import Event, What
from tests.support.call_shapes import ASYNC_SHAPES, SHAPES, AsyncShape, AsyncWork, Shape, Work
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server
from tests.telemetry.test_observers import nobody_is_left_listening

pytestmark = pytest.mark.usefixtures(nobody_is_left_listening.__name__)

TROUBLE: tuple[What, ...] = ("failure", "retry", "give_up")


def streamed(policy: Retry, work: Work) -> object:
    @policy
    def items() -> Iterator[object]:
        yield work()

    [item] = items()
    return item


def opened(policy: Retry, work: Work) -> object:
    def items() -> Iterator[object]:
        yield work()

    [item] = policy.stream(items)
    return item


def entered(policy: Retry, work: Work) -> object:
    @contextmanager
    def manager() -> Generator[object]:
        yield work()

    with policy.enter(manager) as value:
        return value


async def astreamed(policy: Retry, work: AsyncWork) -> object:
    @policy
    async def items() -> AsyncIterator[object]:
        yield await work()

    [item] = [item async for item in items()]
    return item


async def aopened(policy: Retry, work: AsyncWork) -> object:
    async def items() -> AsyncIterator[object]:
        yield await work()

    [item] = [item async for item in policy.stream(items)]
    return item


async def aentered(policy: Retry, work: AsyncWork) -> object:
    @asynccontextmanager
    async def manager() -> AsyncGenerator[object]:
        yield await work()

    async with policy.enter(manager) as value:
        return value


EVERY_SHAPE: dict[str, Shape] = {**SHAPES, "generator": streamed, "stream": opened, "enter": entered}
EVERY_ASYNC_SHAPE: dict[str, AsyncShape] = {
    **ASYNC_SHAPES,
    "generator": astreamed,
    "stream": aopened,
    "enter": aentered,
}


class Flaky:
    """An operation that fails ``times`` times, and then returns 7."""

    def __init__(self, times: int) -> None:
        self.left = times

    def work(self) -> int:
        self.left -= 1
        if self.left >= 0:
            raise Boom
        return 7

    async def awork(self) -> int:
        return self.work()


def made(colour: str, shape: str, policy: Retry, times: int) -> Any:
    """Make a call that fails ``times`` times; return its result or its error."""
    flaky = Flaky(times)

    def blocking() -> object:
        return EVERY_SHAPE[shape](policy, flaky.work)

    async def waiting() -> object:
        return await EVERY_ASYNC_SHAPE[shape](policy, flaky.awork)

    try:
        return in_colour(colour, blocking, waiting)
    except Boom as error:
        return error


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "budget": lambda: {"budget": RetryBudget(per_second=100)},
    "request": lambda: {"budget": RetryBudget(per_second=100, credit="request")},
    "hook": lambda: {"on_success": print_nothing},
}


def print_nothing(event: Event) -> None: ...


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_trouble_is_heard_of_in_every_shape(colour: str, shape: str, options: str) -> None:
    heard: list[str] = []
    policy = Retry(on=Boom, attempts=2, backoff=[0], name="x", **OPTIONS[options]())
    with observe(lambda event: heard.append(f"{event.what} {event.name} {event.attempt}"), only=TROUBLE):
        assert not ambient.active
        assert made(colour, shape, policy, 0) == 7
        assert heard == []
        assert made(colour, shape, policy, 1) == 7
        assert heard == ["failure x 1", "retry x 1"]
        assert isinstance(made(colour, shape, policy, 2), Boom)
    assert heard[2:] == ["failure x 1", "retry x 1", "failure x 2", "give_up x 2"]


ALL = ("before_attempt", "failure", "retry", "before_attempt", "success")
HEARD = pytest.mark.parametrize("only", [TROUBLE, ()])


@HEARD
@pytest.mark.parametrize("shape", ["decorator", "call", "run"])
def test_what_is_heard_of_on_workers(shape: str, only: tuple[What, ...]) -> None:
    heard: list[str] = []
    policy = Retry(on=Boom, attempts=2, backoff=[0], attempt_timeout=60, worker=Worker())
    with observe(lambda event: heard.append(event.what), only=only):
        assert made("sync", shape, policy, 1) == 7
        assert isinstance(made("sync", shape, policy, 2), Boom)
    told = [*ALL, "before_attempt", "failure", "retry", "before_attempt", "failure", "give_up"]
    assert heard == [what for what in told if not only or what in only]


@HEARD
@pytest.mark.parametrize("colour", ASYNC)
def test_what_is_heard_of_under_limits_and_of_blocking_code(colour: str, only: tuple[What, ...]) -> None:
    heard: list[str] = []
    policy = Retry(on=Boom, attempts=2, backoff=[0], attempt_timeout=60)
    with observe(lambda event: heard.append(event.what), only=only):
        assert made(colour, "decorator", policy, 1) == 7
        flaky = Flaky(1)
        assert in_colour(colour, int, lambda: policy.acall(flaky.work)) == 7
    assert heard == [what for what in ALL * 2 if not only or what in only]


@pytest.mark.parametrize("name", CLIENTS)
def test_trouble_is_heard_of_in_http_clients(name: str) -> None:
    heard: list[str] = []
    with (
        Server() as server,
        client(name, Retry(attempts=2, backoff=[0] * 3, name="http")) as http,
        observe(lambda event: heard.append(event.what), only=TROUBLE),
    ):
        assert http.request("GET", server.url("200")).status == 200
        assert heard == []
        assert http.request("GET", server.url("503,200")).status == 200
        assert http.request("GET", server.url("503,503")).status == 503
    assert heard == ["failure", "retry", "failure", "retry", "failure", "give_up"]
