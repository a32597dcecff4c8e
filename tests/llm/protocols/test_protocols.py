"""The end and the usage of a stream are recognised in every form of its chunks."""

from __future__ import annotations

from typing import Any

import pytest

from redouble.llm._spend.usage import Usage
from tests.support.llm.provider_events import (
    FORMS,
    MESSAGE,
    RESPONSE,
    WIRE,
    chat,
    chat_choice,
    chunk,
    objects,
    read_without_errors,
    sse,
)

TOOK = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
every_form = pytest.mark.parametrize("form", FORMS)
by_name = pytest.mark.parametrize("named", [False, True])


@every_form
@by_name
def test_a_complete_chat_completion_is_recognised(form: str, named: bool) -> None:
    protocol = read_without_errors(
        FORMS[form](chat("Hello", " you", usage=TOOK), done=True), "openai" if named else "auto"
    )
    assert (protocol.known, protocol.ended) == (True, True)
    assert (protocol.usage, protocol.pieces) == (Usage(12, 3), 2)


@every_form
@by_name
def test_a_complete_response_is_recognised(form: str, named: bool) -> None:
    protocol = read_without_errors(FORMS[form](RESPONSE, done=False), "openai" if named else "auto")
    assert (protocol.known, protocol.ended) == (True, True)
    assert (protocol.usage, protocol.pieces) == (Usage(10, 2), 2)


@every_form
@by_name
def test_a_complete_message_is_recognised(form: str, named: bool) -> None:
    protocol = read_without_errors(FORMS[form](MESSAGE, done=False), "anthropic" if named else "auto")
    assert (protocol.known, protocol.ended) == (True, True)
    assert (protocol.usage, protocol.pieces) == (Usage(127, 15, 20), 3)


CUT = "the stream ended before it was complete: "


@pytest.mark.parametrize("form", WIRE)
@pytest.mark.parametrize("events", [1, 3, 5])
def test_a_chat_completion_over_the_wire_ends_with_its_marker(form: str, events: int) -> None:
    """The chunk with the finish reason is not enough: a chunk with the usage may follow."""
    protocol = read_without_errors(FORMS[form](chat("a", "b", "c", usage=TOOK)[:events], done=False))
    assert (protocol.known, protocol.ended) == (True, False)
    assert protocol.cut_short() == CUT + "`data: [DONE]` never came"


@pytest.mark.parametrize("form", ["dicts", "objects"])
def test_from_an_sdk_a_completion_ends_when_every_choice_has_finished(form: str) -> None:
    start = [chunk(chat_choice("a")), chunk(chat_choice("b", index=1)), chunk(chat_choice(None, "stop"))]
    protocol = read_without_errors(FORMS[form](start, done=False))
    assert (protocol.known, protocol.ended, protocol.pieces) == (True, False, 2)
    assert protocol.cut_short() == CUT + "the `finish_reason` of choice 1 never came"
    for more in FORMS[form]([chunk(chat_choice("c", "length", index=1)), chunk(usage=TOOK)], done=False):
        assert protocol.read(more) is None
    assert (protocol.ended, protocol.usage, protocol.pieces) == (True, Usage(12, 3), 3)


def test_a_choice_may_begin_when_another_has_finished() -> None:
    protocol = read_without_errors([chunk(chat_choice("a", "stop"))])
    assert protocol.ended
    protocol.read(chunk(chat_choice("b", index=1)))
    assert not protocol.ended
    protocol.read(chunk(chat_choice("c", index=0)))  # a later chunk does not reopen a finished choice
    protocol.read(chunk(chat_choice("", "stop", index=1)))
    assert protocol.ended


@every_form
@pytest.mark.parametrize("events", range(1, len(RESPONSE)))
def test_a_truncated_response_has_not_ended(form: str, events: int) -> None:
    """Not even with a `[DONE]`: gateways add it to any stream."""
    protocol = read_without_errors(FORMS[form](RESPONSE[:events], done=True))
    assert (protocol.known, protocol.ended) == (True, False)
    assert protocol.cut_short() == CUT + "`response.completed` never came"


@every_form
@pytest.mark.parametrize("events", [1, 4, len(MESSAGE) - 1])
def test_a_truncated_message_has_not_ended(form: str, events: int) -> None:
    protocol = read_without_errors(FORMS[form](MESSAGE[:events], done=True))
    assert (protocol.known, protocol.ended) == (True, False)
    assert protocol.cut_short() == CUT + "`message_stop` never came"


def test_an_incomplete_response_has_ended() -> None:
    response = {"usage": {"input_tokens": 1, "output_tokens": 2}, "error": None}
    protocol = read_without_errors([*RESPONSE[:3], {"type": "response.incomplete", "response": response}])
    assert (protocol.ended, protocol.usage) == (True, Usage(1, 2))


