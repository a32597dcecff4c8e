"""Answer, the chunks of one logical stream, and the opener that retries it until its first chunk.

A delivered chunk is final: a failure after the first one ends the stream. Opening and reading the first chunk
is a call like any other, under the limits of its policy: `StreamOpener` runs it with the driver of streams.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, TypeVar, cast

from redouble._drivers.opened_stream import AsyncSource, Source
from redouble._drivers.streams import Opener, Stream
from redouble._engine.options import Options
from redouble._engine.stream_run import StreamRun
from redouble._internal.public import public
from redouble.llm._call import Call
from redouble.llm._errors import CutShort
from redouble.llm._protocols.base import ProtocolFactory
from redouble.llm._spend.usage import Usage
from redouble.llm._stream import AsyncStream, BlockingStream, GuardedStream
from redouble.llm._text_stream import TextStream

T = TypeVar("T")


class StreamOpener(Opener[T]):
    """One logical stream in one colour: begins its call and opens it, with retries until the first chunk."""

    cancelled = False  # its reader was cancelled

    def __init__(
        self,
        policy: Options,
        name: str,
        begin: Callable[[], Call],
        opens: Callable[[], Any],
        protocol: ProtocolFactory | None,
        *,
        aio: bool,
    ) -> None:
        super().__init__(policy, name, opens, aio=aio)
        self._begin_call, self._protocol = begin, protocol

    def open(self) -> tuple[Source[T], T]:
        """Open a source, with retries, and return it with its first chunk."""
        with self._opening(BlockingStream):
            return super().open()

    async def aopen(self) -> tuple[AsyncSource[T], T]:
        """Open a source, with retries, and return it with its first chunk."""
        with self._opening(AsyncStream):
            return await super().aopen()

    @contextmanager
    def _opening(self, kind: type[GuardedStream[T]]) -> Generator[None]:
        """Start the call and its time; if no first chunk arrives, only its request is committed."""
        self._call = call = self._begin_call()
        self._make = partial(kind, call, self._make, self._protocol, self._policy.worker)
        try:
            with self:
                yield
        finally:
            if self.stream is None and call._account is not None:
                call._account.close()

    def _begin(self, attempt: int = 0) -> StreamRun:
        run = super()._begin(attempt)
        run.usage = self._call._meter.used
        return run

    @property
    def stream(self) -> GuardedStream[T] | None:
        """The chunks of the attempt that delivered one, or came to its end."""
        return None if self._source is None else cast("Any", self._source).items

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Record that a source failed after its first chunk: the stream is over."""
        cast("StreamRun", self._run).limit = cast("GuardedStream[T]", self.stream).expired_limit
        return super().failed(error, final=final)

    def cut(self, error: BaseException | None) -> None:
        """Record a cancellation or garbage collection: emit no event, but settle the spend."""
        self.cancelled = error is not None
        if self.stream is not None:
            self.stream.settle()

    def _reject_unsupported(self) -> None:
        """Accept every limit of the policy: a worker may read the source."""


class GuardedItems(AsyncGenerator[T, Any]):
    """The async items of a guarded stream: raise, instead of ending, after the reader was cancelled."""

    def __init__(self, items: AsyncGenerator[T, Any], opener: StreamOpener[T]) -> None:
        self._items, self._opener = items, opener

    # The coroutines are those of the generator, without another around each.

    def __anext__(self) -> Any:
        return _raise_cut_short() if self._opener.cancelled else self._items.__anext__()

    def asend(self, value: Any, /) -> Any:
        return _raise_cut_short() if self._opener.cancelled else self._items.asend(value)

    def athrow(self, *error: Any) -> Any:
        return self._items.athrow(*error)

    def aclose(self) -> Any:
        return self._items.aclose()


async def _raise_cut_short() -> Any:
    raise CutShort("the stream was cancelled, and closed")


@public("redouble.llm")
class Answer(Stream[T], Generic[T]):
    """The chunks of one answer, for ``for`` or ``async for``, depending on the function that opens it.

    It is closed at its end; to close it earlier, use ``with`` or ``async with``.
    """

    def __init__(self, make: Callable[..., StreamOpener[T]], *, aio: bool = False) -> None:
        super().__init__(make)
        self._aio = aio  # True if the client is known to be async
        self._async_items = GuardedItems(self._async_items, cast("StreamOpener[T]", self._async_opener))

    @property
    def usage(self) -> Usage | None:
        """The tokens that the stream reported; None until it is over, or if it reported none."""
        stream = self._stream
        return None if stream is None else stream.usage

    @property
    def text_stream(self) -> TextStream:
        """The text of the same stream, for ``for`` or ``async for``: chunks without text are skipped."""
        return TextStream(self)

    def get_final_message(self) -> Any:
        """Read the rest, and return the message of Anthropic's SDK. Await it if the client is async.

        This method and the next three read the stream through the guard to its end, and then return what the
        stream of the SDK returns: it has collected all events. They need such a stream, as opened by
        ``client.messages.stream``, ``client.chat.completions.stream`` or ``client.responses.stream``.
        """
        return self._final("get_final_message")

    def get_final_text(self) -> Any:
        """Read the rest, and return the text of the message of Anthropic's SDK. Await it if that is async."""
        return self._final("get_final_text")

    def get_final_completion(self) -> Any:
        """Read the rest, and return the completion of OpenAI's SDK. Await it if the client is async."""
        return self._final("get_final_completion")

    def get_final_response(self) -> Any:
        """Read the rest, and return the response of OpenAI's SDK. Await it if the client is async."""
        return self._final("get_final_response")

    @property
    def _stream(self) -> GuardedStream[T] | None:
        """The stream that delivered a chunk, in either colour."""
        openers = cast("tuple[StreamOpener[T], ...]", (self._opener, self._async_opener))
        return next((opener.stream for opener in openers if opener.stream is not None), None)

    def _final(self, method: str) -> Any:
        if isinstance(self._stream, AsyncStream) or (self._stream is None and self._aio):
            return self._afinal(method)
        for _ in self:
            pass
        return self._final_of_sdk(method)()

    async def _afinal(self, method: str) -> Any:
        async for _ in self:
            pass
        return await self._final_of_sdk(method)()

    def _final_of_sdk(self, method: str) -> Any:
        """Return the method of the SDK's stream, which has been read to its end."""
        stream = self._stream
        if stream is None or not stream.ended:
            raise RuntimeError(f"{method}() needs the whole stream, and this one was closed before its end")
        final = getattr(stream.opened, method, None)
        if final is None:
            raise TypeError(
                f"{method}() belongs to streams of an SDK, and {type(stream.opened).__name__!r} has none: "
                "open the stream by client.messages.stream, for instance"
            )
        return final
