"""The bytes of a response."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from tests.support.servers import llm_responses as protocols
from tests.support.servers import openai_responses as responses
from tests.support.servers.request_log import Received
from tests.support.servers.script import Step

PIECE = 5  # bytes of a chunk
JSON = "application/json"
EVENTS = "text/event-stream"
_PATTERN = b"0123456789abcdefghijklmnopqrstuvwxyz\n"
_BAD_CHUNK = b"this is not the size of a chunk\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_PROTOCOLS = {
    "openai": (protocols.openai, protocols.openai_events, protocols.openai_error),
    "anthropic": (protocols.anthropic, protocols.anthropic_events, protocols.anthropic_error),
    "responses": (responses.response, responses.events, responses.error),
}


@dataclass(frozen=True)
class Answer:
    """The bytes of a response that are sent, followed by the fault of the step, if any."""

    head: bytes
    pieces: tuple[bytes, ...]
    end: bytes = b""


@dataclass(frozen=True)
class _Content:
    """The whole body according to the headers."""

    kind: str
    parts: Sequence[bytes]  # the events of a stream, or one part
    streamed: bool = False


def pattern(size: int) -> bytes:
    """Return a fixed body of this many bytes."""
    return (_PATTERN * (size // len(_PATTERN) + 1))[:size]


def compose(step: Step, received: Received, closing: bool) -> Answer:
    """Return the response to a request."""
    content = _content(step, received)
    chunked = content.streamed or step.chunked or (step.fault is not None and step.fault.how == "badchunk")
    parts, length = content.parts, None
    if not content.streamed:
        body = gzip.compress(content.parts[0], mtime=0) if step.gzip else content.parts[0]
        body = _long_enough(body, step, chunked)
        length = len(body)
        body = body if step.fault is None else body[: step.fault.after]
        parts = _cut(body, step.piece or (1 if step.drip is not None else PIECE if chunked else length or 1))
    elif step.piece is not None:
        parts = _cut(b"".join(parts), step.piece)
    bodiless = step.status in {204, 304}
    framing = () if bodiless else _framing(chunked, length)
    head = _head(step, received, content.kind, (*framing, *((("Connection", "close"),) if closing else ())))
    if bodiless or received.method == "HEAD":
        return Answer(head, ())
    if not chunked:
        return Answer(head, tuple(parts))
    return Answer(head, tuple(map(_chunk, parts)), _end(step))


def _content(step: Step, received: Received) -> _Content:
    if step.kind == "sse":
        return _streamed(protocols.counted(step.events), step, protocols.openai_error)
    if step.kind in _PROTOCOLS:
        plain, events, error = _PROTOCOLS[step.kind]
        request = protocols.request_json(received.body)
        text = (
            f"Hello from attempt {received.number}"
            if step.body is None
            else step.body.decode(errors="replace")
        )
        if step.stream or request.get("stream") is True:
            return _streamed(events(text, received.number, request), step, error)
        return _Content(JSON, [json.dumps(plain(text, received.number, request)).encode()])
    if step.size is not None:
        return _Content("application/octet-stream", [pattern(step.size)])
    if step.body is not None:
        return _Content("text/plain; charset=utf-8", [step.body])
    return _Content(JSON, [json.dumps({"ok": step.status < 400, "step": received.number}).encode()])


def _streamed(events: list[bytes], step: Step, error: Callable[[str], bytes]) -> _Content:
    """Remove the parts after the fault, and add the replacement."""
    if step.fault is not None:
        events = events[: step.fault.after]
        if step.fault.how == "error":
            events = [*events, error(step.error_type or "overloaded_error")]
    return _Content(EVENTS, events, streamed=True)


def _long_enough(body: bytes, step: Step, chunked: bool) -> bytes:
    """Lengthen a body that would have ended before its fault; the end of chunks is a separate part.

    A body with a hidden fault is not lengthened.
    """
    if step.fault is None:
        return body
    if not step.fault.breaks:
        return body[: step.fault.after]
    least = step.fault.after + (not chunked)
    return body + pattern(max(0, least - len(body)))


def _cut(body: bytes, piece: int) -> list[bytes]:
    """Split data into pieces of this many bytes."""
    return [body[start : start + piece] for start in range(0, len(body), piece)]


def _framing(chunked: bool, length: int | None) -> tuple[tuple[str, str], ...]:
    return (("Transfer-Encoding", "chunked"),) if chunked else (("Content-Length", str(length)),)


def _end(step: Step) -> bytes:
    if step.fault is None or not step.fault.breaks:
        return _LAST_CHUNK
    return _BAD_CHUNK if step.fault.how == "badchunk" else b""


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def _head(step: Step, received: Received, kind: str, framing: tuple[tuple[str, str], ...]) -> bytes:
    own = {
        "Date": formatdate(usegmt=True) if step.date is None else step.date,
        "Content-Type": kind,
        "X-Attempt": str(received.number),
        **({"Content-Encoding": "gzip"} if step.gzip else {}),
        **dict(framing),
    }
    given = {name.lower() for name, _ in step.headers}
    lines = [(name, value) for name, value in own.items() if name.lower() not in given]
    if step.date == "none":
        lines = [line for line in lines if line[0] != "Date"]
    text = "".join(f"{name}: {value}\r\n" for name, value in (*lines, *step.headers))
    return f"HTTP/1.1 {step.status} {_phrase(step.status)}\r\n{text}\r\n".encode("latin-1")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Scripted"
