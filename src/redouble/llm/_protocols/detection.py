"""DetectedProtocol, the built-in protocols with detection of the provider, and the option ``protocol=``.

A chunk may be a piece of a body, a line, a server-sent event, a dict or an object. `DetectedProtocol` turns
it into an event, if it is one, and records that in the `ProviderEvents` that recognise it. It raises nothing,
whatever a chunk is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isabstract
from typing import cast

from redouble._internal.callables import display_name, lazy_kind
from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.base import PlainEvents, Protocol, ProviderEvents
from redouble.llm._protocols.fields import DICT, error_in, get_field, get_text, has_field
from redouble.llm._protocols.providers import Anthropic, OpenAI
from redouble.llm._protocols.sse import DONE, EventStream

__all__ = ["DetectedProtocol", "protocol_factory"]


PROVIDER_EVENTS: dict[str, type[ProviderEvents]] = {
    "openai": OpenAI,
    "anthropic": Anthropic,
    "sse": PlainEvents,
}
TEXT, BUFFER = (str, bytes), (bytearray, memoryview)
SSE_FIELDS = ("event", "last_event_id", "origin")
DETECTED = (OpenAI, Anthropic)


class DetectedProtocol(Protocol):
    """A built-in protocol: the one called ``name``, or with ``auto`` the one that it detects.

    A protocol given by name requires its end marker, whatever the chunks are. ``auto`` requires the end
    marker of the provider that it detects, and nothing of unknown streams.
    """

    def __init__(self, name: str = "auto") -> None:
        self.name = name
        self.known = name != "auto"
        self._recognised = False
        self._events = PROVIDER_EVENTS.get(name, PlainEvents)()
        self._body = EventStream()
        self._decode: Callable[[str], object] | None = None

    def read(self, chunk: object, /) -> ErrorEvent | None:
        """Inspect the next chunk."""
        try:
            error = self._read(chunk)
        except Exception:
            error = None  # its fields cannot be read
        self.usage, self.pieces = self._events.usage, self._events.pieces
        self.ended = self._events.ended
        return error

    def _read(self, chunk: object) -> ErrorEvent | None:
        if isinstance(chunk, TEXT):
            return self._read_text(chunk)
        if isinstance(chunk, BUFFER):
            return self._read_text(bytes(cast("bytearray", chunk)))
        data = get_field(chunk, "data")
        # An event of an SSE library has other fields beside ``data``; a dict of the caller's own has not.
        if isinstance(data, str) and any(has_field(chunk, name) for name in SSE_FIELDS):
            return self._read_sse(get_text(chunk, "event") or get_text(chunk, "type"), data)
        return self._read_event(chunk, get_text(chunk, "type"), sse=False)

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
        event = None if data is None else self._parse_json(data)
        if name == "error":
            return self._read_event(event if isinstance(event, DICT) else {"message": data}, name, sse=True)
        return self._read_event(event, get_text(event, "type") or name, sse=True)

    def _parse_json(self, data: str) -> object:
        if self._decode is None:
            from json import JSONDecoder  # noqa: PLC0415  only needed for raw chunks

            self._decode = JSONDecoder().decode
        try:
            return self._decode(data)
        except (ValueError, RecursionError):
            return None

    def _read_event(self, event: object, event_type: str, *, sse: bool) -> ErrorEvent | None:
        if not self._recognised:
            self._recognise(event, event_type)
        error = error_in(event, event_type, from_provider=sse or self.known)
        if error is None or self._recognised:
            self._events.record(event, event_type, sse=sse)
        return error

    def _recognise(self, event: object, event_type: str) -> None:
        if self.name != "auto":
            self._recognised = self._events.recognises(event, event_type)
            return
        for provider in DETECTED:
            events = provider()
            if events.recognises(event, event_type):
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


FACTORIES: dict[str, Callable[[], Protocol]] = {
    name: partial(DetectedProtocol, name) for name in ("auto", *PROVIDER_EVENTS)
}
CHOICES = "'auto', 'openai', 'anthropic' or 'sse', a class derived from Protocol, or None to inspect nothing"


def protocol_factory(protocol: str | Callable[[], Protocol] | None) -> Callable[[], Protocol] | None:
    """Return the function that creates a protocol for each attempt, or None to inspect nothing."""
    candidate: object = protocol
    if protocol is None:
        return None
    if isinstance(protocol, str):
        if protocol in FACTORIES:
            return FACTORIES[protocol]
        raise ValueError(f"protocol={protocol!r}: write {CHOICES}{_nearest(protocol)}")
    if isinstance(protocol, Protocol):
        name = type(protocol).__name__
        raise TypeError(f"protocol={name}(...): write {name}, the class: each attempt needs a new one")
    if not callable(candidate) or (isinstance(candidate, type) and not issubclass(candidate, Protocol)):
        raise TypeError(f"protocol={protocol!r}: write {CHOICES}")
    if (kind := lazy_kind(protocol)) is not None:
        raise TypeError(
            f"protocol={display_name(protocol)} is {kind}: write a plain one that returns a Protocol"
        )
    if isabstract(protocol):
        missing = " and ".join(sorted(cast("frozenset[str]", get_field(protocol, "__abstractmethods__"))))
        raise TypeError(f"protocol={display_name(protocol)} is not complete: write {missing} in it")
    return protocol


def _nearest(name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  only needed for a misspelt name

    close = get_close_matches(name.lower(), FACTORIES, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
