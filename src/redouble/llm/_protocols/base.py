"""Protocol, which inspects the chunks of a stream, and ProviderEvents, which reads one provider's events.

A protocol is given each chunk before it is delivered. It holds none back, changes none, and reads nothing
from the source itself.

An event is a dict or an object and has an event type: its ``type`` field, or the name of its SSE event.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from redouble._internal.public import public
from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.fields import merge_usage, usage_of
from redouble.llm._spend.usage import Usage

__all__ = ["PlainEvents", "Protocol", "ProviderEvents"]


@public("redouble.llm")
class Protocol(ABC):
    r"""How a stream reports its end, its errors and its usage.

    Derive your own for a server with a format of its own; an instance is created for each attempt.

        class Lines(Protocol):
            def read(self, chunk, /):
                self.known = True
                self.pieces += 1
                self.ended = chunk == b"END\n"

            def cut_short(self):
                return "the stream ended without END"
    """

    known: bool = False
    """True if the stream was recognised as one of this protocol: then it must send its end marker."""

    ended: bool = False
    """True if the stream has sent its end marker."""

    usage: Usage | None = None
    """The tokens reported so far, or None."""

    pieces: int = 0
    """The number of pieces of the answer received so far: about a token each."""

    @abstractmethod
    def read(self, chunk: object, /) -> ErrorEvent | None:
        """Inspect the next chunk; return the error that it is or contains, or None."""

    @abstractmethod
    def cut_short(self) -> str:
        """Return the message of a `CutShort`: what was missing at the end."""


class ProviderEvents(ABC):
    """The state of one provider's stream: ``usage``, the number of ``pieces``, and if it has ``ended``."""

    usage: Usage | None = None
    pieces: int = 0
    ended: bool = False

    @abstractmethod
    def recognises(self, event: object, event_type: str) -> bool:
        """Return True if an event is one of this provider's."""

    @abstractmethod
    def record(self, event: object, event_type: str, *, sse: bool) -> None:
        """Record the next event; ``sse``: it came as a server-sent event, not through an SDK."""

    @abstractmethod
    def record_done(self) -> None:
        """Record a ``[DONE]``."""

    @abstractmethod
    def missing_end(self) -> str:
        """Return the name of the end marker that has not come."""


class PlainEvents(ProviderEvents):
    """Server-sent events of any provider that end with ``[DONE]``."""

    def recognises(self, event: object, event_type: str) -> bool:  # noqa: ARG002  all of them
        """Return True for every event."""
        return True

    def record(self, event: object, event_type: str, *, sse: bool) -> None:  # noqa: ARG002  each is a piece
        """Count the event as a piece."""
        self.usage = merge_usage(self.usage, usage_of(event))
        self.pieces += 1

    def record_done(self) -> None:
        """Record the end."""
        self.ended = True

    def missing_end(self) -> str:
        """Return the last event."""
        return "`data: [DONE]`"