@pytest.mark.parametrize(
    ("choice", "pieces"),
    [
        ({"delta": {"content": "a"}}, 1),
        ({"delta": {"reasoning_content": "a"}}, 1),
        ({"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}, 1),
        ({"delta": {"refusal": "a"}}, 1),
        ({"delta": {"audio": {"data": "a"}}}, 1),
        ({"text": "a"}, 1),
        ({"text": ""}, 0),
        ({"delta": {"role": "assistant", "content": "", "tool_calls": []}}, 0),
        ({"delta": {}}, 0),
        ({"delta": None}, 0),
        ({}, 0),
    ],
)
def test_which_choices_count_as_pieces(choice: dict[str, Any], pieces: int) -> None:
    assert read_without_errors([chunk(choice)]).pieces == pieces
    assert read_without_errors(objects([chunk({"index": 0, **choice})])).pieces == pieces


def test_a_text_completion_is_recognised() -> None:
    events = [{"object": "text_completion", "choices": [{"text": "a", "index": 0, "finish_reason": "stop"}]}]
    assert (
        read_without_errors(events).known,
        read_without_errors(events).ended,
        read_without_errors(events).pieces,
    ) == (True, True, 1)
    assert not read_without_errors([sse(events)]).ended


def test_derived_events_of_the_sdks_are_not_counted_twice() -> None:
    completion = [{"type": "chunk", "chunk": one, "snapshot": {}} for one in chat("a", "b", usage=TOOK)]
    delta = {"type": "content.delta", "delta": "a", "snapshot": "a"}
    protocol = read_without_errors(
        objects([*completion[:2], delta, *completion[2:], {"type": "content.done"}])
    )
    assert (protocol.known, protocol.ended, protocol.usage, protocol.pieces) == (True, True, Usage(12, 3), 2)
    text = {"type": "text", "text": "Hello", "snapshot": "Hello"}
    stop = {"type": "message_stop", "message": {"usage": {"input_tokens": 7, "output_tokens": 16}}}
    protocol = read_without_errors(objects([*MESSAGE[:4], text, *MESSAGE[4:-1], stop]))
    assert (protocol.ended, protocol.usage, protocol.pieces) == (True, Usage(127, 16, 20), 3)


@pytest.mark.parametrize("form", WIRE)
def test_the_sse_protocol_accepts_any_events_and_needs_the_marker(form: str) -> None:
    events = [{"token": "a"}, {"token": "b", "usage": TOOK}]
    cut = read_without_errors(FORMS[form](events, done=False), "sse")
    assert (cut.known, cut.ended, cut.cut_short()) == (True, False, CUT + "`data: [DONE]` never came")
    whole = read_without_errors(FORMS[form](events, done=True), "sse")
    assert (whole.known, whole.ended, whole.usage, whole.pieces) == (True, True, Usage(12, 3), 2)


@every_form
@pytest.mark.parametrize("done", [False, True])
def test_unknown_events_need_no_end_marker(form: str, done: bool) -> None:
    protocol = read_without_errors(
        FORMS[form]([{"token": "a"}, {"candidates": [{"finishReason": "STOP"}]}], done=done)
    )
    assert (protocol.known, protocol.ended) == (False, done and form in WIRE)
    assert protocol.pieces == 2


@pytest.mark.parametrize(
    "chunks",
    [
        ["Hello", " you", ": that is it", "\n"],
        [b"Hello", b" you", b"\xff", b"\n\n"],
        ["data", " is ", "what we ", "need"],
        [1, 2.5, None, object()],
        [("a", "b"), ["c"], {1}, {}],
        [{"type": "text", "text": "Hello"}] * 4,
        [{"choices": []}, {"choices": ["a", "b"]}, {"choices": "delta"}, {"object": "chat.completion.chunk"}],
        [
            {"type": "response.created", "event_id": "e1"},
            {"type": "response.done", "event_id": "e2"},
            "a",
            "b",
        ],
    ],
)
def test_unknown_chunks_need_no_end_marker(chunks: list[object]) -> None:
    protocol = read_without_errors(chunks)
    assert (protocol.known, protocol.ended, protocol.usage) == (False, False, None)
    assert protocol.pieces in (len(chunks), len(chunks) - 1)  # the first may be too short to be classified


@pytest.mark.parametrize("name", ["openai", "anthropic", "sse"])
@pytest.mark.parametrize("chunks", [[], ["<html>"], [b'data: {"id'], [b""], ["Hello"]])
def test_a_named_protocol_needs_its_end_marker(name: str, chunks: list[object]) -> None:
    protocol = read_without_errors(chunks, name)
    assert (protocol.known, protocol.ended) == (True, False)
    marker = "`message_stop`" if name == "anthropic" else "`data: [DONE]`"
    assert protocol.cut_short() == (
        f"{CUT}{marker} never came, nor any other chunk that protocol={name!r} recognises; "
        "if the chunks have a format of your own, write protocol=None"
    )
