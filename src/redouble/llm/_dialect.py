"""Dialect: the events of one provider, one after the other, and what has been said with them so far.

An event is a dict or an object, and has a word: its type, or the name under which it came. How it came, and
where from, is not known here; nor what an error looks like.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from redouble.llm._said import more, usage_of
from redouble.llm._usage import Usage

__all__ = ["Dialect", "Plain"]


class Dialect(ABC):
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


class Plain(Dialect):
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
