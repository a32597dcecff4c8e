"""The chunks of the SDKs are understood like the raw stream, whether complete or truncated."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redouble.llm._protocols.builtin import DetectedProtocol
from redouble.llm._protocols.fields import usage_of
from redouble.llm._spend.usage import Usage
from tests.libraries.servers import library
from tests.support.servers import llm_responses

wire = llm_responses

TEXT = "Hello from attempt 1"
ASKING = {"model": "scripted", "messages": [{"role": "user", "content": "Hello?"}]}
TOLD = {"stream_options": {"include_usage": True}}
TOOK = Usage(wire.PROMPT_TOKENS, 4)

Listen = Callable[[Any], Iterator[Any]]


@contextmanager
def answering(name: str, body: bytes, kind: str = "text/event-stream") -> Generator[Any]:
    """Yield a client of an SDK that receives this body for every request."""
    httpx2, sdk = library("httpx2"), library(name)

    def answer(_: object) -> object:
        return httpx2.Response(200, headers={"content-type": kind}, content=body)

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as client:
        made = sdk.OpenAI if name == "openai" else sdk.Anthropic
        yield made(api_key="k", http_client=client, max_retries=0)


def chat(client: Any) -> Iterator[Any]:
    yield from client.chat.completions.create(stream=True, **ASKING)


def chat_stream(client: Any) -> Iterator[Any]:
    with client.chat.completions.stream(**ASKING) as events:
        yield from events


def responses(client: Any) -> Iterator[Any]:
    yield from client.responses.create(stream=True, model="scripted", input="Hello?")


def messages(client: Any) -> Iterator[Any]:
    yield from client.messages.create(stream=True, max_tokens=9, **ASKING)


def message_stream(client: Any) -> Iterator[Any]:
    with client.messages.stream(max_tokens=9, **ASKING) as events:
        yield from events


def response(status: str, **more: object) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": "r1",
        "object": "response",
        "created_at": 1,
        "model": "scripted",
        "output": [],
        "tools": [],
    }
    return {
        **said,
        "status": status,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "error": None,
        **more,
    }


USED: dict[str, Any] = {
    "input_tokens": wire.PROMPT_TOKENS,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": wire.PROMPT_TOKENS + 4,
}


def response_events(last: str = "response.completed", **more: object) -> list[bytes]:
    place: dict[str, Any] = {"item_id": "i1", "output_index": 0, "content_index": 0, "logprobs": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress")},
        *({"type": "response.output_text.delta", "delta": word, **place} for word in wire.words(TEXT)),
        {"type": last, "response": response(last.partition(".")[2], usage=USED, **more)},
    ]
    return [wire.sse({**event, "sequence_number": i}, event["type"]) for i, event in enumerate(events)]


CHAT: list[bytes] = wire.openai_events(TEXT, 1, TOLD)
MESSAGE: list[bytes] = wire.anthropic_events(TEXT, 1, {})
RESPONSE = response_events()
WAYS: dict[str, tuple[str, Listen, list[bytes]]] = {
    "chat": ("openai", chat, CHAT),
    "chat_stream": ("openai", chat_stream, CHAT),
    "responses": ("openai", responses, RESPONSE),
    "messages": ("anthropic", messages, MESSAGE),
    "message_stream": ("anthropic", message_stream, MESSAGE),
}
every_way = pytest.mark.parametrize("way", WAYS)


def result(way: str, events: list[bytes], protocol: str = "auto") -> DetectedProtocol:
    name, listen, _ = WAYS[way]
    found = DetectedProtocol(protocol)
    with answering(name, b"".join(events)) as client:
        for chunk in listen(client):
            assert found.read(chunk) is None
    return found


@every_way
@pytest.mark.parametrize("named", [False, True])
def test_a_complete_stream_is_recognised(way: str, named: bool) -> None:
    name, _, events = WAYS[way]
    for protocol in (result(way, events, name if named else "auto"), DetectedProtocol()):
        for event in [] if protocol.known else events:
            assert protocol.read(event) is None
        assert (protocol.known, protocol.ended, protocol.usage, protocol.pieces) == (True, True, TOOK, 4)


@every_way
def test_a_truncated_stream_is_recognised(way: str) -> None:
    """Except that the usage of a completion and the `[DONE]` after it may be missing in an SDK."""
    _, _, events = WAYS[way]
    for count in range(1, len(events) - (2 if events is CHAT else 0)):
        protocol = result(way, events[:count])
        assert (protocol.known, protocol.ended) == (True, False)
        assert protocol.cut_short().startswith("the stream ended before it was complete: ")


def test_a_completion_ends_when_all_choices_have_finished() -> None:
    chunks = [json.loads(event[6:]) for event in CHAT[:-1]]
    second = [{**chunk, "choices": [{**one, "index": 1} for one in chunk["choices"]]} for chunk in chunks]
    mixed = [wire.sse(chunk) for pair in zip(chunks, second, strict=True) for chunk in pair]
    assert (result("chat", mixed).ended, result("chat", mixed).pieces) == (True, 8)
    assert not result("chat", mixed[:-3]).ended
    assert result("chat", mixed[:-3]).cut_short().endswith("the `finish_reason` of choice 1 never came")


def test_an_incomplete_response_has_ended() -> None:
    protocol = result("responses", response_events("response.incomplete"))
    assert (protocol.ended, protocol.usage) == (True, TOOK)


def test_error_events_that_the_sdk_delivers_are_recognised() -> None:
    failed = response_events("response.failed", error={"code": "server_error", "message": "Oh"})
    told = {"type": "error", "code": "rate_limit_exceeded", "message": "Slow", "param": None}
    for events, kind in ((failed, "server_error"), ([*RESPONSE[:2], wire.sse(told, "error")], told["code"])):
        protocol = DetectedProtocol()
        with answering("openai", b"".join(events)) as client:
            errors = [error for event in responses(client) if (error := protocol.read(event)) is not None]
        assert [error.type for error in errors] == [kind]
        assert not protocol.ended


@pytest.mark.parametrize(
    ("way", "said"),
    [("chat", wire.openai_error("server_error")), ("messages", wire.anthropic_error("overloaded_error"))],
)
def test_error_events_that_the_sdk_raises_are_recognised_in_the_raw_stream(way: str, said: bytes) -> None:
    name, listen, events = WAYS[way]
    protocol = DetectedProtocol()
    with (
        answering(name, b"".join([*events[:3], said])) as client,
        pytest.raises(library(name).APIError) as caught,
    ):
        for chunk in listen(client):
            assert protocol.read(chunk) is None
    error = DetectedProtocol().read(said)
    assert error is not None
    assert error.type == caught.value.type
    assert not protocol.ended


def test_the_usage_of_answers_that_are_not_streamed() -> None:
    body = json.dumps(wire.openai(TEXT, 1, {})).encode()
    with answering("openai", body, "application/json") as client:
        assert usage_of(client.chat.completions.create(**ASKING)) == TOOK
    body = json.dumps(response("completed", usage=USED)).encode()
    with answering("openai", body, "application/json") as client:
        assert usage_of(client.responses.create(model="scripted", input="Hello?")) == TOOK
    body = json.dumps(wire.anthropic(TEXT, 1, {})).encode()
    with answering("anthropic", body, "application/json") as client:
        assert usage_of(client.messages.create(max_tokens=9, **ASKING)) == TOOK


def test_instances_of_the_sdks_classes_are_recognised() -> None:
    types, chats = library("anthropic.types"), library("openai.types.chat.chat_completion_chunk")
    stop = DetectedProtocol()
    assert stop.read(types.RawMessageStopEvent(type="message_stop")) is None
    assert (stop.known, stop.ended) == (True, True)
    choice = chats.Choice(index=0, delta=chats.ChoiceDelta(), finish_reason="stop")
    said = {"id": "c", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    chunk = DetectedProtocol()
    assert chunk.read(chats.ChatCompletionChunk(choices=[choice], **said)) is None
    assert (chunk.known, chunk.ended, chunk.pieces) == (True, True, 0)
