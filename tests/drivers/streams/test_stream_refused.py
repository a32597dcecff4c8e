"""Objects that cannot be streamed, and the messages of their errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.support.drivers.stream_readers import policy, read
from tests.support.fakes import ASYNC, SYNC


async def numbers() -> AsyncIterator[int]:
    yield 1


async def coroutine() -> list[int]:
    return [1]


class Waits:
    """An awaitable that is no coroutine."""

    def __await__(self) -> Any:
        yield


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: 5, r"<lambda> opened 'int', which cannot be iterated over$"),
        (lambda: None, r"opened 'NoneType', which cannot be iterated over$"),
        (numbers, r"numbers opened 'async_generator', .*: write `async for`$"),
        (coroutine, r"coroutine opened 'coroutine', .*: write `async for`$"),
        (Waits, r"Waits opened 'Waits', .*: write `async for`$"),
    ],
)
@pytest.mark.parametrize("colour", SYNC)
def test_for_refuses_what_is_not_iterable(colour: str, make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        read(colour, policy().stream(make))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: 5, r"<lambda> opened 'int', which `async for` cannot use$"),
        (lambda: [1], r"<lambda> opened 'list', which `async for` cannot use: write `for`$"),
        (coroutine, r"coroutine opened 'list', which `async for` cannot use: write `for`$"),
    ],
)
@pytest.mark.parametrize("colour", ASYNC)
def test_async_for_refuses_what_is_no_async_iterable(
    colour: str, make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        read(colour, policy().stream(make))


@pytest.mark.parametrize("wrong", [5, [1], iter([1])])
def test_resume_must_be_a_function(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match="write a function of the last item that opens the rest of the stream"
    ):
        policy().stream(lambda: [1], resume=wrong)


def test_an_open_source_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot stream \[1\]: it is not callable"):
        policy().stream([1])  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError, match="cannot stream a coroutine, which can run only once"):
        policy().stream(coroutine())  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_until_is_refused_for_streams() -> None:
    with pytest.raises(TypeError, match="until= judges a result, and numbers has none"):
        policy(until=bool).stream(numbers)
