"""The shapes of a retried call, blocking and async: each calls a function with a policy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias

from redouble import Retry

Work: TypeAlias = Callable[[], object]
AsyncWork: TypeAlias = Callable[[], Awaitable[object]]
Shape: TypeAlias = Callable[[Retry, Work], object]
AsyncShape: TypeAlias = Callable[[Retry, AsyncWork], Awaitable[object]]


def decorated(policy: Retry, work: Work) -> object:
    @policy
    def retried() -> object:
        return work()

    return retried()


def called(policy: Retry, work: Work) -> object:
    return policy.call(work)


def ran(policy: Retry, work: Work) -> object:
    return policy.run(work).unwrap()


def looped(policy: Retry, work: Work) -> object:
    for attempt in policy:
        with attempt:
            return work()
    raise AssertionError("the loop ended without a success and without an error")


async def adecorated(policy: Retry, work: AsyncWork) -> object:
    @policy
    async def retried() -> object:
        return await work()

    return await retried()


async def acalled(policy: Retry, work: AsyncWork) -> object:
    async def coloured() -> object:
        return await work()

    return await policy.call(coloured)


async def aran(policy: Retry, work: AsyncWork) -> object:
    async def coloured() -> object:
        return await work()

    return (await policy.run(coloured)).unwrap()


async def alooped(policy: Retry, work: AsyncWork) -> object:
    async for attempt in policy:
        with attempt:
            return await work()
    raise AssertionError("the loop ended without a success and without an error")


def generated(policy: Retry, work: Work) -> object:
    @policy
    def items() -> Iterator[object]:
        yield work()

    [item] = items()
    return item


def streamed(policy: Retry, work: Work) -> object:
    def items() -> Iterator[object]:
        yield work()

    [item] = policy.stream(items)
    return item


def closed(policy: Retry, work: Work) -> object:
    def items() -> Iterator[object]:
        yield work()

    with policy.stream(items) as stream:
        return next(stream)


def entered(policy: Retry, work: Work) -> object:
    @contextmanager
    def manager() -> Generator[object]:
        yield work()

    with policy.enter(manager) as value:
        return value


async def agenerated(policy: Retry, work: AsyncWork) -> object:
    @policy
    async def items() -> AsyncIterator[object]:
        yield await work()

    [item] = [item async for item in items()]
    return item


async def astreamed(policy: Retry, work: AsyncWork) -> object:
    async def items() -> AsyncIterator[object]:
        yield await work()

    [item] = [item async for item in policy.stream(items)]
    return item


async def aclosed(policy: Retry, work: AsyncWork) -> object:
    async def items() -> AsyncIterator[object]:
        yield await work()

    async with policy.stream(items) as stream:
        return await anext(stream)


async def aentered(policy: Retry, work: AsyncWork) -> object:
    @asynccontextmanager
    async def manager() -> AsyncGenerator[object]:
        yield await work()

    async with policy.enter(manager) as value:
        return value


SHAPES: dict[str, Shape] = {"decorator": decorated, "call": called, "run": ran, "loop": looped}
ASYNC_SHAPES: dict[str, AsyncShape] = {"decorator": adecorated, "call": acalled, "run": aran, "loop": alooped}

# The same, with streams and context managers too; a stream is read to its end, or closed after one item.
EVERY_SHAPE: dict[str, Shape] = SHAPES | {"generator": generated, "stream": streamed, "enter": entered}
EVERY_ASYNC_SHAPE: dict[str, AsyncShape] = ASYNC_SHAPES | {
    "generator": agenerated,
    "stream": astreamed,
    "enter": aentered,
}
CLOSING_SHAPES: dict[str, Shape] = EVERY_SHAPE | {"stream": closed}
ASYNC_CLOSING_SHAPES: dict[str, AsyncShape] = EVERY_ASYNC_SHAPE | {"stream": aclosed}
