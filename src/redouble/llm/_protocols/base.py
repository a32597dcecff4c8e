"""Protocol: what is asked about a stream while it passes.

It is shown each chunk and says what it makes of it. It holds none back, changes none, and reads nothing
itself: whoever shows the chunks passes them on. The protocols that we know are in `_protocols`.

Dialect: the events of one provider, one after the other, and what has been said with them so far.

An event is a dict or an object, and has a word: its type, or the name under which it came. How it came, and
where from, is not known here; nor what an error looks like.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from redouble._internal.public import public
from redouble.llm._errors import ErrorEvent
from redouble.llm._protocols.fields import more, usage_of
from redouble.llm._spend.usage import Usage

__all__ = ["PlainEvents", "Protocol", "ProviderEvents"]


@public("redouble.llm")
class Protocol(ABC):
    r"""How a stream says that it is complete, that something went wrong, and what it took.

    Write your own for a server that has its own way: a new one is made for each attempt.

        class Lines(Protocol):
            def read(self, chunk, /):
                self.known = True
                self.pieces += 1
                self.ended = chunk == b"END\n"

            def cut_short(self):
                return "the stream ended without END"
    """

    known: bool = False
    """Whether it is a stream of this protocol: one that is must say that it is complete."""

    ended: bool = False
    """Whether the stream has said that it is complete."""

    usage: Usage | None = None
    """The tokens that were reported so far, if any were."""

    pieces: int = 0
    """How many pieces of the answer have come so far: about a token each."""

    @abstractmethod
    def read(self, chunk: object, /) -> ErrorEvent | None:
        """Look at the next chunk, and return the error that it is or brings, if it does."""

    @abstractmethod
    def cut_short(self) -> str:
        """Say what was missing at the end."""


class ProviderEvents(ABC):
    """What a provider has said so far: ``usage``, how many ``pieces`` of the answer, and if it ``ended``."""

    usage: Usage | None = None
    pieces: int = 0
    ended: bool = False

    @abstractmethod
    def knows(self, thing: object, word: str) -> bool:
        """Say whether an event is one of this provider's."""

    @abstractmethod
    def hear(self, thing: object, word: str, *, sse: bool) -> None:
        """Take the next event; ``sse``: it came as such, and not by way of an SDK."""

    @abstractmethod
    def done(self) -> None:
        """Take a ``[DONE]``."""

    @abstractmethod
    def missing(self) -> str:
        """Name what would say that it has ended."""


class PlainEvents(ProviderEvents):
    """Server-sent events that end with ``[DONE]``, whatever they say."""

    def knows(self, thing: object, word: str) -> bool:  # noqa: ARG002  all of them
        """Know everything."""
        return True

    def hear(self, thing: object, word: str, *, sse: bool) -> None:  # noqa: ARG002  each is a piece
        """Count an event."""
        self.usage = more(self.usage, usage_of(thing))
        self.pieces += 1

    def done(self) -> None:
        """Take it for the end."""
        self.ended = True

    def missing(self) -> str:
        """Name the last event."""
        return "`data: [DONE]`"
