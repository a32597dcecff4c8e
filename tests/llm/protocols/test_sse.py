"""Server-sent events are parsed however the body is split, and only the unfinished event is kept."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble.llm._protocols import sse
from redouble.llm._protocols.sse import MAX_DATA, EventStream, SseEvent

BOM = b"\xef\xbb\xbf"


def fed(*pieces: bytes | str) -> list[SseEvent]:
    stream = EventStream()
    return [event for piece in pieces for event in stream.feed(piece)]


def expected(body: bytes) -> list[SseEvent]:
    """Parse a whole body by the rules of the standard."""
    text = body.decode("utf-8", "replace").removeprefix("\ufeff")
    name, data, found = "", "", list[SseEvent]()
    for line in re.split("\r\n|\n|\r", text)[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                found.append(SseEvent(name, data.removesuffix("\n")))
            name, data = "", ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            name = value
    return found


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"", []),
        (b"data: x\n\n", [("", "x")]),
        (b"data:x\n\n", [("", "x")]),
        (b"data:  x \n\n", [("", " x ")]),
        (b"data\n\n", [("", "")]),
        (b"data:\n\n", [("", "")]),
        (b"data:\ndata:\n\n", [("", "\n")]),
        (b"data: a\ndata: b\n\n", [("", "a\nb")]),
        (b"data: a:b\n\n", [("", "a:b")]),
        (b"event: e\ndata: x\n\n", [("e", "x")]),
        (b"data: x\nevent: e\nevent: f\n\ndata: y\n\n", [("f", "x"), ("", "y")]),
        (b"event: e\n\ndata: x\n\n", [("", "x")]),
        (b"data: x\r\n\r\n", [("", "x")]),
        (b"data: x\r\r", [("", "x")]),
        (b"data: x\r\n\n", [("", "x")]),
        (b"data: x\n\r\n", [("", "x")]),
        (b"data: x\r\ndata: y\r\rdata: z\n\n", [("", "x\ny"), ("", "z")]),
        (BOM + b"data: x\n\n", [("", "x")]),
        (BOM + BOM + b"data: x\n\n", []),
        (b"data: " + BOM + b"\n\n", [("", "\ufeff")]),
        (b": a comment\n\ndata: x\n: another\n\n", [("", "x")]),
        (b"id: 1\nretry: 2\nother: 3\ndata: x\n\n", [("", "x")]),
        (b"data: x\nDATA: y\n data: z\ndata : w\n\n", [("", "x")]),
        (b"\n\n\ndata: x\n\n", [("", "x")]),
        (b"data: x\n", []),
        (b"data: x", []),
        (b"data: x\n\ndata: y", [("", "x")]),
        ("data: \u2028\u0085\x0b\x0c\x1c\n\n".encode(), [("", "\u2028\u0085\x0b\x0c\x1c")]),
        (b"data: \xff\xc3\n\n", [("", "\ufffd\ufffd")]),
        (b"data: \x00\n\n", [("", "\x00")]),
    ],
)
def test_events_are_parsed_as_in_the_standard(body: bytes, events: list[tuple[str, str]]) -> None:
    parsed = [SseEvent(*event) for event in events]
    assert fed(body) == parsed
    assert fed(*(body[i : i + 1] for i in range(len(body)))) == parsed
    assert expected(body) == parsed


PARTS = st.sampled_from(
    [
        *(b"data", b"data:", b"data: ", b"event", b"event: ", b"id: 1", b"retry:3", b":", b": ", b" "),
        *(b"\n", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b"x", b"{}", b"[DONE]", b"\x00", BOM),
        *(bytes([byte]) for byte in "\u00e9\u20ac\U0001f600".encode()),
        *("\u00e9".encode(), "\u20ac".encode(), "\U0001f600".encode(), "\u2028".encode()),
    ]
)
BODIES = st.lists(PARTS, max_size=40).map(b"".join)


@given(BODIES, st.data())
@settings(max_examples=50)
def test_a_body_may_be_split_anywhere(rest: bytes, data: st.DataObject) -> None:
    body = b"data:0\n" + rest
    places = st.lists(st.integers(1, len(body) - 1), unique=True).map(sorted)
    cuts = [0, *data.draw(places), len(body)]
    assert fed(*(body[a:b] for a, b in pairwise(cuts))) == fed(body) == expected(body)


@given(BODIES, st.integers(0, 30), st.data())
@settings(max_examples=50)
def test_a_body_with_events_too_long_may_be_split_anywhere(
    rest: bytes, longest: int, data: st.DataObject
) -> None:
    body = b"data:0\n" + rest
    places = st.lists(st.integers(1, len(body) - 1), unique=True).map(sorted)
    cuts = [0, *data.draw(places), len(body)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sse, "MAX_DATA", longest)
        patched.setattr(sse, "MAX_LINE", longest + 16)
        assert fed(*(body[a:b] for a, b in pairwise(cuts))) == fed(body)
        kept = [event.data for event in fed(body)]
    whole = [event.data for event in expected(body)]
    assert kept == [data if data is not None and len(data) <= longest else None for data in whole]


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("piece", [1 << 16, 1 << 30])
def test_an_event_of_up_to_one_mebibyte_is_kept(extra: int, piece: int) -> None:
    body = b"event: e\ndata: " + b"x" * (MAX_DATA + extra) + b"\n\ndata: y\n\n"
    found = fed(*(body[i : i + piece] for i in range(0, len(body), piece)))
    assert found == [SseEvent("e", None if extra else "x" * MAX_DATA), SseEvent("", "y")]


def test_the_data_of_a_longer_event_is_discarded() -> None:
    stream = EventStream()
    piece = b"x" * (1 << 16)
    stream.feed(b"data: ")
    for _ in range(64):
        stream.feed(piece)
    assert sum(map(len, stream._line)) <= MAX_DATA + 17
    stream.feed(b"\n")
    for _ in range(64):
        stream.feed(b"data: " + piece + b"\n")
    assert not stream._line
    assert not stream._data
    assert stream.feed(b"\ndata: y\n\n") == [SseEvent("", None), SseEvent("", "y")]
    assert stream.feed(b"event: " + b"x" * (MAX_DATA + 17) + b"\ndata: z\n\n") == [SseEvent("", "z")]


def test_done_is_found_at_the_end_of_an_event_that_is_too_long() -> None:
    """A server that sends no blank lines sends one event, however long its stream is."""
    stream = EventStream()
    for _ in range(3):
        stream.feed("data: " + "x" * (MAX_DATA // 2) + "\n")
    assert not stream.done_received
    stream.feed("data: [DONE]\n")
    assert stream.done_received
    assert stream.feed("\n") == [SseEvent("", None)]


LINES = ["event: e", "data: x", "", ": comment", "", "data: y", "data: z", "", "data: [DONE]", ""]
OF_LINES = [SseEvent("e", "x"), SseEvent("", "y\nz"), SseEvent("", "[DONE]")]


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\r"])
def test_the_pieces_may_be_lines(end: str) -> None:
    """Like those of ``iter_lines()``, with or without line ends; requests yields bytes."""
    assert fed(*(line + end for line in LINES)) == OF_LINES
    assert fed(*(line.encode() + end.encode() for line in LINES)) == OF_LINES


def test_a_text_may_have_several_lines() -> None:
    assert fed("event: e\ndata: x\n\ndata: y\n", "\n") == [SseEvent("e", "x"), SseEvent("", "y")]
    assert fed("event: e\ndata: x", "", "data: y", "") == [SseEvent("e", "x"), SseEvent("", "y")]


@pytest.mark.parametrize(
    ("pieces", "is_sse"),
    [
        ([], None),
        ([""], None),
        (["\n", "\n"], None),
        (["d", "a", "t", "a"], None),
        (["data", "\n"], True),
        (["data", ":"], True),
        (["\n\n: "], True),
        (["retry", ": 3"], True),
        (["id"], None),
        (["Hello"], False),
        (["data", " is what we need"], False),
        (["da\n"], False),
        (["\n", "{", '"data": 1}'], False),
        (["Hello\ndata: x\n\n", "data: y\n\n"], False),
        (["data", ""], True),
    ],
)
def test_the_first_line_decides_whether_a_body_is_sse(pieces: list[str], is_sse: bool | None) -> None:
    stream = EventStream()
    assert not [event for piece in pieces for event in stream.feed(piece) if event.data]
    assert stream.is_sse is is_sse
    assert is_sse is not False or (not stream._line and not stream.feed("data: x\n\n"))


@pytest.mark.parametrize(
    ("pieces", "done"),
    [
        (["data: [DONE]"], True),
        (["data: [DO", "NE]"], True),
        (["data:[DONE]\n"], True),
        (["data: x", "data: [DONE]"], True),
        (["data: x\n", "data: [DONE]\n"], True),
        (["data: " + "x" * 40 + "\n", "data: [DONE]\n"], True),
        (["data: [DONE]\n\n"], False),
        (["data: [DONE]\n\n", ":"], False),
        (["data: [DON"], False),
        (["data: [DONE]\n", "data: x"], False),
        (["data: [DONE]\n", "data: x\n"], False),
        (["data: " + "x" * 40, "data: [DONE]"], True),
        (['data: {"content": "data: [DONE]'], False),
        (["event: [DONE]"], False),
        ([], False),
    ],
)
def test_a_done_marker_without_a_blank_line_is_recognised(pieces: list[str], done: bool) -> None:
    stream = EventStream()
    for piece in pieces:
        stream.feed(piece)
    assert stream.done_received is done
