"""The requests of a call: whether another attempt may send them, and the iterator of each attempt.

Each attempt iterates over an iterable from its beginning. Each item of an iterator goes to one attempt only;
another attempt may start as long as no attempt has received an item. gRPC reads items in a thread or a
task of its own, which may outlive its attempt: an item that it reads too late is buffered for the next one.
"""

from __future__ import annotations

from _thread import allocate_lock
from asyncio import Future, ensure_future, wait
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from reprlib import repr as shortly
from typing import Any, cast

from redouble._drivers.opened_stream import END


class RequestSource:
    """Requests that every attempt can send: an iterable, or the single request of a unary call."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def can_resend(self) -> bool:
        """Return True if another attempt may send them; if so, earlier attempts receive no further items."""
        return True

    def for_attempt(self) -> Any:
        """Return the requests for the next attempt."""
        return self._source

    def close(self) -> None:
        """Release resources at the end of the call."""


class RewindableRequests(RequestSource):
    """Iterable requests in blocking code, where gRPC requires an iterator."""

    def for_attempt(self) -> Iterator[Any]:
        return iter(self._source)


class BufferedRequests(RequestSource):
    """Requests of an iterator in blocking code, or of a synchronous iterator in async code."""

    def __init__(self, source: Any) -> None:
        super().__init__(source)
        self._current: object = None  # the attempt that may receive items
        self._sent = False
        # The item or error that an attempt read after it had failed.
        self._late_read: tuple[Any, Exception | None] | None = None
        self._lock = allocate_lock()  # guards the state; held briefly
        self._read_lock = allocate_lock()  # serialises reads; held while the next item is awaited

    def can_resend(self) -> bool:
        with self._lock:
            if self._sent:
                return False
            self._current = None
            return True

    def for_attempt(self) -> Any:
        self._current = current = object()
        return self._items(current)

    def _items(self, attempt: object) -> Iterator[Any]:
        while (item := self.take(attempt)) is not END:
            yield item

    def take(self, attempt: object) -> Any:
        """Return the next item for an attempt; `END` if there is none, or the attempt is not current."""
        with self._read_lock:
            (item, error), self._late_read = self._late_read or self._read(), None
            try:
                with self._lock:
                    if self._current is attempt:
                        self._sent = self._sent or error is not None or item is not END
                        if error is not None:
                            raise error
                        return item
                # An error too: it exhausts the iterator, and the next attempt would send too few requests.
                self._late_read = item, error
            finally:
                del error
            return END

    def _read(self) -> tuple[Any, Exception | None]:
        try:
            return next(self._source, END), None
        except Exception as error:
            return END, error


class AsyncBufferedRequests(BufferedRequests):
    """Requests of an async iterator: the caller's own, or the one that gRPC makes of the caller's writes."""

    _next: Future[Any] | None = None  # the pending read, shared by attempts; one gets its item

    def for_attempt(self) -> Any:
        self._current = current = AsyncAttemptRequests(self)
        return current

    def close(self) -> None:
        self._current = None
        if self._next is not None:
            self._next.cancel()  # also keeps asyncio from logging its error as never retrieved
            self._next = None

    async def take(self, attempt: object) -> Any:
        """Return the next item for an attempt; `END` if there is none, or the attempt is not current."""
        if self._current is not attempt:
            return END
        if self._next is None:
            self._next = ensure_future(self._read_ahead())
        pending = self._next
        await wait([pending])  # does not cancel the read if this task is cancelled
        if self._current is not attempt:
            return END
        self._next = None
        # An error counts as sent too, because it exhausts the iterator.
        sent, self._sent = self._sent, True
        item = pending.result()
        self._sent = sent or item is not END
        return item

    async def _read_ahead(self) -> Any:
        return await anext(self._source, END)


class AsyncAttemptRequests:
    """The iterator from which one attempt reads its requests."""

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
    """Return the request source for the requests of a call whose client streams."""
    if isinstance(source, bytes | bytearray | str):  # would be sent byte by byte, or never
        raise TypeError(f"requests={shortly(source)} is one message: write [{shortly(source)}]")
    if aio and isinstance(source, AsyncIterable):
        items = aiter(cast("Any", source))
        once = items is source
        return AsyncBufferedRequests(items) if once else RequestSource(source)
    try:
        once = iter(source) is source
    except TypeError:  # gRPC itself raises an error for it
        return RequestSource(source)
    if once:
        return BufferedRequests(source)
    return RequestSource(source) if aio else RewindableRequests(source)
