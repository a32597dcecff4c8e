"""The transports of httpx and httpx2: one implementation, parametrised by `HttpxLibrary`.

Only the transport of a client is replaced. The two libraries differ only in their name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from math import inf
from typing import Any, ClassVar, Generic, TypeVar, cast
from weakref import ref

from anyio import CancelScope, move_on_after  # unlike asyncio's, they wait for the clean-up of httpcore

from redouble._clients.client_call import PreviousHop
from redouble._clients.idempotency_key import Keys
from redouble._clients.socket_deadline import LimitedWaits, ShortenedTimeout
from redouble._layers.layer import Layer
from redouble.http._exchange import Exchange, SuccessRecord, origin, status_text
from redouble.http._httpcore import (
    aclose_stream,
    close_stream,
    drop_lost_connections,
    limit_sockets,
    pool_of,
    reject_retries,
)
from redouble.http._request_body import Rewind, classify_body, classify_parts, nothing_to_rewind
from redouble.http._request_options import EXTENSION, NO_OPTIONS, RequestOptions, request_options
from redouble.http._response_body import OUT_OF_TIME, AsyncRestartableBody, BodyState, RestartableBody
from redouble.http._sender import AsyncSender, Sender, SenderState

TIMEOUT_NAMES = ("connect", "read", "write", "pool")
TransportT = TypeVar("TransportT")  # the base class of the transports that the library has


# ----------------------------------------------------------------------------- response bodies


class PrefetchedBody:
    """A body whose first chunks were already read; the rest follows, or the error that ended it."""

    def __init__(self, chunks: list[bytes], remaining: Any, stream: Any, error: Exception | None) -> None:
        self._chunks, self._remaining, self._stream, self._error = chunks, remaining, stream, error

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._error is not None:
            raise self._error
        yield from self._remaining

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk
        if self._error is not None:
            raise self._error
        async for chunk in self._remaining:
            yield chunk

    def close(self) -> None:
        """Close the underlying stream."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the underlying stream."""
        if self._error is None:
            await self._remaining.aclose()  # the iterator is suspended in the middle
        await self._stream.aclose()


class UnpickledBody:
    """The placeholder of a body that had not been read when its response was pickled."""

    def __init__(self, error: type[Exception]) -> None:
        self._error = error

    def read_whole(self) -> Any:
        """Raise: the body was not pickled with its response."""
        raise self._error


class HttpxBodyState(BodyState):
    """The part of a restartable body that both colours share."""

    module: Any
    read_method: str  # the name of the response's method that reads the whole body
    read_whole: Callable[[], Any]

    _iterated = False
    _is_whole = False  # True if the response is read as a whole, by its own method

    def __init__(self, call: Exchange | SuccessRecord, response: Any) -> None:
        self._call = call
        self.response = ref(response)
        self._stream: Any = response.stream
        response.stream = self
        setattr(response, self.read_method, self.read_whole)  # its caller receives nothing before the end

    def read_once(self) -> Any:
        """Read the response by its own method, as a whole; in async code, return an awaitable."""
        response: Any = self.response()
        if response is None:
            raise self.module.StreamClosed
        if not self._is_whole:
            delattr(response, self.read_method)  # by `vars` every later access would be slower
            self._is_whole = self._iterated = True
        return getattr(response, self.read_method)()

    def __reduce__(self) -> tuple[Any, ...]:
        return UnpickledBody, (self.module.StreamClosed,)  # like any stream, it does not survive pickling

    def replace(self, replacement: Any) -> None:
        self._stream = replacement.stream
        response = self.response()
        if response is not None:
            response.headers = replacement.headers
            response.extensions = replacement.extensions
            if self._is_whole:
                reset(response)  # it is read from the beginning

    def timeout_error(self) -> Exception:
        return cast("Exception", self.module.ReadTimeout(OUT_OF_TIME))


