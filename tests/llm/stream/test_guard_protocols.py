"""Protocols in guarded streams: the end marker is required, error events are raised, no chunk is changed.

The same holds for every form of the events: bytes split anywhere, lines, events, dicts or objects.
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
    "message": (MESSAGE, "anthropic", Usage(127, 15, 20)),
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


class StreamOutcome:
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
        """The reason in the report of the error."""
        assert self.error is not None
        found = report(self.error)
        assert found is not None
        assert found.labels == {"provider": "acme", "model": "m-1"}
        return found.reason


def formed(form: str, name: str, upto: int | None = None, *more: dict[str, Any]) -> list[object]:
    """Return a stream in a form: all of its events, or the first ``upto`` and then ``more``."""
    events = STREAMS[name][0]
    whole = upto is None
    return FORMS[form]([*events[:upto], *more], done=whole and name == "chat")


@EVERY_PLACE
@EVERY_STREAM
@EVERY_FORM
@pytest.mark.parametrize("named", [False, True], ids=["auto", "named"])
def test_a_complete_stream_is_delivered_unchanged(place: str, name: str, form: str, named: bool) -> None:
    chunks = formed(form, name)
    outcome = StreamOutcome(place, chunks, protocol=STREAMS[name][1] if named else "auto")
    assert (outcome.error, outcome.opened) == (None, 1)
    assert all(mine is theirs for mine, theirs in zip(outcome.chunks, chunks, strict=True))
    assert outcome.answer.usage == STREAMS[name][2]


@pytest.mark.parametrize("place", ["worker", "asyncio"])
@EVERY_STREAM
@EVERY_FORM
def test_a_truncated_stream_raises_wherever_it_ends(place: str, name: str, form: str) -> None:
    events = STREAMS[name][0]
    last = len(events) - (2 if name == "chat" and form not in WIRE else 0)  # the SDK hides the `[DONE]`
    for upto in range(1, last):
        chunks = formed(form, name, upto)
        outcome = StreamOutcome(place, chunks)
        assert isinstance(outcome.error, CutShort)
        assert (outcome.reason, outcome.opened, outcome.chunks) == ("committed", 1, chunks)
        assert str(outcome.error).startswith("the stream ended before it was complete: ")


@EVERY_PLACE
@EVERY_STREAM
@pytest.mark.parametrize("form", ["lines", "events", "dicts", "objects"])
def test_an_error_event_ends_the_stream(place: str, name: str, form: str) -> None:
    chunks = formed(form, name, 3, ERRORS[name])
    outcome = StreamOutcome(place, chunks, formed(form, name))
    assert isinstance(outcome.error, ErrorEvent)
    assert (outcome.reason, outcome.opened) == ("committed", 1)
    assert "too much" in str(outcome.error)
    assert outcome.error.said
    # a chunk of text with an error event is delivered first: it may contain other events too
    assert outcome.chunks == chunks[: len(outcome.chunks)]
    assert len(outcome.chunks) >= 3


@EVERY_PLACE
@EVERY_STREAM
@pytest.mark.parametrize("form", ["body", "events", "dicts", "objects"])
def test_a_transient_error_event_at_the_start_is_retried(place: str, name: str, form: str) -> None:
    """If it is one chunk: of an event in several pieces, the first is delivered before it is recognised."""
    protocol = STREAMS[name][1]  # named: with "auto", an object with an error is ambiguous
    again = StreamOutcome(place, formed(form, name, 0, ERRORS[name]), formed(form, name), protocol=protocol)
    assert (again.error, again.opened, again.chunks) == (None, 2, formed(form, name))
    denied = StreamOutcome(place, formed(form, name, 0, DENIED[name]), formed(form, name), protocol=protocol)
    assert isinstance(denied.error, ErrorEvent)
    assert (denied.reason, denied.opened, denied.chunks) == ("stopped", 1, [])


@EVERY_PLACE
@EVERY_STREAM
@EVERY_FORM
def test_chunks_after_the_end_marker_are_delivered(place: str, name: str, form: str) -> None:
    chunks = [*formed(form, name), "and", b"more"]
    outcome = StreamOutcome(place, chunks)
    assert (outcome.error, outcome.chunks) == (None, chunks)


@EVERY_PLACE
@pytest.mark.parametrize("protocol", ["openai", "anthropic", "sse"])
def test_a_named_protocol_needs_its_end_marker(place: str, protocol: str) -> None:
    outcome = StreamOutcome(place, [b"data: 1\n\n", b"data: 2\n\n"], protocol=protocol)
    assert isinstance(outcome.error, CutShort)
    assert (outcome.reason, outcome.chunks) == ("committed", [b"data: 1\n\n", b"data: 2\n\n"])
    assert StreamOutcome(place, [b"data: 1\n\n", b"data: 2\n\n"]).error is None


@EVERY_PLACE
def test_the_sse_protocol_needs_the_done_marker(place: str) -> None:
    chunks: list[object] = [b"data: 1\n\nda", b"ta: [DO", b"NE]\n\n"]
    assert (StreamOutcome(place, chunks, protocol="sse").error, StreamOutcome(place, chunks[:2]).error) == (
        None,
        None,
    )
    assert isinstance(StreamOutcome(place, chunks[:2], protocol="sse").error, CutShort)
