"""Answers that we hand out: what is different about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

__all__ = ["KEY", "Gone", "Pieces", "blank"]

KEY = "redouble"  # in the extensions of a request: what its caller says about it


class Pieces:
    """A body of which some was read before: the rest follows, or the error it ended in."""

    def __init__(self, held: list[bytes], rest: Any, stream: Any, error: Exception | None) -> None:
        self._held, self._rest, self._stream, self._error = held, rest, stream, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._held
        if self._error is not None:
            raise self._error
        yield from self._rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._held:
            yield piece
        if self._error is not None:
            raise self._error
        async for piece in self._rest:
            yield piece

    def close(self) -> None:
        """Close what is left."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close what is left."""
        if self._error is None:
            await self._rest.aclose()  # which was left in the middle
        await self._stream.aclose()


def blank(kind: type[Any]) -> Any:
    """Make an answer to be filled, in another process perhaps."""
    return object.__new__(kind)


class Gone:
    """What is left of a body that was pickled with its answer before anybody had read it."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def read_whole(self) -> Any:
        """Say that nothing is left, whether or not somebody would have awaited it."""
        raise self._error
