"""The shapes of a retried call, blocking and async: each calls a function with a policy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
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


SHAPES: dict[str, Shape] = {"decorator": decorated, "call": called, "run": ran, "loop": looped}
ASYNC_SHAPES: dict[str, AsyncShape] = {"decorator": adecorated, "call": acalled, "run": aran, "loop": alooped}
