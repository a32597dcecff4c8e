"""The kinds of objects that can be streamed; each opened object is closed exactly once."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redouble import report
from tests.support.drivers.stream_readers import policy, read
from tests.support.fakes import ASYNC, Boom

LOG: list[str] = []


@pytest.fixture(autouse=True)
def clear_log() -> None:
    LOG.clear()


class Closes:
    """The base of sources with a ``close`` method, which may fail."""

    def __init__(self, items: list[Any], spoilt: BaseException | None = None) -> None:
        self.left = [*items]
        self.spoilt = spoilt

    def _next(self, end: type[Exception]) -> Any:
        if not self.left:
            raise end
        item = self.left.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        LOG.append(f"close {type(self).__name__}")
        if self.spoilt is not None:
            raise self.spoilt


class Reading(Closes):
    """An iterator with ``close``, such as a response or a cursor."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next(StopIteration)


class Mere(Closes):
    """An iterator without ``close``."""

    close: Any = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next(StopIteration)


class Response(Closes):
    """An iterable whose iterator is another object, which has to be closed too."""

    def __iter__(self) -> Iterator[Any]:
        return Reading(self.left)


class Old(Closes):
    """An iterable by ``__getitem__`` alone."""

    def __getitem__(self, index: int) -> Any:
        return self._next(IndexError)


class AsyncReading(Closes):
    """An async iterator with a blocking ``close``."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return self._next(StopAsyncIteration)


class Awaits(AsyncReading):
    """An async iterator with an async ``close``."""

    async def close(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        super().close()


class Both(AsyncReading):
    """An async iterator with ``close`` and ``aclose``: only ``aclose`` is called."""

    async def aclose(self) -> None:
        LOG.append("aclose Both")
        if self.spoilt is not None:
            raise self.spoilt


class AsyncResponse(Closes):
    """An async iterable whose iterator is another object."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return Both(self.left)

    async def aclose(self) -> None:
        LOG.append("aclose AsyncResponse")


SYNC_SOURCES: list[tuple[Callable[[list[Any]], Any], list[str]]] = [
    (list, []),
    (iter, []),
    (Mere, []),
    (Reading, ["close Reading"]),
    (Response, ["close Reading", "close Response"]),
    (Old, ["close Old"]),
    (lambda items: (item for item in Reading(items)), []),
]
ASYNC_SOURCES: list[tuple[Callable[[list[Any]], Any], list[str]]] = [
    (AsyncReading, ["close AsyncReading"]),
    (Awaits, ["close Awaits"]),
    (Both, ["aclose Both"]),
    (AsyncResponse, ["aclose Both", "aclose AsyncResponse"]),
]
# Lists and list iterators, which never break, come first.
EVERY = [
    *(("sync", *row) for row in SYNC_SOURCES),
    ("thread", *SYNC_SOURCES[4]),
    *((colour, *row) for colour in ASYNC for row in ASYNC_SOURCES),
]


@pytest.mark.parametrize("most", [1, 2, 99])
@pytest.mark.parametrize(("colour", "make", "closed"), EVERY)
def test_a_source_is_closed_once(
    colour: str, make: Callable[[list[Any]], Any], closed: list[str], most: int
) -> None:
    """Whether it is read to its end or not."""
    stream = policy().stream(lambda: make([1, 2, 3]))
    assert read(colour, stream, most) == [1, 2, 3][:most]
    del stream
    assert closed == LOG


@pytest.mark.parametrize(("colour", "make", "closed"), EVERY[2:])
def test_a_broken_source_is_closed_once(
    colour: str, make: Callable[[list[Any]], Any], closed: list[str]
) -> None:
    """It is closed before the retry, and after the late error."""
    scripts: list[list[Any]] = [[Boom()], [1, Boom("late")]]
    opens: list[int] = []

    def open_next() -> Any:
        opens.append(len(LOG))
        return make(scripts.pop(0))

    with pytest.raises(Boom, match="late") as caught:
        read(colour, policy().stream(open_next))
    assert opens == [0, len(closed)]
    assert closed * 2 == LOG
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, reported.attempts) == ("committed", 2)


def test_a_file_is_closed_at_its_end() -> None:
    file = io.StringIO("one\ntwo\n")
    assert list(policy().stream(lambda: file)) == ["one\n", "two\n"]
    assert file.closed


@pytest.mark.parametrize("colour", ASYNC)
def test_a_coroutine_function_may_open_the_source(colour: str) -> None:
    fails = [Boom()]

    async def connect() -> AsyncReading:
        if fails:
            raise fails.pop()
        return AsyncReading([1, 2])

    assert read(colour, policy().stream(connect)) == [1, 2]
    assert LOG == ["close AsyncReading"]
