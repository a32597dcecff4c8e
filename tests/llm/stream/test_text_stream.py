"""The text of a guarded stream, and the final message that an SDK has collected: both through the guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble.llm import Answer, CutShort
from redouble.llm._text_stream import text_in
from tests.support.llm.provider_events import MESSAGE, RESPONSE, chat, chat_choice, chunk, objectified
from tests.support.llm.scripted_model import model_of, run_in_virtual_time

FINAL = ("get_final_message", "get_final_text", "get_final_completion", "get_final_response")


class Collected:
    """A stream as an SDK returns it: it collects its events."""

    def __init__(self, *events: Any) -> None:
        self.events, self.read, self.closed = iter(events), list[Any](), 0

    def _next(self) -> Any:
        event = next(self.events)
        if isinstance(event, Exception):
            raise event
        self.read.append(event)
        return event


class Blocking(Collected):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._next()

    def close(self) -> None:
        self.closed += 1

    def get_final_message(self) -> list[Any]:
        return [*self.read, *self.events]

    get_final_text = get_final_completion = get_final_response = get_final_message


class Async(Collected):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return self._next()
        except StopIteration:
            raise StopAsyncIteration from None

    async def close(self) -> None:
        self.closed += 1

    async def get_final_message(self) -> list[Any]:
        return [*self.read, *self.events]

    get_final_text = get_final_completion = get_final_response = get_final_message


def run(colour: str, blocking: Any, waiting: Any, *events: Any) -> tuple[Any, Collected]:
    """Read a stream of these events in a colour; return what the reader returned, and the stream."""
    sync, aio = Blocking(*events), Async(*events)

    async def wait() -> Any:
        return await waiting(model_of().stream(lambda: aio))

    value, _ = run_in_virtual_time(colour, lambda: blocking(model_of().stream(lambda: sync)), wait)
    return value, sync if sync.closed else aio


@pytest.mark.parametrize("form", ["dicts", "objects"])
@pytest.mark.parametrize(
    ("events", "text"),
    [
        (chat("Hel", "lo"), ["Hel", "lo"]),
        ([{"type": "chunk", "chunk": event} for event in chat("Hel", "lo")], ["Hel", "lo"]),
        (RESPONSE, ["Hello", " you"]),
        (MESSAGE, ["Hello"]),
        ([{"choices": [{"index": 0, "text": "Hel"}, {"index": 1, "text": "no"}]}], ["Hel"]),
        ([chunk(chat_choice("no", "stop", index=1)), chunk(), {"type": "ping"}, {"text": "no"}], []),
    ],
)
def test_the_text_is_that_of_the_first_choice(
    colour: str, form: str, events: list[Any], text: list[str]
) -> None:
    def read(answer: Answer[Any]) -> list[str]:
        return list(answer.text_stream)

    async def aread(answer: Answer[Any]) -> list[str]:
        return [piece async for piece in answer.text_stream]

    given = events if form == "dicts" else [objectified(event) for event in events]
    value, stream = run(colour, read, aread, *given)
    assert (value, stream.closed) == (text, 1)


def test_the_text_of_a_stream_that_is_cut_short_is_not_a_short_answer(colour: str) -> None:
    def read(answer: Answer[Any]) -> list[str]:
        with pytest.raises(CutShort):
            list(answer.text_stream)
        return []

    async def aread(answer: Answer[Any]) -> list[str]:
        with pytest.raises(CutShort):
            [piece async for piece in answer.text_stream]
        return []

    assert run(colour, read, aread, *MESSAGE[:-1])[1].closed == 1


@pytest.mark.parametrize("raw", ["Hello", b"Hello", bytearray(b"Hello")])
def test_raw_pieces_have_no_text_stream(raw: object) -> None:
    with pytest.raises(TypeError, match="text_stream reads events of an SDK or parsed dicts"):
        text_in(raw)


@pytest.mark.parametrize("method", FINAL)
@pytest.mark.parametrize("before", [0, 1, 99])
def test_the_final_message_is_that_of_the_sdk(colour: str, method: str, before: int) -> None:
    """The rest is read through the guard: the stream of the SDK has nothing left to read."""

    def read(answer: Answer[Any]) -> Any:
        for _ in zip(range(before), answer, strict=False):
            pass
        return getattr(answer, method)()

    async def aread(answer: Answer[Any]) -> Any:
        left = before
        if left:
            async for _ in answer:
                if not (left := left - 1):
                    break
        else:
            answer._aio = True  # as for a client that is known to be async
        return await getattr(answer, method)()

    value, stream = run(colour, read, aread, *MESSAGE)
    assert (value, stream.closed) == (MESSAGE, 1)


def test_there_is_no_final_message_of_a_stream_that_breaks(colour: str) -> None:
    def read(answer: Answer[Any]) -> None:
        with pytest.raises(ConnectionError, match="reset"):
            answer.get_final_message()
        with pytest.raises(RuntimeError, match="was closed before its end"):
            answer.get_final_message()

    async def aread(answer: Answer[Any]) -> None:
        await anext(answer)
        with pytest.raises(ConnectionError, match="reset"):
            await answer.get_final_message()
        with pytest.raises(RuntimeError, match="was closed before its end"):
            await answer.get_final_message()

    assert run(colour, read, aread, *MESSAGE[:4], ConnectionError("reset"))[1].closed == 1


def test_a_stream_that_was_left_has_no_final_message() -> None:
    with model_of().stream(lambda: Blocking(*MESSAGE)) as answer:
        next(answer)
    with pytest.raises(RuntimeError, match=r"get_final_message\(\) needs the whole stream"):
        answer.get_final_message()


def test_a_stream_without_the_method_raises() -> None:
    answer = model_of().stream(lambda: iter(MESSAGE))
    with pytest.raises(
        TypeError, match=r"get_final_text\(\) belongs to streams of an SDK, and 'list_iterator'"
    ):
        answer.get_final_text()
