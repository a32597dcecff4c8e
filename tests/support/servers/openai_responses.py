"""Minimal valid responses of OpenAI's Responses API, plain and streamed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.servers.llm_responses import CREATED, MODEL, PROMPT_TOKENS, sse, words


def response(text: str, number: int, request: Mapping[str, Any]) -> object:
    """Return a response."""
    return _response(number, request, "completed") | {
        "output": [_message(number, "completed", [_part(text)])],
        "usage": {
            "input_tokens": PROMPT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": len(words(text)),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": PROMPT_TOKENS + len(words(text)),
        },
    }


def events(text: str, number: int, request: Mapping[str, Any]) -> list[bytes]:
    """Stream a response word by word: created, in progress, item, part, words, and the end of each."""
    item: dict[str, object] = {"item_id": f"msg_{number}", "output_index": 0}
    part: dict[str, object] = {**item, "content_index": 0}
    begun: dict[str, object] = {"response": _response(number, request, "in_progress")}
    contents: list[tuple[str, dict[str, object]]] = [
        ("created", begun),
        ("in_progress", begun),
        ("output_item.added", {"output_index": 0, "item": _message(number, "in_progress", [])}),
        ("content_part.added", {**part, "part": _part("")}),
        *(("output_text.delta", {**part, "delta": word, "logprobs": []}) for word in words(text)),
        ("output_text.done", {**part, "text": text, "logprobs": []}),
        ("content_part.done", {**part, "part": _part(text)}),
        ("output_item.done", {"output_index": 0, "item": _message(number, "completed", [_part(text)])}),
        ("completed", {"response": response(text, number, request)}),
    ]
    return [
        sse({"type": f"response.{kind}", "sequence_number": position, **content}, f"response.{kind}")
        for position, (kind, content) in enumerate(contents)
    ]


def error(error_type: str) -> bytes:
    """Return an error event within a stream."""
    event = {
        "type": "error",
        "code": error_type,
        "message": f"It said {error_type}",
        "param": None,
        "sequence_number": 99,
    }
    return sse(event, "error")


def _response(number: int, request: Mapping[str, Any], status: str) -> dict[str, object]:
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "model": request.get("model", MODEL),
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _message(number: int, status: str, content: list[object]) -> dict[str, object]:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def _part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
