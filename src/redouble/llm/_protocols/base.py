"""Protocol, which inspects the chunks of a stream.

A protocol is given each chunk before it is delivered. It holds none back, changes none, and reads nothing
from the source itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from redouble._internal.public import public
from redouble.llm._errors import ErrorEvent
from redouble.llm._spend.usage import Usage


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


ProtocolFactory: TypeAlias = Callable[[], Protocol]  # called for each attempt
