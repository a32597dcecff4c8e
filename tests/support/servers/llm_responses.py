"""Event streams, and minimal valid responses of OpenAI and Anthropic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

CREATED = 1_700_000_000
MODEL = "scripted"
PROMPT_TOKENS = 7  # the tokens of every prompt; a completion has one token per word


def sse(data: object, event: str | None = None) -> bytes:
    """Return one event as bytes."""
    text = data if isinstance(data, str) else json.dumps(data)
    return ("" if event is None else f"event: {event}\n").encode() + f"data: {text}\n\n".encode()


def counted(events: int) -> list[bytes]:
    """Return numbered events, and the end marker."""
    return [*(sse({"n": number}) for number in range(events)), sse("[DONE]")]


def request_json(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a request, or an empty one."""
    try:
        read: Any = json.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def openai(text: str, number: int, request: Mapping[str, Any]) -> object:
    """Return a chat completion."""
    return _completion(number, request, "chat.completion") | {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": _openai_usage(text),
    }


def openai_events(text: str, number: int, request: Mapping[str, Any]) -> list[bytes]:
    """Stream a chat completion word by word: role, words, finish, usage if requested, end."""

    def chunk(delta: Mapping[str, str], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return sse(_completion(number, request, "chat.completion.chunk") | {"choices": [choice]})

    usage_events: list[bytes] = []
    if (request.get("stream_options") or dict[str, Any]()).get("include_usage") is True:
        last: dict[str, object] = {"choices": [], "usage": _openai_usage(text)}
        usage_events = [sse(_completion(number, request, "chat.completion.chunk") | last)]
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in words(text)),
        chunk({}, "stop"),
        *usage_events,
        sse("[DONE]"),
    ]


def openai_error(error_type: str) -> bytes:
    """Return an error event within a stream."""
    return sse(
        {"error": {"message": f"It said {error_type}", "type": error_type, "param": None, "code": None}}
    )


def _openai_usage(text: str) -> dict[str, int]:
    prompt, completion = PROMPT_TOKENS, len(words(text))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def anthropic(text: str, number: int, request: Mapping[str, Any]) -> object:
    """Return a message."""
    return _message(number, request) | {
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": len(words(text))},
    }


def anthropic_events(text: str, number: int, request: Mapping[str, Any]) -> list[bytes]:
    """Stream a message word by word: start, block, words, end of block, delta, stop."""

    def event(kind: str, **fields: object) -> bytes:
        return sse({"type": kind} | fields, kind)

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
            usage={"output_tokens": len(words(text))},
        ),
        event("message_stop"),
    ]


def anthropic_error(error_type: str) -> bytes:
    """Return an error event within a stream."""
    return sse({"type": "error", "error": {"type": error_type, "message": f"It said {error_type}"}}, "error")


def words(text: str) -> list[str]:
    """Split a text before each blank."""
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
        "usage": {"input_tokens": PROMPT_TOKENS, "output_tokens": 1},
    }
