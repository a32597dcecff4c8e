"""The protocols that we know, and which of them is meant by ``protocol=``.

A chunk may be a piece of a body, a line, an event, a dict or an object: here it becomes an event, if it is
one, for the dialect that knows it. Nothing in here raises, whatever a chunk may be.
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

__all__ = ["DetectedProtocol", "protocol_of"]


DIALECTS: dict[str, type[ProviderEvents]] = {"openai": OpenAI, "anthropic": Anthropic, "sse": PlainEvents}
TEXT, BUFFER = (str, bytes), (bytearray, memoryview)
OF_EVENTS = ("event", "last_event_id", "origin")
RECOGNISED = (OpenAI, Anthropic)


class DetectedProtocol(Protocol):
    """Any of our protocols: that of ``name``, or ``auto``, which is the one that it hears.

    One that was named is demanded: its end must come, whatever else does. ``auto`` demands the end of what
    it recognises, and nothing of streams that it does not know.
    """

    def __init__(self, name: str = "auto") -> None:
        self.name = name
        self.known = name != "auto"
        self._heard = False
        self._dialect = DIALECTS.get(name, PlainEvents)()
        self._body = EventStream()
        self._decode: Callable[[str], object] | None = None

    def read(self, chunk: object, /) -> ErrorEvent | None:
        """Look at the next chunk."""
        try:
            error = self._read(chunk)
        except Exception:
            error = None  # it does not let itself be looked at
        self.usage, self.pieces = self._dialect.usage, self._dialect.pieces
        self.ended = self._dialect.ended
        return error

    def _read(self, chunk: object) -> ErrorEvent | None:
        if isinstance(chunk, TEXT):
            return self._piece(chunk)
        if isinstance(chunk, BUFFER):
            return self._piece(bytes(cast("bytearray", chunk)))
        data = get_field(chunk, "data")
        # An event of a library for server-sent events has more than that; a dict of somebody's own has not.
        if isinstance(data, str) and any(has_field(chunk, name) for name in OF_EVENTS):
            return self._event(get_text(chunk, "event") or get_text(chunk, "type"), data)
        return self._thing(chunk, get_text(chunk, "type"), sse=False)

    def _piece(self, piece: str | bytes) -> ErrorEvent | None:
        first: ErrorEvent | None = None
        for name, data in self._body.feed(piece):
            error = self._event(name, data)
            first = first or error
        if self._body.is_sse is False:
            self._dialect.pieces += bool(piece)  # a text of the caller's own
        elif self._body.said_done:
            self._dialect.done()
        return first

    def _event(self, name: str, data: str | None) -> ErrorEvent | None:
        if data is not None and data.startswith(DONE):
            self._dialect.done()
            return None
        thing = None if data is None else self._parsed(data)
        if name == "error":
            return self._thing(thing if isinstance(thing, DICT) else {"message": data}, name, sse=True)
        return self._thing(thing, get_text(thing, "type") or name, sse=True)

    def _parsed(self, data: str) -> object:
        if self._decode is None:
            from json import JSONDecoder  # noqa: PLC0415  for those whose chunks are not parsed yet

            self._decode = JSONDecoder().decode
        try:
            return self._decode(data)
        except (ValueError, RecursionError):
            return None

    def _thing(self, thing: object, word: str, *, sse: bool) -> ErrorEvent | None:
        if not self._heard:
            self._recognise(thing, word)
        error = error_in(thing, word, sure=sse or self.known)
        if error is None or self._heard:
            self._dialect.hear(thing, word, sse=sse)
        return error

    def _recognise(self, thing: object, word: str) -> None:
        if self.name != "auto":
            self._heard = self._dialect.knows(thing, word)
            return
        for made in RECOGNISED:
            dialect = made()
            if dialect.knows(thing, word):
                self._heard = self.known = True
                self._dialect = dialect

    def cut_short(self) -> str:
        """Say what was missing at the end."""
        told = f"the stream ended before it said that it was complete: {self._dialect.missing()} never came"
        if self._heard:
            return told
        return (
            f"{told}, nor anything else that protocol={self.name!r} knows; "
            "if the chunks are of your own making, write protocol=None"
        )


MAKERS: dict[str, Callable[[], Protocol]] = {
    name: partial(DetectedProtocol, name) for name in ("auto", *DIALECTS)
}
CHOICES = "'auto', 'openai', 'anthropic' or 'sse', a class derived from Protocol, or None to look at nothing"


def protocol_of(said: str | Callable[[], Protocol] | None) -> Callable[[], Protocol] | None:
    """Return what makes a protocol for each attempt, or None if nothing is to be looked at."""
    given: object = said
    if said is None:
        return None
    if isinstance(said, str):
        if said in MAKERS:
            return MAKERS[said]
        raise ValueError(f"protocol={said!r}: write {CHOICES}{_nearest(said)}")
    if isinstance(said, Protocol):
        name = type(said).__name__
        raise TypeError(f"protocol={name}(...): write {name}, the class: each attempt needs a new one")
    if not callable(given) or (isinstance(given, type) and not issubclass(given, Protocol)):
        raise TypeError(f"protocol={said!r}: write {CHOICES}")
    if (what := lazy_kind(said)) is not None:
        raise TypeError(f"protocol={display_name(said)} is {what}: write a plain one that returns a Protocol")
    if isabstract(said):
        missing = " and ".join(sorted(cast("frozenset[str]", get_field(said, "__abstractmethods__"))))
        raise TypeError(f"protocol={display_name(said)} is not complete: write {missing} in it")
    return said


def _nearest(said: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415  for those who misspell

    close = get_close_matches(said.lower(), MAKERS, 1)
    return f" (did you mean {close[0]!r}?)" if close else ""
