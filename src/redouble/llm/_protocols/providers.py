"""The events of OpenAI (chat completions and responses, and the many APIs made like them) and of Anthropic.

Each class reads events as they come over the wire and as the provider's SDK returns them.
"""

from __future__ import annotations

from redouble.llm._protocols.base import ProviderEvents
from redouble.llm._protocols.fields import get_field, get_list, get_text, merge_usage, usage_of

__all__ = ["Anthropic", "OpenAI"]


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
    """A stream of chat completions, of completions, or of a response."""

    def __init__(self) -> None:
        self._sse = self._responses = False
        self._open: set[int] = set()  # choices, by index
        self._finished: set[int] = set()

    def recognises(self, event: object, event_type: str) -> bool:
        """Return True if the event type or the choices are those of OpenAI."""
        if event_type.startswith("response."):
            return get_field(event, "event_id") is None  # events of the realtime API have it
        chunk = get_field(event, "chunk") if event_type == "chunk" else event
        choices = get_list(chunk, "choices")
        return (
            isinstance(get_field(chunk, "choices"), list) and get_text(chunk, "object") in OPENAI_CHUNKS
        ) or any(get_field(choice, "delta") is not None for choice in choices)

    def record(self, event: object, event_type: str, *, sse: bool) -> None:
        """Record the next event."""
        if event_type.startswith("response."):
            self._responses = True
            self.ended = self.ended or event_type in OPENAI_ENDS
            self.pieces += event_type.endswith(".delta")
            self.usage = merge_usage(self.usage, usage_of(get_field(event, "response")))
            return
        # The SDK's `chat.completions.stream()` wraps the chunks in events of its own.
        chunk = get_field(event, "chunk") if event_type == "chunk" else event
        self.usage = merge_usage(self.usage, usage_of(chunk))
        self._sse = self._sse or sse
        for choice in get_list(chunk, "choices"):
            self._choice(choice)

    def _choice(self, choice: object) -> None:
        index = get_field(choice, "index")
        number = index if isinstance(index, int) else 0
        if get_text(choice, "finish_reason"):
            self._finished.add(number)
            self._open.discard(number)
        elif number not in self._finished:  # audio has one more update after its finish_reason
            self._open.add(number)
        if not self._sse:  # the SDK swallows `[DONE]`: every choice must have finished
            self.ended = bool(self._finished) and not self._open
        self.pieces += _has_piece(choice)

    def record_done(self) -> None:
        """Record the end, except of a response, which has its own: gateways add ``[DONE]`` to anything."""
        self.ended = self.ended or not self._responses

    def missing_end(self) -> str:
        """Return the last event, or the choice that has not finished."""
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


ANTHROPIC_END = "message_stop"
EVENT_TYPES = frozenset(
    {
        *("message_start", "message_delta", ANTHROPIC_END),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)
ANTHROPIC_PIECES = ("text", "thinking", "partial_json")


class Anthropic(ProviderEvents):
    """A stream of one message. The SDK adds events derived from these, which are ignored."""

    def recognises(self, event: object, event_type: str) -> bool:  # noqa: ARG002  the type is enough
        """Return True if the event type is one of Anthropic."""
        return event_type in EVENT_TYPES

    def record(self, event: object, event_type: str, *, sse: bool) -> None:  # noqa: ARG002  it ends in the same way
        """Record the next event."""
        if event_type == "content_block_delta":
            delta = get_field(event, "delta")
            self.pieces += any(get_text(delta, name) for name in ANTHROPIC_PIECES)
        elif event_type in EVENT_TYPES:
            self.usage = merge_usage(
                self.usage, merge_usage(usage_of(get_field(event, "message")), usage_of(event))
            )
            self.ended = self.ended or event_type == ANTHROPIC_END

    def record_done(self) -> None:
        """Ignore it: Anthropic does not send it, but gateways add it to anything."""

    def missing_end(self) -> str:
        """Return the last event."""
        return f"`{ANTHROPIC_END}`"
