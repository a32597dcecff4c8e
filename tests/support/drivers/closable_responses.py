"""Responses that are streams: both the response and its iterator have to be closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any


class ResponseIterator:
    """The iterator of a response, blocking and async."""

    def __init__(self, response: Response) -> None:
        self.response = response

    def _next(self, end: type[Exception]) -> Any:
        if not self.response.left:
            raise end
        item = self.response.left.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> Any:
        return self._next(StopIteration)

    def __aiter__(self) -> ResponseIterator:
        return self

    async def __anext__(self) -> Any:
        return self._next(StopAsyncIteration)

    def close(self) -> None:
        self.response.log.append("iterator")
        self.response.raise_close_error("iterator")

    async def aclose(self) -> None:
        self.close()


class Response:
    """A stream whose iterator has to be closed too; closing either of them may fail."""

    close_error: BaseException | None = None
    failing_part = "response"

    def __init__(self, log: list[str], items: list[Any]) -> None:
        self.log, self.left = log, [*items]
        log.append("open")

    def raise_close_error(self, part: str) -> None:
        if self.close_error is not None and self.failing_part == part:
            raise self.close_error

    def __iter__(self) -> Iterator[Any]:
        return ResponseIterator(self)

    def __aiter__(self) -> AsyncIterator[Any]:
        return ResponseIterator(self)

    def close(self) -> None:
        self.log.append("response")
        self.raise_close_error("response")
