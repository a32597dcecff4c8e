"""Retried generator functions and `contextlib`: the order of the decorators, and what is refused."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

import redouble
from redouble import Layer, Retry
from tests.support.drivers.context_managers import ConnectionFactory, entered
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.streams import OpenGate

POLICY = Retry(on=Boom, attempts=3, backoff=[0] * 9)


def items() -> Iterator[int]:
    yield 1


async def aitems() -> AsyncIterator[int]:
    yield 1


def test_a_policy_below_contextmanager_retries_entering(colour: str) -> None:
    """The body is not retried, and its error reaches the generator."""
    log: list[str] = []
    late = LookupError("in the body")

    @contextmanager
    @redouble.retry(on=Exception, backoff=[0] * 9)
    def connection() -> Generator[str]:
        log.append("connect")
        if len(log) < 3:
            raise Boom
        try:
            yield "connected"
        except LookupError:
            log.append("rollback")
            raise

    @asynccontextmanager
    @redouble.retry(on=Exception, backoff=[0] * 9)
    async def aconnection() -> AsyncGenerator[str]:
        log.append("connect")
        if len(log) < 3:
            raise Boom
        try:
            yield "connected"
        except LookupError:
            log.append("rollback")
            raise

    def blocking() -> None:
        with connection() as state:
            log.append(state)
            raise late

    async def waiting() -> None:
        async with aconnection() as state:
            log.append(state)
            raise late

    with pytest.raises(LookupError) as caught:
        in_colour(colour, blocking, waiting)
    assert caught.value is late
    assert log == ["connect"] * 3 + ["connected", "rollback"]


@contextmanager
def managed() -> Generator[None]:
    yield


@asynccontextmanager
async def amanaged() -> AsyncGenerator[None]:
    yield


@pytest.mark.parametrize("make", [managed, amanaged, functools.partial(managed), functools.partial(amanaged)])
@pytest.mark.parametrize("layer", [POLICY, OpenGate(), POLICY | OpenGate()])
def test_a_policy_above_contextmanager_is_refused(make: Callable[..., Any], layer: Layer) -> None:
    name = "amanaged" if "amanaged" in repr(make) else "managed"
    hint = (
        rf"makes a context manager.*Write `with policy\.enter\({name}\):`, or decorate below @contextmanager"
    )
    for verb, how in (("decorate", layer), ("call", layer.call)):
        with pytest.raises(TypeError, match=f"cannot {verb} {name}, which {hint}"):
            how(make)


def test_a_method_that_makes_a_context_manager_is_refused() -> None:
    class Pool:
        @contextmanager
        def connection(self) -> Generator[None]:
            yield

    with pytest.raises(TypeError, match=r"cannot call .*connection, which makes a context manager"):
        POLICY.call(Pool().connection)


def test_until_is_refused_for_generator_functions(colour: str) -> None:
    policy = Retry(until=bool)
    for fn in (items, aitems):
        for how in (policy, policy.call):
            with pytest.raises(TypeError, match=r"until= judges a result, and a?items has none"):
                how(fn)


def test_a_layer_without_streams_refuses_generator_functions() -> None:
    for fn in (items, aitems):
        with pytest.raises(
            TypeError, match=r"Layer cannot wrap a?items, which is an? (async )?generator function"
        ):
            Layer()(fn)


def test_enter_retries_what_contextlib_makes(colour: str) -> None:
    """Most context managers are functions decorated by `contextmanager`."""
    factory, fails = ConnectionFactory(), [Boom(), Boom()]

    @contextmanager
    def connection(host: str) -> Generator[str]:
        if fails:
            raise fails.pop()
        yield host

    @asynccontextmanager
    async def aconnection(host: str) -> AsyncGenerator[str]:
        if fails:
            raise fails.pop()
        yield host

    seen: list[str] = []
    make: Any = aconnection if colour in ASYNC else connection
    entered(colour, factory.policy.enter(make, "db"), seen.append)
    assert seen == ["db"]
    assert factory.clock.waits == [1, 2]
