"""What OpenAI's interfaces say, and the many that are made like them: chat completions and responses.

Their events are known here, as they come over the wire and as their SDK gives them.

What Anthropic's interface says: the events of a message, over the wire and as their SDK gives them.
"""

from __future__ import annotations

from redouble.llm._protocols.base import ProviderEvents
from redouble.llm._protocols.fields import get_field, get_list, get_text, more, usage_of

__all__ = ["Anthropic", "OpenAI"]


CHUNKS = ("chat.completion.chunk", "text_completion")
ENDS = ("response.completed", "response.incomplete")  # the second by a limit that the caller has set

# Where a choice keeps what the model has said, its thoughts included: they are paid for as well.
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
    """A stream of chat completions, of completions, or of a response."""

    def __init__(self) -> None:
        self._sse = self._responses = False
        self._open: set[int] = set()  # choices, by index
        self._finished: set[int] = set()

    def knows(self, thing: object, word: str) -> bool:
        """Tell by the name of the event, or by its choices."""
        if word.startswith("response."):
            return get_field(thing, "event_id") is None  # one that has it is of the realtime interface
        chunk = get_field(thing, "chunk") if word == "chunk" else thing
        choices = get_list(chunk, "choices")
        return (isinstance(get_field(chunk, "choices"), list) and get_text(chunk, "object") in CHUNKS) or any(
            get_field(choice, "delta") is not None for choice in choices
        )

    def hear(self, thing: object, word: str, *, sse: bool) -> None:
        """Take the next event."""
        if word.startswith("response."):
            self._responses = True
            self.ended = self.ended or word in ENDS
            self.pieces += word.endswith(".delta")
            self.usage = more(self.usage, usage_of(get_field(thing, "response")))
            return
        # Their SDK's `chat.completions.stream()` has the chunks inside events of its own.
        chunk = get_field(thing, "chunk") if word == "chunk" else thing
        self.usage = more(self.usage, usage_of(chunk))
        self._sse = self._sse or sse
        for choice in get_list(chunk, "choices"):
            self._choice(choice)

    def _choice(self, choice: object) -> None:
        index = get_field(choice, "index")
        number = index if isinstance(index, int) else 0
        if get_text(choice, "finish_reason"):
            self._finished.add(number)
            self._open.discard(number)
        elif number not in self._finished:  # sound has a last update after that
            self._open.add(number)
        if not self._sse:  # their SDK keeps the `[DONE]` to itself: every choice must have finished
            self.ended = bool(self._finished) and not self._open
        self.pieces += _has_piece(choice)

    def done(self) -> None:
        """Take it for the end, but not of a response: that has its own, and gateways add this to anything."""
        self.ended = self.ended or not self._responses

    def missing(self) -> str:
        """Name the last event, or the choice that has not finished."""
        if self._responses:
            return "`response.completed`"
        if self._open and not self._sse:
            return f"the `finish_reason` of choice {', '.join(map(str, sorted(self._open)))}"
        return "`data: [DONE]`"


def _has_piece(choice: object) -> bool:
    delta = get_field(choice, "delta")
    for name in OPENAI_PIECES:
        if get_field(delta, name) not in (None, "", []):
            return True
    return get_text(choice, "text") != ""


END = "message_stop"
WORDS = frozenset(
    {
        *("message_start", "message_delta", END),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
ANTHROPIC_PIECES = ("text", "thinking", "partial_json")


class Anthropic(ProviderEvents):
    """A stream of one message. The SDK has more events, made of these: they tell nothing new."""

    def knows(self, thing: object, word: str) -> bool:  # noqa: ARG002  the word is enough
        """Tell by the name of the event."""
        return word in WORDS

    def hear(self, thing: object, word: str, *, sse: bool) -> None:  # noqa: ARG002  it ends in the same way
        """Take the next event."""
        if word == "content_block_delta":
            delta = get_field(thing, "delta")
            self.pieces += any(get_text(delta, name) for name in ANTHROPIC_PIECES)
        elif word in WORDS:
            self.usage = more(self.usage, more(usage_of(get_field(thing, "message")), usage_of(thing)))
            self.ended = self.ended or word == END

    def done(self) -> None:
        """Take no notice: it is not theirs, and gateways add it to anything."""

    def missing(self) -> str:
        """Name the last event."""
        return f"`{END}`"
