"""The text of an answer, for readers that need neither events nor chunks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Protocol

from redouble._internal.public import public
from redouble.llm._protocols.builtin import TEXTS
from redouble.llm._protocols.fields import fields_of, list_of, text_of


class Chunks(Protocol):
    """The chunks of a stream, in either colour."""

    def __next__(self) -> object: ...

    async def __anext__(self) -> object: ...


@public("redouble.llm")
class TextStream(Iterator[str], AsyncIterator[str]):
    """The text of a guarded stream, piece by piece, for ``for`` or ``async for``: see `Answer.text_stream`.

    Each piece is taken from a chunk when the chunk is delivered; chunks without text are skipped.
    """

    def __init__(self, chunks: Chunks) -> None:
        self._chunks = chunks

    def __next__(self) -> str:
        while not (text := text_in(next(self._chunks))):
            pass
        return text

    async def __anext__(self) -> str:
        while not (text := text_in(await anext(self._chunks))):
            pass
        return text


def text_in(chunk: object) -> str:
    """Return the text that a chunk adds to the answer, or an empty text; of several choices, the first one's.

    >>> text_in({"choices": [{"index": 0, "delta": {"content": "Hel"}}]})
    'Hel'
    """
    if isinstance(chunk, TEXTS):
        raise TypeError(
            "text_stream reads events of an SDK or parsed dicts, and this stream has raw text or bytes: "
            "iterate over the stream itself"
        )
    get = fields_of(chunk)
    event_type = text_of(get("type"))
    if event_type == "chunk":  # the SDK of OpenAI wraps chunks in events of its own
        get = fields_of(get("chunk"))
    elif event_type == "content_block_delta":
        return text_of(fields_of(get("delta"))("text"))
    elif event_type == "response.output_text.delta":
        return text_of(get("delta"))
    for choice in list_of(get("choices")):
        read = fields_of(choice)
        if not read("index"):
            return text_of(fields_of(read("delta"))("content")) or text_of(read("text"))
    return ""