class HttpxBody(HttpxBodyState, RestartableBody):
    """A restartable body for blocking code."""

    read_method = "read"

    def __iter__(self) -> Iterator[bytes]:
        if self._iterated:  # read as a whole, or for a second time: the library's stream decides
            return self.start() if self.until == inf else self._timed_chunks()
        self._iterated = True
        return self.chunks()

    def start(self) -> Iterator[bytes]:
        return iter(self._stream)

    def _timed_chunks(self) -> Iterator[bytes]:
        for chunk in self._stream:
            yield chunk
            self.check_time()

    def close_source(self) -> None:
        """Close the stream that is being read."""
        close_stream(self._stream)

    def close(self) -> None:
        """Close the body: the caller closes the response, or the library does when it has ended."""
        try:
            close_stream(self._stream)
        finally:
            if not self._is_whole:  # else `read_whole` records its end
                self.closed = True
                if self._call.pending:
                    self.end(None)


class AsyncHttpxBody(HttpxBodyState, AsyncRestartableBody):
    """A restartable body for async code."""

    read_method = "aread"

    async def close_source(self) -> None:
        """Close the stream that is being read."""
        await aclose_stream(self._stream)

    async def aclose(self) -> None:
        """Close the body: the caller closes the response, or the library does when it has ended."""
        try:
            await aclose_stream(self._stream)
        finally:
            if not self._is_whole:  # else `read_whole` records its end
                self.closed = True
                if self._call.pending:
                    self.end(None)

    def __aiter__(self) -> AsyncIterator[bytes]:
        if self._iterated:  # read as a whole, or for a second time: the library's stream decides
            return aiter(self._stream)
        self._iterated = True
        return self.chunks()

    def start(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    @contextmanager
    def limited(self, seconds: float) -> Generator[None]:
        with move_on_after(max(0.0, seconds)):
            yield
            return
        raise self.timeout_error()


def reset(response: Any) -> None:
    """Reset a response, so that it can be read from the beginning."""
    response.__dict__.pop("_content", None)
    response.__dict__.pop("_decoder", None)
    response.is_stream_consumed = response.is_closed = False


# --------------------------------------------------------------------------------- the library


class HttpxLibrary:
    """One of the two libraries: its classes, and our subclasses of them."""

    def __init__(self, library: Any, module: str) -> None:
        self.name: str = library.__name__
        self.module = library
        self.ByteStream = library.ByteStream
        self._streams = streams = (library.SyncByteStream, library.AsyncByteStream)
        final = (library.DecodingError, library.StreamError)  # not of the connection
        members = {"__module__": module, "module": library, "final_errors": final}
        self.body = type("RestartableBody", (HttpxBody, streams[0]), members)
        self.async_body = type("AsyncRestartableBody", (AsyncHttpxBody, streams[1]), members)
        self.prefetched_body = type("PrefetchedBody", (PrefetchedBody, *streams), {"__module__": module})

    def classify_stream(self, stream: Any) -> Rewind:
        """Return how the body of a request can be resent; read from private attributes of the library."""
        if type(stream) is self.ByteStream:
            return nothing_to_rewind
        if str(stream.__class__.__module__).partition(".")[0] == self.name:
            if hasattr(stream, "fields"):  # multipart
                return classify_parts(getattr(field, "file", None) for field in stream.fields)
            inner: Any = getattr(stream, "_stream", None)

            def once() -> bool:  # the library records whether an iterator was started
                return getattr(stream, "_is_stream_consumed", True) is False

            return once if isinstance(inner, self._streams) else classify_body(inner, once)
        return lambda: False  # the caller's own class: a second iteration may yield anything


class HttpxState(SenderState, Generic[TransportT]):
    """The non-blocking part of both transports."""

    _library: ClassVar[HttpxLibrary]
    _body_type: Any
    _shortened: tuple[str, ...] = TIMEOUT_NAMES  # the timeouts that an attempt shortens

    def __init__(
        self, policy: Layer | None = None, *, wrapped: TransportT | None = None, idempotency: Keys = None
    ) -> None:
        library, a = self._library.module, "Async" if self._aio else ""
        if wrapped is None:
            wrapped = getattr(library, f"{a}HTTPTransport")()
        if not isinstance(wrapped, getattr(library, f"{a}BaseTransport")):
            name, other = library.__name__, "" if self._aio else "Async"
            raise TypeError(
                f"wrapped={wrapped!r}: write an {name}.{a}HTTPTransport(); "
                f"for {other}Client use {other}Transport"
            )
        reject_retries(wrapped)
        if isinstance(wrapped, HttpxState):
            raise ValueError("wrapped is a redouble transport, so attempts would multiply: leave it out")
        self._wrapped: Any = wrapped
        self._pool = pool_of(wrapped)
        if not self._aio:  # async waits are cancelled
            limit_sockets(wrapped)
        self._body_type = self._library.async_body if self._aio else self._library.body
        self._base_error, self._timeout_error = library.HTTPError, library.TimeoutException
        self._timeout_errors = (library.TimeoutException,)
        self._response_type, self._response_name = library.Response, f"an {library.__name__}.Response"
        super().__init__(self._library.name, policy, idempotency)

    def _is_simple(self, request: Any) -> bool:
        return type(request.stream) is self._library.ByteStream and EXTENSION not in request.extensions

    def _host_of(self, request: Any) -> str:
        url = request.url
        return origin(url.scheme, url.raw_host.decode("ascii"), url.port)

    def _host_key(self, request: Any) -> Any:
        url = request.url
        return url.scheme, url.raw_host, url.port

    def _body_of(self, request: Any) -> Rewind:
        library = self._library
        if not isinstance(request, library.module.Request):
            other = type(request).__module__.partition(".")[0]
            raise TypeError(
                f"redouble.{library.name} is under a client of {other}: use redouble.{other} there"
            )
        return library.classify_stream(request.stream)

    def _options_of(self, request: Any) -> RequestOptions:
        options = request.extensions.get(EXTENSION, NO_OPTIONS)
        if isinstance(options, PreviousHop):
            options = options.options
        return NO_OPTIONS if options is NO_OPTIONS else request_options(options)

    def _put_redirect(self, request: Any, previous: PreviousHop) -> None:
        """Keep it in the extensions, which the client copies to the next request."""
        options = request.extensions.get(EXTENSION, NO_OPTIONS)
        if isinstance(options, PreviousHop):
            options = options.options
        request.extensions[EXTENSION] = previous._replace(options=options)

    def _take_redirect(self, request: Any) -> PreviousHop | None:
        previous = request.extensions.get(EXTENSION)
        if not isinstance(previous, PreviousHop) or previous.request() is request:
            return None  # there is none, or the caller sends the same request again
        response = previous.response()
        by_client = response is not None and response.next_request is not request  # else the caller sends it
        return previous if by_client else None

    @contextmanager
    def _limited(self, exchange: Exchange, seconds: float) -> Generator[None]:
        request, original = exchange.request, exchange.request.extensions
        given: dict[str, float | None] = original.get("timeout") or {}
        own = {name: given.get(name) for name in TIMEOUT_NAMES}
        with LimitedWaits(exchange.now, seconds):
            shortened = exchange.shorten_timeout(seconds)
            timeouts = own | {name: ShortenedTimeout(own[name], shortened) for name in self._shortened}
            request.extensions = {**original, "timeout": timeouts}
            try:
                yield
            finally:
                request.extensions = original
                timeouts.update(own)  # httpcore reads the body by the same mapping

    def _replace_body(
        self, exchange: Exchange, response: Any, received: list[bytes], rest: Any, error: Exception | None
    ) -> None:
        stream = response.stream
        if error is not None or exchange.unread is not None:
            response.stream = self._library.prefetched_body(received, rest, stream, error)
        else:
            self._set_body(response, received)

    def _is_read(self, response: Any) -> bool:
        in_memory = type(response.stream) is self._library.ByteStream
        return (response.is_stream_consumed or response.is_closed) and not in_memory

    def _is_in_memory(self, response: Any) -> bool:
        return type(response.stream) is self._library.ByteStream or self._is_read(response)

    def _set_body(self, response: Any, chunks: list[bytes]) -> None:
        """Replace a body by its chunks, all of which were read, so that rules can read the content."""
        response.stream = self._library.ByteStream(b"".join(chunks))
        with suppress(Exception):  # undecodable content: raised when the caller reads it
            response.read()
        response.is_stream_consumed = response.is_closed = False  # its chunks can be iterated over

    def _status_error(self, exchange: Exchange, response: Any) -> Exception:
        error: Exception = self._library.module.HTTPStatusError(
            status_text(response.status_code), request=exchange.request, response=response
        )
        return error

    def _fits(self, response: Any, replacement: Any) -> bool:
        encodings = [each.headers.get("content-encoding") for each in (response, replacement)]
        return super()._fits(response, replacement) and encodings[0] == encodings[1]

    def _attach_body(self, call: Exchange | SuccessRecord, response: Any) -> bool:
        if type(response.stream) is self._library.ByteStream:
            if isinstance(call, Exchange) and (call.failed_finally or call.plan.reads_bodies):
                reset(response)
            return False
        if response.is_stream_consumed or response.is_closed:
            return False
        self._body_type(call, response)
        return True


class HttpxSender(HttpxState[TransportT], Sender):
    """The transport of a blocking client."""

    handle_request = Sender._send

    def _deliver(self, request: Any) -> Any:
        response = None
        try:
            response = self._wrapped.handle_request(request)
            return response
        finally:
            if response is None and self._pool is not None:
                drop_lost_connections(self._pool)

    def _chunks_of(self, response: Any) -> Iterator[bytes]:
        return iter(response.stream)

    def _release(self, response: Any) -> None:
        close_stream(response.stream)

    def _read_result(self, exchange: Exchange, response: Any) -> None:
        if exchange.plan.reads_bodies:
            chunks = list(response.stream)
            close_stream(response.stream)
            self._set_body(response, chunks)

    def close(self) -> None:
        """Close the wrapped transport."""
        self._closed = True
        self._wrapped.close()


class AsyncHttpxSender(HttpxState[TransportT], AsyncSender):
    """The transport of an async client."""

    # Not "read": httpcore would read the rest of a body that was begun in the attempt by it, after its end.
    _shortened = ("connect", "write", "pool")
    handle_async_request = AsyncSender._send

    async def _deliver(self, request: Any) -> Any:
        response = None
        try:
            response = await self._wrapped.handle_async_request(request)
            return response
        finally:
            if response is None and self._pool is not None:
                drop_lost_connections(self._pool)

    @contextmanager
    def _limited(self, exchange: Exchange, seconds: float) -> Generator[None]:
        with super()._limited(exchange, seconds), move_on_after(max(0.0, seconds - exchange.slack / 2)):
            yield
            return
        raise exchange.record_failure(self._library.module.ReadTimeout("the time of the attempt was up"))

    def _chunks_of(self, response: Any) -> AsyncIterator[bytes]:
        return aiter(response.stream)

    async def _release(self, response: Any) -> None:
        await aclose_stream(response.stream)

    async def _read_result(self, exchange: Exchange, response: Any) -> None:
        if exchange.plan.reads_bodies:
            chunks = [chunk async for chunk in response.stream]
            await aclose_stream(response.stream)
            self._set_body(response, chunks)

    async def _discard(self, response: Any) -> None:
        with CancelScope(shield=True):
            await response.aclose()

    async def aclose(self) -> None:
        """Close the wrapped transport."""
        self._closed = True
        await self._wrapped.aclose()
