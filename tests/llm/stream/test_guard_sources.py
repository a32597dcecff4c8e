"""What a source may rely on: its context, its call, and being closed; objects that are no source."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

import redouble
from redouble import llm
from redouble._telemetry.bound_fields import BOUND
from tests.support.llm.guarded_streams import PLACES, in_place, model
from tests.support.llm.scripted_model import model_of

EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
NUMBER: ContextVar[int] = ContextVar("number", default=0)


def read(
    place: str, plain: Callable[[], Any], waits: Callable[[], Any], most: int = 9, **options: Any
) -> Any:
    """Read a stream of an opener, and close it after at most ``most`` chunks."""
    found: list[Any] = []
    asked = model(place, protocol=None, **options)

    def blocking() -> None:
        with asked.stream(plain) as chunks:
            for chunk in chunks:
                found.append(chunk)
                if len(found) == most:
                    return

    async def waiting() -> None:
        async with asked.stream(waits) as chunks:
            async for chunk in chunks:
                found.append(chunk)
                if len(found) == most:
                    return

    in_place(place, blocking, waiting)
    return found


# ------------------------------------------------------------------------------- the context


@EVERY_PLACE
def test_context_variables_of_a_generator_last_until_its_next_chunk(place: str) -> None:
    def plain() -> Iterator[Any]:
        token = NUMBER.set(7)
        with redouble.bind(user="u1"), redouble.deadline(5):
            for _ in range(3):
                yield NUMBER.get(), dict(BOUND.get()), 0 < redouble.remaining(99) <= 5
        NUMBER.reset(token)

    async def waits() -> AsyncIterator[Any]:
        for each in plain():
            yield each

    expected = [(7, {"user": "u1"}, True)] * 3
    assert read(place, plain, waits) == expected
    assert NUMBER.get() == 0


@EVERY_PLACE
def test_a_source_can_read_the_time_left_for_each_chunk(place: str) -> None:
    """On a worker only: in the other places the limit is enforced elsewhere, or not at all."""

    def plain() -> Iterator[Any]:
        for _ in range(3):
            yield redouble.remaining(99)

    async def waits() -> AsyncIterator[Any]:
        for each in plain():
            yield each

    first, *others = read(place, plain, waits, timeouts=llm.Timeouts(read=20, total=50, first=40))
    if place == "worker":
        assert 20 < first <= 40
        assert all(0 < left <= 20 for left in others)
    assert len(others) == 2


# ---------------------------------------------------------------------------------- the call


@EVERY_PLACE
@pytest.mark.parametrize("most", [1, 9], ids=["left", "read"])
def test_a_source_can_read_its_call_while_it_is_closed(place: str, most: int) -> None:
    keys: list[Any] = []

    def plain() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            keys.append(llm.current().key)

    async def waits() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            keys.append(llm.current().key)

    read(place, plain, waits, most, idempotency="auto")
    assert len(keys) == 1
    assert isinstance(keys[0], str)
    with pytest.raises(LookupError):
        llm.current()


# ------------------------------------------------------------------------------- no streams


class Whole:
    """An answer of an SDK that is not streamed; it is iterable all the same."""

    def model_dump(self) -> Mapping[str, Any]:
        return {}

    def __iter__(self) -> Iterator[Any]:
        return iter([("id", "x")])


@EVERY_PLACE
@pytest.mark.parametrize(
    "answer", [Whole(), {"id": "x"}, "text", b"bytes"], ids=["model", "dict", "str", "bytes"]
)
def test_an_answer_that_is_not_streamed_raises(place: str, answer: Any) -> None:
    async def waits() -> Any:
        return answer

    with pytest.raises(
        TypeError, match=r"returned a whole answer \(\w+\), not a stream: write stream=True, or model\.call"
    ):
        read(place, lambda: answer, waits)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_blocking_stream_in_async_code_raises_and_is_closed(colour: str) -> None:
    closed: list[int] = []

    class Blocking:
        def __iter__(self) -> Iterator[int]:
            return iter([1])

        def close(self) -> None:
            closed.append(1)

    async def waits() -> Any:
        return Blocking()

    with pytest.raises(TypeError, match=r"which `async for` cannot use: write `for`$"):
        read(colour, Blocking, waits)
    assert closed == [1]


class RawResponse:
    """A raw response of an SDK: no status, because the SDK has raised the error of a bad one itself."""

    def __init__(self) -> None:
        self.closed = 0

    def iter_bytes(self) -> Iterator[bytes]:
        return iter([b"a", b"b"])

    def close(self) -> None:
        self.closed += 1


class AsyncRawResponse:
    """The same of an async SDK: the methods have the same names, without an ``a``."""

    def __init__(self) -> None:
        self.closed = 0

    async def iter_bytes(self) -> AsyncIterator[bytes]:
        yield b"a"
        yield b"b"

    async def close(self) -> None:
        self.closed += 1


@EVERY_PLACE
@pytest.mark.parametrize("managed", [False, True], ids=["response", "manager"])
def test_the_bytes_of_a_raw_response_of_an_sdk_are_read(place: str, managed: bool) -> None:
    """``with_streaming_response`` returns a context manager of it."""
    plain, waits = RawResponse(), AsyncRawResponse()

    @contextmanager
    def manager() -> Generator[RawResponse]:
        yield plain

    @asynccontextmanager
    async def amanager() -> AsyncGenerator[AsyncRawResponse]:
        yield waits

    async def awaited() -> AsyncRawResponse:
        return waits

    assert read(place, *((manager, amanager) if managed else (lambda: plain, awaited))) == [b"a", b"b"]
    assert plain.closed + waits.closed == 1


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_raw_response_of_a_blocking_sdk_in_async_code_raises_and_is_closed(colour: str) -> None:
    plain = RawResponse()

    async def waits() -> RawResponse:
        return plain

    with pytest.raises(TypeError, match=r"which `async for` cannot use: write `for`$"):
        read(colour, RawResponse, waits)
    assert plain.closed == 1


def test_a_protocol_factory_must_return_a_protocol() -> None:
    wrong: Any = lambda: 3
    with pytest.raises(TypeError, match=r"^protocol=.*<lambda> returned 3: return a Protocol$"):
        list(model_of(protocol=wrong).stream(lambda: iter([1])))
