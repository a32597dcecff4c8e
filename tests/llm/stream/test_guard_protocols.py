"""Protocols in guarded streams: the end marker is required, error events are raised, no chunk is changed.

However the same events come: as bytes cut anywhere, as lines, events, dicts or objects.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble import Retry, report
from redouble.llm import CutShort, ErrorEvent, Model, Usage
from tests.support.llm.guarded_streams import PLACES, in_place
from tests.support.llm.provider_events import FORMS, MESSAGE, RESPONSE, WIRE, chat

CHAT = chat("Hel", "lo", usage={"prompt_tokens": 9, "completion_tokens": 2})
STREAMS: dict[str, tuple[list[dict[str, Any]], str, Usage]] = {
    "chat": (CHAT, "openai", Usage(9, 2)),
    "response": (RESPONSE, "openai", Usage(10, 2)),
    "message": (MESSAGE, "anthropic", Usage(127, 15)),
}
ERRORS: dict[str, dict[str, Any]] = {
    "chat": {"error": {"message": "too much", "type": "server_error", "code": None}},
    "response": {"type": "error", "code": "server_error", "message": "too much", "param": None},
    "message": {"type": "error", "error": {"type": "overloaded_error", "message": "too much"}},
}
DENIED: dict[str, dict[str, Any]] = {
    "chat": {"error": {"message": "no", "type": "invalid_request_error", "code": "invalid_api_key"}},
    "response": {"type": "error", "code": "invalid_api_key", "message": "no", "param": None},
    "message": {"type": "error", "error": {"type": "permission_error", "message": "no"}},
}

EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
EVERY_STREAM = pytest.mark.parametrize("name", STREAMS)
EVERY_FORM = pytest.mark.parametrize("form", FORMS)


class Told:
    """The outcome of one stream."""

    def __init__(self, place: str, *sources: list[object], protocol: str = "auto") -> None:
        self.chunks: list[object] = []
        self.error: Exception | None = None
        self.opened = 0
        model = Model(
            "acme",
            "m-1",
            policy=Retry(attempts=3, backoff=[0, 0]),
            protocol=protocol,
            **({"worker": None} if place == "alone" else {}),
        )

        def chunks() -> Iterator[object]:
            self.opened += 1
            yield from sources[min(self.opened, len(sources)) - 1]

        async def achunks() -> AsyncIterator[object]:
            self.opened += 1
            for chunk in sources[min(self.opened, len(sources)) - 1]:
                yield chunk

        self.answer: Any = None

        def blocking() -> None:
            self.answer = model.stream(chunks)
            for chunk in self.answer:
                self.chunks.append(chunk)

        async def waiting() -> None:
            self.answer = model.stream(achunks)
            async for chunk in self.answer:
                self.chunks.append(chunk)

        try:
            in_place(place, blocking, waiting)
        except (CutShort, ErrorEvent) as error:
            self.error = error

    @property
    def reason(self) -> str | None:
        """Why it was given up."""
        assert self.error is not None
        said = report(self.error)
        assert said is not None
        assert said.labels == {"provider": "acme", "model": "m-1"}
        return said.reason


def formed(form: str, name: str, upto: int | None = None, *more: dict[str, Any]) -> list[object]:
    """Write the events of a stream, so many of them, and others in place of the rest."""
    events = STREAMS[name][0]
    whole = upto is None
    return FORMS[form]([*events[:upto], *more], done=whole and name == "chat")


@EVERY_PLACE
@EVERY_STREAM
@EVERY_FORM
@pytest.mark.parametrize("named", [False, True], ids=["auto", "named"])
def test_a_whole_one_is_handed_on_as_it_is(place: str, name: str, form: str, named: bool) -> None:
    chunks = formed(form, name)
    told = Told(place, chunks, protocol=STREAMS[name][1] if named else "auto")
    assert (told.error, told.opened) == (None, 1)
    assert all(mine is theirs for mine, theirs in zip(told.chunks, chunks, strict=True))
    assert told.answer.usage == STREAMS[name][2]


@pytest.mark.parametrize("place", ["worker", "asyncio"])
@EVERY_STREAM
@EVERY_FORM
def test_one_that_is_cut_short_is_an_error_wherever_that_is(place: str, name: str, form: str) -> None:
    events = STREAMS[name][0]
    last = len(events) - (2 if name == "chat" and form not in WIRE else 0)  # whose SDK has no `[DONE]`
    for upto in range(1, last):
        chunks = formed(form, name, upto)
        told = Told(place, chunks)
        assert isinstance(told.error, CutShort)
        assert (told.reason, told.opened, told.chunks) == ("committed", 1, chunks)
        assert str(told.error).startswith("the stream ended before it said that it was complete: ")


@EVERY_PLACE
@EVERY_STREAM
@pytest.mark.parametrize("form", ["lines", "events", "dicts", "objects"])
def test_an_error_in_the_midst_is_an_error(place: str, name: str, form: str) -> None:
    chunks = formed(form, name, 3, ERRORS[name])
    told = Told(place, chunks, formed(form, name))
    assert isinstance(told.error, ErrorEvent)
    assert (told.reason, told.opened) == ("committed", 1)
    assert "too much" in str(told.error)
    assert told.error.said
    # a line that brings an error is a text: it is handed out, for something else may be in it
    assert told.chunks == chunks[: len(told.chunks)]
    assert len(told.chunks) >= 3


@EVERY_PLACE
@EVERY_STREAM
@pytest.mark.parametrize("form", ["body", "events", "dicts", "objects"])
def test_an_error_at_the_start_is_worth_another_attempt_if_it_says_so(
    place: str, name: str, form: str
) -> None:
    """If it is all of the first chunk: of an event in several, the first is handed out before it is known."""
    protocol = STREAMS[name][1]  # named: without a known protocol an object with an error may be anything
    again = Told(place, formed(form, name, 0, ERRORS[name]), formed(form, name), protocol=protocol)
    assert (again.error, again.opened, again.chunks) == (None, 2, formed(form, name))
    denied = Told(place, formed(form, name, 0, DENIED[name]), formed(form, name), protocol=protocol)
    assert isinstance(denied.error, ErrorEvent)
    assert (denied.reason, denied.opened, denied.chunks) == ("stopped", 1, [])


@EVERY_PLACE
@EVERY_STREAM
@EVERY_FORM
def test_what_comes_after_the_end_is_handed_on(place: str, name: str, form: str) -> None:
    chunks = [*formed(form, name), "and", b"more"]
    told = Told(place, chunks)
    assert (told.error, told.chunks) == (None, chunks)


@EVERY_PLACE
@pytest.mark.parametrize("protocol", ["openai", "anthropic", "sse"])
def test_a_protocol_that_was_named_is_demanded(place: str, protocol: str) -> None:
    told = Told(place, [b"data: 1\n\n", b"data: 2\n\n"], protocol=protocol)
    assert isinstance(told.error, CutShort)
    assert (told.reason, told.chunks) == ("committed", [b"data: 1\n\n", b"data: 2\n\n"])
    assert Told(place, [b"data: 1\n\n", b"data: 2\n\n"]).error is None


@EVERY_PLACE
def test_the_end_of_mere_events(place: str) -> None:
    chunks: list[object] = [b"data: 1\n\nda", b"ta: [DO", b"NE]\n\n"]
    assert (Told(place, chunks, protocol="sse").error, Told(place, chunks[:2]).error) == (None, None)
    assert isinstance(Told(place, chunks[:2], protocol="sse").error, CutShort)
