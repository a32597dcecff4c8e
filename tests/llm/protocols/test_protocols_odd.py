"""Inspecting a chunk raises nothing and changes nothing, whatever the chunk is."""

from __future__ import annotations

import json
from math import inf, nan
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble.llm._protocols.builtin import DetectedProtocol
from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.usage import Usage
from tests.support.llm.provider_events import (
    MESSAGE,
    RESPONSE,
    Anything,
    chat,
    objectified,
    read,
    read_without_errors,
    sse,
)

NAMES = ("auto", "openai", "anthropic", "sse")


def refuse(*_: object) -> Any:
    raise RuntimeError("no")


def refusing(kind: type[Any], *names: str) -> type[Any]:
    """Return a subclass some of whose methods always raise."""
    return type(
        "Refusing", (kind,), {name: property(refuse) if name == "__class__" else refuse for name in names}
    )


Raising = refusing(object, "__class__", "__getattribute__", "__eq__", "__hash__", "__bool__", "__repr__")
Fickle = refusing(str, "split", "__contains__", "removeprefix", "startswith")


def released() -> memoryview:
    view = memoryview(b"data: x\n\n")
    view.release()
    return view


def strided() -> memoryview:
    return memoryview(b"d?a?t?a?:?x?\n?\n?")[::2]


ODD: list[Any] = [
    *(Raising(), Fickle("data: x\n"), released(), strided(), Anything(), object, Exception("x"), nan, inf),
    *(10**5000, -(10**400), b"", "", "\ud800", b"\xff" * 10, [], (), {}, {1: 2}, {"type": 5}, {"choices": 1}),
    {"choices": [None, 1, "x", Raising(), {"index": "a", "delta": Raising()}], "object": "text_completion"},
    {"choices": [{"index": 10**400, "delta": {}}], "usage": Raising()},
    {"type": "message_start", "message": {"usage": {"input_tokens": nan, "output_tokens": 10**400}}},
    {"type": "message_delta", "usage": [1]},
    {"type": "response.completed", "response": Raising()},
    {"type": "response.failed", "response": [Raising()]},
    {"type": "error", "error": Raising()},
    {"error": {"message": "x", "code": 10**5000, "type": Raising()}},
    SimpleNamespace(type=Raising(), data=Raising(), event=Raising()),
    SimpleNamespace(event=None, data="["),
    *(b"data: " + body + b"\n\n" for body in (b"[" * 100_000, b"1" * 5000, b"NaN", b"{", b'"', b"\xff", b"")),
    *(
        b'data: {"usage": {"prompt_tokens": ' + number + b"}}\n\n"
        for number in (b"1e999", b"-1", b"true", b"NaN")
    ),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("number", range(len(ODD)))
def test_an_odd_chunk_raises_nothing(name: str, number: int) -> None:
    """The chunks after it are understood."""
    assert read([ODD[number]], name)[0].usage is None
    protocol, errors = read([ODD[number], *MESSAGE], name)
    assert len(errors) <= 1
    assert protocol.cut_short()
    assert (protocol.ended, protocol.usage) == (True, Usage(127, 15, 20)) or name != "anthropic"


EVENTS = [*chat("a", "b"), *RESPONSE, *MESSAGE, {"error": {"message": "x"}}]
WORDS = st.sampled_from(
    [*(str(event.get("type")) for event in EVENTS), "chunk", "error", "chat.completion.chunk"]
)
KEYS = st.sampled_from(
    [
        *(
            "type",
            "object",
            "choices",
            "delta",
            "content",
            "finish_reason",
            "index",
            "usage",
            "error",
            "data",
        ),
        *("message", "code", "response", "prompt_tokens", "input_tokens", "output_tokens", "data", "chunk"),
    ]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | WORDS
THINGS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
ANY = (
    THINGS
    | THINGS.map(objectified)
    | st.binary()
    | st.sampled_from([*EVENTS, sse(EVENTS), "data: [DONE]\n\n"])
)


@given(st.lists(ANY, max_size=8), st.sampled_from(NAMES))
@settings(max_examples=50)
def test_any_chunks_are_read_without_change(chunks: list[Any], name: str) -> None:
    protocol = DetectedProtocol(name)
    taken, pieces = Usage(), 0
    for chunk in chunks:
        before = repr(chunk)
        error = protocol.read(chunk)
        assert error is None or str(error).startswith("the stream reported an error: ")
        assert repr(chunk) == before
        usage = protocol.usage or Usage()
        assert usage.input >= taken.input >= 0
        assert usage.output >= taken.output >= 0
        assert protocol.pieces >= pieces or name == "auto"
        taken, pieces = usage, protocol.pieces
    assert protocol.cut_short()


@given(st.lists(st.sampled_from([*chat("a", "b"), *MESSAGE, *RESPONSE]), max_size=12), st.data())
@settings(max_examples=50)
def test_the_borders_of_the_pieces_make_no_difference(
    events: list[dict[str, Any]], data: st.DataObject
) -> None:
    body = sse(events, done=data.draw(st.booleans())).encode()
    size = data.draw(st.integers(1, 50))
    whole = read_without_errors([body])
    cut = read_without_errors(body[i : i + size] for i in range(0, len(body), size))
    assert vars(cut).keys() >= {"known", "ended", "usage", "pieces"} or not body
    assert (whole.known, whole.ended, whole.usage) == (cut.known, cut.ended, cut.usage)
    assert (whole.pieces, whole.cut_short()) == (cut.pieces, cut.cut_short())


@pytest.mark.parametrize(
    "view", [memoryview(b"data: [DONE]\n\n"), memoryview(b"d?a?t?a?:?[?D?O?N?E?]?\n?\n?")[::2]]
)
def test_a_chunk_may_be_a_view_of_bytes(view: memoryview) -> None:
    """Also one that is not contiguous."""
    assert read_without_errors([view], "sse").ended


@pytest.mark.parametrize("number", range(len(ODD)))
def test_usage_of_an_odd_result_is_none(number: int) -> None:
    assert usage_of(ODD[number]) is None


def test_json_with_line_separators_and_on_several_lines() -> None:
    event = chat("\u20ac\u2028")[1]
    assert read_without_errors([f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()]).pieces == 1
    assert (
        read_without_errors([f"data: {json.dumps(event, indent=1)}\n\n".replace("\n ", "\ndata: ")]).known
        is False
    )
