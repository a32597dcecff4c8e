"""Protocol: what is asked about a stream while it passes.

It is shown each chunk and says what it makes of it. It holds none back, changes none, and reads nothing
itself: whoever shows the chunks passes them on. The protocols that we know are in `_protocols`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from redouble._internal.public import public
from redouble.llm._errors import ErrorEvent
from redouble.llm._usage import Usage

__all__ = ["Protocol"]


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
