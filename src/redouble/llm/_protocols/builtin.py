"""DetectedProtocol, the built-in protocols with detection of the provider, and the option ``protocol=``.

A chunk may be a piece of a body, a line, a server-sent event, a dict or an object. `DetectedProtocol` turns
it into an event, if it is one, and records that in the `ProviderEvents` that recognise it. It raises nothing,
whatever a chunk is.

An event has an event type: its ``type`` field, or the name of its SSE event. Each class of `ProviderEvents`
reads events as they come over the wire and as the provider's SDK returns them.
"""

from __future__ import annotations

from functools import partial
from inspect import isabstract
from json import JSONDecoder
from typing import cast

from redouble._internal.callables import display_name, lazy_kind
from redouble._internal.validation import nearest
from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.base import Protocol, ProtocolFactory
from redouble.llm._protocols.fields import (
    DICT,
    Fields,
    error_in,
    fields_of,
    has_field,
    list_of,
    text_of,
    usage_in,
)
from redouble.llm._protocols.sse import DONE, EventStream
from redouble.llm._spend.usage import Usage

TEXTS = (str, bytes, bytearray, memoryview)
SSE_FIELDS = ("event", "last_event_id", "origin")
_decode_json = JSONDecoder().decode


class ProviderEvents:
    """The events of one stream, of any provider that ends it with ``[DONE]``; known ones have a subclass."""

    end_marker = "`data: [DONE]`"
    ended_by_done = True  # False: a ``[DONE]`` means nothing, because gateways add it to anything

    usage: Usage | None = None
    pieces: int = 0
    ended: bool = False

    def recognises(self, get: Fields, event_type: str) -> bool:  # noqa: ARG002  all of them
        """Return True if an event is one of this provider's."""
        return True

    def record(self, get: Fields, event_type: str, *, sse: bool) -> None:  # noqa: ARG002  each is a piece
        """Record the next event; ``sse``: it came as a server-sent event, not through an SDK."""
        self.record_usage(get)
        self.pieces += 1

    def record_usage(self, get: Fields) -> None:
        """Record the usage in an event: it counts from the start of the stream, and may omit a count."""
        now, before = usage_in(get), self.usage
        if now is not None and before is not None:
            now = Usage(*map(max, before, now))
        self.usage = now or before

    def record_done(self) -> None:
        """Record a ``[DONE]``."""
        self.ended = self.ended or self.ended_by_done

    def missing_end(self) -> str:
        """Return what has not come at the end of an incomplete stream."""
        return self.end_marker


OPENAI_CHUNKS = ("chat.completion.chunk", "text_completion")
OPENAI_ENDS = ("response.completed", "response.incomplete")  # incomplete: ended by a limit of the caller

# The fields of a delta with content of the model, its reasoning included: that is paid for as well.
OPENAI_PIECES = (
    "content",
    "reasoning_content",
    "reasoning",
    "tool_calls",
    "refusal",
    "function_call",
    "audio",
)


class OpenAI(ProviderEvents):
    """A stream of chat completions, of completions, or of a response; many APIs are made like these."""

    def __init__(self) -> None:
        self._sse = False
        self._open: set[int] = set()  # choices, by index
        self._finished: set[int] = set()

    def recognises(self, get: Fields, event_type: str) -> bool:
        """Return True if the event type or the choices are those of OpenAI."""
        if event_type.startswith("response."):
            return get("event_id") is None  # events of the realtime API have it
        if event_type == "chunk":
            get = fields_of(get("chunk"))
        return (isinstance(get("choices"), list) and text_of(get("object")) in OPENAI_CHUNKS) or any(
            fields_of(choice)("delta") is not None for choice in list_of(get("choices"))
        )

    def record(self, get: Fields, event_type: str, *, sse: bool) -> None:
        """Record the next event."""
        if event_type.startswith("response."):
            self.end_marker, self.ended_by_done = f"`{OPENAI_ENDS[0]}`", False
            self.ended = self.ended or event_type in OPENAI_ENDS
            self.pieces += event_type.endswith(".delta")
            self.record_usage(fields_of(get("response")))
            return
        if event_type == "chunk":  # the SDK's `chat.completions.stream()` wraps chunks in events of its own
            get = fields_of(get("chunk"))
        if get("usage") is not None:
            self.record_usage(get)
        self._sse = self._sse or sse
        for choice in list_of(get("choices")):
            self._record_choice(fields_of(choice))

    def _record_choice(self, get: Fields) -> None:
        index = get("index")
        number = index if isinstance(index, int) else 0
        if text_of(get("finish_reason")):
            self._finished.add(number)
            self._open.discard(number)
        elif number not in self._finished:  # audio has one more update after its finish_reason
            self._open.add(number)
        if not self._sse:  # the SDK swallows `[DONE]`: every choice must have finished
            self.ended = bool(self._finished) and not self._open
        delta = fields_of(get("delta"))
        for name in OPENAI_PIECES:
            if delta(name) not in (None, "", []):
                self.pieces += 1
                return
        self.pieces += text_of(get("text")) != ""

    def missing_end(self) -> str:
        """Return the end marker, or the choice that has not finished."""
        if self._open and not self._sse:
            return f"the `finish_reason` of choice {', '.join(map(str, sorted(self._open)))}"
        return super().missing_end()


ANTHROPIC_END = "message_stop"
ANTHROPIC_EVENTS = {"message_start", "message_delta", ANTHROPIC_END} | {
    f"content_block_{event}" for event in ("start", "delta", "stop")
}
ANTHROPIC_PIECES = ("text", "thinking", "partial_json")


