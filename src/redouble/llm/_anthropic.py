"""What Anthropic's interface says: the events of a message, over the wire and as their SDK gives them."""

from __future__ import annotations

from redouble.llm._dialect import Dialect
from redouble.llm._said import field, more, text, usage_of

__all__ = ["Anthropic"]

END = "message_stop"
WORDS = frozenset(
    {
        *("message_start", "message_delta", END),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
PIECES = ("text", "thinking", "partial_json")


class Anthropic(Dialect):
    """A stream of one message. The SDK has more events, made of these: they tell nothing new."""

    def knows(self, thing: object, word: str) -> bool:  # noqa: ARG002  the word is enough
        """Tell by the name of the event."""
        return word in WORDS

    def hear(self, thing: object, word: str, *, sse: bool) -> None:  # noqa: ARG002  it ends in the same way
        """Take the next event."""
        if word == "content_block_delta":
            delta = field(thing, "delta")
            self.pieces += any(text(delta, name) for name in PIECES)
        elif word in WORDS:
            self.usage = more(self.usage, more(usage_of(field(thing, "message")), usage_of(thing)))
            self.ended = self.ended or word == END

    def done(self) -> None:
        """Take no notice: it is not theirs, and gateways add it to anything."""

    def missing(self) -> str:
        """Name the last event."""
        return f"`{END}`"
