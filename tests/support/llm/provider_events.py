"""The events of each provider, and their forms: bytes, lines, dicts or objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.base import Protocol
from redouble.llm._protocols.builtin import protocol_factory

# fmt: off
__all__ = [
    "FORMS",
    "MESSAGE",
    "RESPONSE",
    "WIRE",
    "Anything",
    "chat",
    "chat_choice",
    "chunk",
    "objectified",
    "objects",
    "read",
    "read_without_errors",
    "sse",
]
# fmt: on

Event = dict[str, Any]


def chunk(*choices: Event, **more: Any) -> Event:
    return {"id": "c1", "object": "chat.completion.chunk", "choices": list(choices), **more}


def chat_choice(content: str | None, reason: str | None = None, index: int = 0) -> Event:
    return {"index": index, "delta": {"content": content}, "finish_reason": reason}


def chat(*words: str, usage: Event | None = None) -> list[Event]:
    """Return the events of a chat completion: words, the end, and the usage."""
    first = chunk({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
    last = [] if usage is None else [chunk(usage=usage)]
    return [first, *(chunk(chat_choice(word)) for word in words), chunk(chat_choice(None, "stop")), *last]


RESPONSE: list[Event] = [
    {"type": "response.created", "sequence_number": 0, "response": {"id": "r1", "usage": None}},
    {"type": "response.output_item.added", "sequence_number": 1},
    {"type": "response.output_text.delta", "sequence_number": 2, "delta": "Hello"},
    {"type": "response.output_text.delta", "sequence_number": 3, "delta": " you"},
    {"type": "response.output_text.done", "sequence_number": 4, "text": "Hello you"},
    {
        "type": "response.completed",
        "sequence_number": 5,
        "response": {"id": "r1", "error": None, "usage": {"input_tokens": 10, "output_tokens": 2}},
    },
]

MESSAGE: list[Event] = [
    {
        "type": "message_start",
        "message": {
            "id": "m1",
            "usage": {
                "input_tokens": 7,
                "cache_creation_input_tokens": 100,
                "cache_read_input_tokens": 20,
                "output_tokens": 1,
            },
        },
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 15}},
    {"type": "message_stop"},
]


# ------------------------------------------------------------------------ forms of events


def sse(events: Iterable[Event], *, done: bool = False) -> str:
    """Return the events as a body of server-sent events."""
    named = ((f"event: {event['type']}\n" if "type" in event else "", event) for event in events)
    body = "".join(f"{name}data: {json.dumps(event)}\n\n" for name, event in named)
    return body + "data: [DONE]\n\n" * done


def bodies(events: list[Event], *, done: bool) -> list[object]:
    return [sse(events, done=done).encode()]


def bits(events: list[Event], *, done: bool) -> list[object]:
    body = sse(events, done=done).encode()
    return [
        bytearray(body[i : i + 7]) if i % 2 else memoryview(body[i : i + 7]) for i in range(0, len(body), 7)
    ]


def lines(events: list[Event], *, done: bool) -> list[object]:
    return list(sse(events, done=done).split("\n"))


def server_sent(events: list[Event], *, done: bool) -> list[object]:
    found = [SimpleNamespace(event=event.get("type"), data=json.dumps(event)) for event in events]
    return [*found, *([SimpleNamespace(event="message", data="[DONE]")] if done else [])]


def dicts(events: list[Event], *, done: bool) -> list[object]:
    return list(events)


def objects(events: list[Event], *, done: bool = False) -> list[object]:
    return [objectified(event) for event in events]


def objectified(found: Any) -> Any:
    """Convert dicts to objects, as an SDK does."""
    return json.loads(json.dumps(found), object_hook=lambda fields: SimpleNamespace(**fields))


class Anything:
    """Has every attribute, and each of these is such an object again."""

    def __getattr__(self, name: str) -> Anything:
        return self

    def __call__(self, *_: object) -> Anything:
        return self


# Forms over the wire, and the forms of an SDK, which hides the `[DONE]`.
WIRE: dict[str, Callable[..., list[object]]] = {
    "body": bodies,
    "bits": bits,
    "lines": lines,
    "events": server_sent,
}
FORMS: dict[str, Callable[..., list[object]]] = {**WIRE, "dicts": dicts, "objects": objects}


def read(chunks: Iterable[object], name: str = "auto") -> tuple[Protocol, list[ErrorEvent]]:
    """Pass chunks to a protocol, and return it with the errors that it returned."""
    made = protocol_factory(name)
    assert made is not None
    protocol = made()
    errors = [error for chunk in chunks if (error := protocol.read(chunk)) is not None]
    return protocol, errors


def read_without_errors(chunks: Iterable[object], name: str = "auto") -> Protocol:
    """Pass chunks without errors to a protocol, and return it."""
    protocol, errors = read(chunks, name)
    assert not errors
    return protocol