class Anthropic(ProviderEvents):
    """A stream of one message. The SDK adds events derived from these, which are ignored."""

    end_marker, ended_by_done = f"`{ANTHROPIC_END}`", False

    def recognises(self, get: Fields, event_type: str) -> bool:  # noqa: ARG002  the type is enough
        """Return True if the event type is one of Anthropic."""
        return event_type in ANTHROPIC_EVENTS

    def record(self, get: Fields, event_type: str, *, sse: bool) -> None:  # noqa: ARG002  it ends in the same way
        """Record the next event."""
        if event_type == "content_block_delta":
            delta = fields_of(get("delta"))
            self.pieces += any(text_of(delta(name)) for name in ANTHROPIC_PIECES)
        elif event_type in ANTHROPIC_EVENTS:
            self.record_usage(fields_of(get("message")))
            self.record_usage(get)
            self.ended = self.ended or event_type == ANTHROPIC_END


PROVIDERS: dict[str, type[ProviderEvents]] = {"openai": OpenAI, "anthropic": Anthropic}


class DetectedProtocol(Protocol):
    """A built-in protocol: the one called ``name``, or with ``auto`` the one that it detects.

    A protocol given by name requires its end marker, whatever the chunks are. ``auto`` requires the end
    marker of the provider that it detects, and nothing of unknown streams.
    """

    def __init__(self, name: str = "auto") -> None:
        self.name = name
        self.known = name != "auto"
        self._recognised = False
        self._events = PROVIDERS.get(name, ProviderEvents)()
        self._body = EventStream()

    def read(self, chunk: object, /) -> ErrorEvent | None:
        """Inspect the next chunk."""
        try:
            if isinstance(chunk, TEXTS):
                error = self._read_text(cast("str | bytes", chunk))
            else:
                get = fields_of(chunk)
                data = get("data")
                # An event of an SSE library has other fields beside ``data``; a dict of the caller's has not.
                if isinstance(data, str) and any(has_field(chunk, name) for name in SSE_FIELDS):
                    error = self._read_sse(text_of(get("event")) or text_of(get("type")), data)
                else:
                    error = self._read_event(chunk, get, text_of(get("type")), sse=False)
        except Exception:
            error = None  # its fields cannot be read
        events = self._events
        self.usage, self.pieces, self.ended = events.usage, events.pieces, events.ended
        return error

    def _read_text(self, piece: str | bytes) -> ErrorEvent | None:
        first: ErrorEvent | None = None
        for name, data in self._body.feed(piece):
            error = self._read_sse(name, data)
            first = first or error
        if self._body.is_sse is False:
            self._events.pieces += bool(piece)  # plain text
        elif self._body.done_received:
            self._events.record_done()
        return first

    def _read_sse(self, name: str, data: str | None) -> ErrorEvent | None:
        if data is not None and data.startswith(DONE):
            self._events.record_done()
            return None
        try:
            event: object = None if data is None else _decode_json(data)
        except (ValueError, RecursionError):
            event = None
        is_error = name == "error"
        if is_error and not isinstance(event, DICT):
            event = {"message": data}
        get = fields_of(event)
        event_type = name if is_error else text_of(get("type")) or name
        return self._read_event(event, get, event_type, sse=True)

    def _read_event(self, event: object, get: Fields, event_type: str, *, sse: bool) -> ErrorEvent | None:
        if not self._recognised:
            self._recognise(get, event_type)
        error = None
        if event_type in ("error", "response.failed") or get("error") is not None:
            error = error_in(event, get, event_type, from_provider=sse or self.known)
        if error is None or self._recognised:
            self._events.record(get, event_type, sse=sse)
        return error

    def _recognise(self, get: Fields, event_type: str) -> None:
        candidates = [self._events] if self.name != "auto" else [make() for make in PROVIDERS.values()]
        for events in candidates:
            if events.recognises(get, event_type):
                self._recognised = self.known = True
                self._events = events

    def cut_short(self) -> str:
        """Return the message of a `CutShort`: what was missing at the end."""
        message = f"the stream ended before it was complete: {self._events.missing_end()} never came"
        if self._recognised:
            return message
        return (
            f"{message}, nor any other chunk that protocol={self.name!r} recognises; "
            "if the chunks have a format of your own, write protocol=None"
        )


NAMES = ("auto", "openai", "anthropic", "sse")
CHOICES = "'auto', 'openai', 'anthropic' or 'sse', a class derived from Protocol, or None to inspect nothing"


def protocol_factory(protocol: object) -> ProtocolFactory | None:
    """Return the function that creates a protocol for each attempt, or None to inspect nothing."""
    if protocol is None:
        return None
    if isinstance(protocol, str):
        if protocol in NAMES:
            return partial(DetectedProtocol, protocol)
        close = nearest(protocol.lower(), NAMES)
        advice = f" ({close})" if close.startswith("did you mean") else ""
        raise ValueError(f"protocol={protocol!r}: write {CHOICES}{advice}")
    if isinstance(protocol, Protocol):
        name = type(protocol).__name__
        raise TypeError(f"protocol={name}(...): write {name}, the class: each attempt needs a new one")
    if not callable(protocol) or (isinstance(protocol, type) and not issubclass(protocol, Protocol)):
        raise TypeError(f"protocol={protocol!r}: write {CHOICES}")
    name = display_name(protocol)
    if (kind := lazy_kind(protocol)) is not None:
        raise TypeError(f"protocol={name} is {kind}: write a plain one that returns a Protocol")
    if isabstract(protocol):
        missing = " and ".join(sorted(cast("type[Protocol]", protocol).__abstractmethods__))
        raise TypeError(f"protocol={name} is not complete: write {missing} in it")
    return cast("ProtocolFactory", protocol)
