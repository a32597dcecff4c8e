"""What a source may rely on: its context, its call, and being closed; and what is no source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
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
    """Read a decorated generator, and leave it after so many chunks."""
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


# ------------------------------------------------------------------------------- its context


@EVERY_PLACE
def test_what_a_generator_sets_is_there_for_its_next_chunk(place: str) -> None:
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
def test_it_knows_how_long_each_wait_may_take(place: str) -> None:
    """On a worker: in the other places the limit is kept elsewhere, or not at all."""

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


# ---------------------------------------------------------------------------------- its call


@EVERY_PLACE
@pytest.mark.parametrize("most", [1, 9], ids=["left", "read"])
def test_it_knows_its_call_while_it_is_closed(place: str, most: int) -> None:
    told: list[Any] = []

    def plain() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            told.append(llm.current().key)

    async def waits() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            told.append(llm.current().key)

    read(place, plain, waits, most, idempotency="auto")
    assert len(told) == 1
    assert isinstance(told[0], str)
    with pytest.raises(LookupError):
        llm.current()


# ------------------------------------------------------------------------------- no streams


class Whole:
    """What an SDK gives for an answer that is not streamed: it can be iterated over."""

    def model_dump(self) -> Mapping[str, Any]:
        return {}

    def __iter__(self) -> Iterator[Any]:
        return iter([("id", "x")])


@EVERY_PLACE
@pytest.mark.parametrize(
    "answer", [Whole(), {"id": "x"}, "text", b"bytes"], ids=["model", "dict", "str", "bytes"]
)
def test_a_whole_answer_is_no_stream(place: str, answer: Any) -> None:
    async def waits() -> Any:
        return answer

    with pytest.raises(
        TypeError, match=r"gave a whole answer \(\w+\), and no stream: write stream=True, or model\.call"
    ):
        read(place, lambda: answer, waits)


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_blocking_stream_is_closed_where_it_cannot_be_read(colour: str) -> None:
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


@EVERY_PLACE
def test_what_an_sdk_hands_out_has_no_status_to_look_at(place: str) -> None:
    """Its ``with_streaming_response`` gives something that has bytes, and has raised its error already."""

    class Raw:
        def iter_bytes(self) -> Iterator[bytes]:
            return iter([b"a", b"b"])

        async def aiter_bytes(self) -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        def close(self) -> None: ...

        async def aclose(self) -> None: ...

    async def waits() -> Any:
        return Raw()

    assert read(place, Raw, waits) == [b"a", b"b"]


def test_a_protocol_that_is_none_is_called_by_name() -> None:
    wrong: Any = lambda: 3
    with pytest.raises(
        TypeError, match=r"^protocol=.*<lambda> gave 3: write a function that returns a Protocol$"
    ):
        list(model_of(protocol=wrong).stream(lambda: iter([1])))
