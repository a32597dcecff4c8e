"""Streams of events, and what the services of OpenAI and Anthropic answer: as little of it as is valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

CREATED = 1_700_000_000
MODEL = "scripted"


def sse(data: object, event: str | None = None) -> bytes:
    """Write one event."""
    text = data if isinstance(data, str) else json.dumps(data)
    return ("" if event is None else f"event: {event}\n").encode() + f"data: {text}\n\n".encode()


def counted(events: int) -> list[bytes]:
    """So many numbered events, and the end."""
    return [*(sse({"n": number}) for number in range(events)), sse("[DONE]")]


def asked(body: bytes) -> Mapping[str, Any]:
    """Read the JSON object of a request; anything else asks for nothing."""
    try:
        read: Any = json.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def openai(text: str, number: int, request: Mapping[str, Any]) -> object:
    """Complete a chat."""
    return _completion(number, request, "chat.completion") | {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def openai_events(text: str, number: int, request: Mapping[str, Any]) -> list[bytes]:
    """Complete a chat, a word at a time: role, words, finish, end."""

    def chunk(delta: Mapping[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse(_completion(number, request, "chat.completion.chunk") | {"choices": [choice]})

    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words(text)),
        chunk({}, "stop"),
        sse("[DONE]"),
    ]


def anthropic(text: str, number: int, request: Mapping[str, Any]) -> object:
    """Answer with a message."""
    return _message(number, request) | {
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def anthropic_events(text: str, number: int, request: Mapping[str, Any]) -> list[bytes]:
    """Answer with a message, a word at a time: start, block, words, end of block, delta, stop."""

    def event(kind: str, **said: object) -> bytes:
        return sse({"type": kind} | said, kind)

    return [
        event("message_start", message=_message(number, request)),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": word})
            for word in words(text)
        ),
        event("content_block_stop", index=0),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn", "stop_sequence": None},
            usage={"output_tokens": 1},
        ),
        event("message_stop"),
    ]


def words(text: str) -> list[str]:
    """Cut a text in front of its blanks."""
    first, *others = text.split(" ")
    return [first, *(f" {word}" for word in others)]


def _completion(number: int, request: Mapping[str, Any], kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{number}",
        "object": kind,
        "created": CREATED,
        "model": request.get("model", MODEL),
    }


def _message(number: int, request: Mapping[str, Any]) -> dict[str, object]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": request.get("model", MODEL),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
