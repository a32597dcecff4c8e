"""Streams and context managers keep their types, checked by two type checkers and at run time."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, assert_type

import pytest

import redouble
from redouble import Gate, Retry
from redouble.types import Stream

pytestmark = pytest.mark.one_python

POLICY = Retry(on=ConnectionError, attempts=2, backoff=[0])


class Door(Gate):
    def admit(self, now: float, /) -> None: ...


PIPELINE = Door() | POLICY


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main)


# --------------------------------------------------------------------------- functions


@redouble.retry
def lines(url: str, *, most: int = 2) -> Iterator[str]:
    yield from [url] * most


@redouble.retry(attempts=3)
async def alines(url: str, *, most: int = 2) -> AsyncIterator[str]:
    for _ in range(most):
        yield url


@POLICY
def dialogue(name: str) -> Generator[str, int, bytes]:
    got = yield name
    return b"x" * got


@PIPELINE
async def adialogue(name: str) -> AsyncGenerator[str, int]:
    got = yield name
    yield name * got


def test_functions() -> None:
    assert_type(lines("a"), Iterator[str])
    assert_type(list(lines("a", most=1)), list[str])
    assert_type(alines("a"), AsyncIterator[str])
    stream = dialogue("a")
    assert_type(stream, Generator[str, int, bytes])
    assert_type(next(stream), str)
    with pytest.raises(StopIteration) as end:
        stream.send(3)
    assert end.value.value == b"xxx"

    def around() -> Generator[str, int, int]:
        returned = yield from dialogue("a")
        assert_type(returned, bytes)
        return len(returned)

    assert next(around()) == "a"


def test_async_functions() -> None:
    async def main() -> None:
        assert_type([line async for line in alines("a")], list[str])
        stream = adialogue("a")
        assert_type(stream, AsyncGenerator[str, int])
        assert_type(await anext(stream), str)
        assert_type(await stream.asend(2), str)
        await stream.aclose()

    run(main())


def test_wrong_arguments_are_reported() -> None:
    with pytest.raises(TypeError):
        lines()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        alines("a", size=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_calling() -> None:
    async def main() -> None:
        assert_type([line async for line in POLICY.call(alines, "a", most=1)], list[str])

    assert_type(list(POLICY.call(lines, "a", most=1)), list[str])
    assert_type(list(PIPELINE.call(lines, "a")), list[str])
    assert_type(redouble.variant(lines, attempts=1)("a"), Iterator[str])
    run(main())


class Client:
    @POLICY
    def get(self, url: str) -> Iterator[str]:
        yield url

    @POLICY
    async def aget(self, url: str) -> AsyncIterator[str]:
        yield url

    @classmethod
    @POLICY
    def of_class(cls, url: str) -> Iterator[str]:
        yield url


def test_methods() -> None:
    async def main() -> None:
        assert_type([line async for line in Client().aget("a")], list[str])

    assert_type(Client().get("a"), Iterator[str])
    assert_type(Client.of_class("a"), Iterator[str])
    run(main())


# ------------------------------------------------------------------------------ stream


async def opens() -> AsyncIterator[int]:
    return anumbers()


async def anumbers(after: int = 0) -> AsyncIterator[int]:
    for number in range(after, 3):
        yield number


def numbers(after: int = 0) -> Iterator[int]:
    yield from range(after, 3)


def test_stream() -> None:
    assert_type(POLICY.stream(numbers), Stream[int])
    assert_type(POLICY.stream(lambda: [1, 2]), Stream[int])
    assert_type(POLICY.stream(numbers, resume=lambda last: numbers(last + 1)), Stream[int])
    assert_type(list(POLICY.stream(numbers)), list[int])
    assert_type(next(POLICY.stream(numbers)), int)
    with POLICY.stream(numbers, resume=numbers) as stream:
        assert_type(stream, Stream[int])
        for item in stream:
            assert_type(item, int)
        stream.close()


def test_async_stream() -> None:
    async def main() -> None:
        assert_type([item async for item in POLICY.stream(anumbers)], list[int])
        assert_type([item async for item in POLICY.stream(opens)], list[int])
        assert_type(await anext(POLICY.stream(anumbers)), int)
        async with POLICY.stream(opens, resume=anumbers) as stream:
            assert_type(stream, Stream[int])
            async for item in stream:
                assert_type(item, int)
            await stream.aclose()

    assert_type(POLICY.stream(anumbers), Stream[int])
    assert_type(POLICY.stream(opens), Stream[int])
    run(main())


def test_wrong_streams_are_reported() -> None:
    with pytest.raises(TypeError):
        POLICY.stream([1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        list(POLICY.stream(anumbers))

    def texts(last: str) -> Iterator[int]:
        yield len(last)

    POLICY.stream(numbers, resume=texts)  # type: ignore[misc]  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------------------- enter


class Connection:
    def __init__(self, host: str, *, port: int = 1) -> None:
        self.name = f"{host}:{port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class AsyncConnection:
    async def __aenter__(self) -> bytes:
        return b"connected"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


@contextmanager
def managed(text: str) -> Generator[str]:
    yield text


@asynccontextmanager
async def amanaged(text: str) -> AsyncGenerator[str]:
    yield text


async def connects() -> AsyncConnection:
    return AsyncConnection()


def test_enter() -> None:
    with POLICY.enter(Connection, "a", port=2) as connection:
        assert_type(connection, Connection)
    with POLICY.enter(managed, "a") as text:
        assert_type(text, str)


def test_async_enter() -> None:
    async def main() -> None:
        async with POLICY.enter(AsyncConnection) as connected:
            assert_type(connected, bytes)
        async with POLICY.enter(amanaged, "a") as text:
            assert_type(text, str)
        async with POLICY.enter(connects) as awaited:
            assert_type(awaited, bytes)

    run(main())


def test_wrong_arguments_of_enter_are_reported() -> None:
    with pytest.raises(TypeError), POLICY.enter(Connection):  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        pass
    with pytest.raises(TypeError), POLICY.enter(managed, 1, 2):  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]
        pass
