"""The requests of a call whose client streams: whether they can be sent anew, and what sends them.

What can be iterated anew is. Of what cannot (a generator), each item goes to one attempt only; as long as no
attempt has had one, the next may begin. gRPC takes items in a thread or a task of its own, which may outlive
its attempt: what it takes too late is kept for the attempt after it.
"""

from __future__ import annotations

from _thread import allocate_lock
from asyncio import Future, ensure_future, wait
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from reprlib import repr as shortly
from typing import Any, cast

from redouble._drivers.stream_source import END

__all__ = ["AsyncBufferedRequests", "BufferedRequests", "RequestSource", "requests_of"]


class RequestSource:
    """Requests that each attempt has from the beginning: also the only one of a unary call."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def again(self) -> bool:
        """Say whether another attempt may have them; if so, no earlier one will have any from now on."""
        return True

    def anew(self) -> Any:
        """Return what the next attempt sends."""
        return self._source

    def close(self) -> None:
        """Learn that the call is over."""


class RewindableRequests(RequestSource):
    """The same for blocking streams, where gRPC wants an iterator."""

    def anew(self) -> Iterator[Any]:
        return iter(self._source)


class BufferedRequests(RequestSource):
    """Requests that can be had once, in blocking code, or from a plain iterator in async code."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._current: object = None  # the attempt that may take them
        self._taken = False
        self._kept: tuple[Any, Exception | None] | None = (
            None  # what was taken by one that had failed by then
        )
        self._deciding = allocate_lock()  # held for a moment
        self._taking = allocate_lock()  # held for as long as the next item is waited for

    def again(self) -> bool:
        with self._deciding:
            if self._taken:
                return False
            self._current = None
            return True

    def anew(self) -> Iterator[Any]:
        self._current = current = AttemptRequests(self)
        return current

    def take(self, attempt: object) -> Any:
        """Take the next item for an attempt."""
        with self._taking:
            (item, error), self._kept = self._kept or self._asked(), None
            try:
                with self._deciding:
                    if self._current is attempt:
                        self._taken = self._taken or error is not None or item is not END
                        if error is not None:
                            raise error
                        return item
                # An error too: after it there is nothing more, which must not pass for all there was.
                self._kept = item, error
            finally:
                del error
            return END

    def _asked(self) -> tuple[Any, Exception | None]:
        try:
            return next(self._source, END), None
        except Exception as error:
            return END, error


class AttemptRequests:
    """What one attempt takes its requests from."""

    def __init__(self, requests: BufferedRequests) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        item = self._requests.take(self)
        if item is END:
            raise StopIteration
        return item


class AsyncBufferedRequests(RequestSource):
    """Requests that can be had once, in async code: the caller's async iterator, or what it writes."""

    def __init__(self, source: AsyncIterator[Any]) -> None:
        super().__init__(source)
        self._current: object = None
        self._taken = False
        self._next: Future[Any] | None = None  # what all attempts wait for, and one gets

    def again(self) -> bool:
        if self._taken:
            return False
        self._current = None
        return True

    def anew(self) -> AsyncIterator[Any]:
        self._current = current = AsyncAttemptRequests(self)
        return current

    def close(self) -> None:
        self._current = None
        if self._next is not None:
            self._next.cancel()  # which also tells asyncio that nobody minds how it ended
            self._next = None

    async def take(self, attempt: object) -> Any:
        """Take the next item for an attempt."""
        if self._current is not attempt:
            return END
        if self._next is None:
            self._next = ensure_future(self._ask())
        asked = self._next
        await wait([asked])  # which leaves it alone if we are cancelled
        if self._current is not attempt:
            return END
        self._next = None
        taken, self._taken = self._taken, True  # also by an error: there is nothing after that
        item = asked.result()
        self._taken = taken or item is not END
        return item

    async def _ask(self) -> Any:
        return await anext(self._source, END)


class AsyncAttemptRequests:
    """What one attempt takes its requests from."""

    def __init__(self, requests: AsyncBufferedRequests) -> None:
        self._requests = requests

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        item = await self._requests.take(self)
        if item is END:
            raise StopAsyncIteration
        return item


def requests_of(source: Any, *, aio: bool) -> RequestSource:
    """Look at the requests of a call whose client streams."""
    if isinstance(source, bytes | bytearray | str):  # which would be sent byte by byte, or never
        raise TypeError(f"requests={shortly(source)} is one message: write [{shortly(source)}]")
    if aio and isinstance(source, AsyncIterable):
        items = aiter(cast("Any", source))
        once = items is source
        return AsyncBufferedRequests(items) if once else RequestSource(source)
    try:
        once = iter(source) is source
    except TypeError:  # gRPC itself has words for it
        return RequestSource(source)
    if once:
        return BufferedRequests(source)
    return RequestSource(source) if aio else RewindableRequests(source)
