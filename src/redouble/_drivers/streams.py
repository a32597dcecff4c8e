"""Streams: retried until the first item has been yielded, and never after it, unless they can be resumed.

Opening a source and taking its first item is a call like any other, made by `drive` or `adrive`. This module
does what follows: it forwards what the consumer sends and throws, closes, and records how the stream ended.

The consumer determines the colour of a `Stream`: nothing is opened before the first item is requested.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from functools import partial
from types import FrameType
from typing import Any, Generic, Self, TypeVar, cast

from redouble._drivers.async_generator import async_items
from redouble._drivers.attempt_timeout import arun_limited, run_limited
from redouble._drivers.calls import adrive, begin_run, drive
from redouble._drivers.opened_stream import (
    END,
    AsyncSource,
    ConsumerReply,
    OpenedSource,
    Source,
    StreamOwner,
    aopen_first,
    close_failed,
    open_first,
)
from redouble._engine.options import Options, refuse_limits
from redouble._engine.run_results import error_of
from redouble._engine.stream_run import StreamRun
from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start
from redouble._runtime.call_stack import EnclosingCall, holds_call, variables_of

T = TypeVar("T")


class Opener(StreamOwner, Generic[T]):
    """The sources of one stream: opens them, and records how they end in a `StreamRun`."""

    def __init__(
        self,
        policy: Options,
        name: str,
        make: Callable[[], Any],
        resume: Callable[[T], Any] | None = None,
        *,
        aio: bool = False,
    ) -> None:
        self._policy, self._name, self._aio = policy, name, aio
        self._make, self.resume = make, resume
        self._run: StreamRun | None = None
        self._source: OpenedSource[T] | None = None
        self._delay: float | None = None

    @property
    def is_open(self) -> bool:
        """True if a source is open."""
        return self._source is not None and self._source.is_open

    def open(self) -> tuple[Source[T], T]:
        """Open a source, with retries, and take its first item, or `END`."""
        self._run = run = self._run or self._begin()
        opened: tuple[Source[T], T] = drive(
            run, self._delay, run_limited(run, partial(open_first, self._make)), (), {}
        )
        self._commit(run, *opened)
        return opened

    async def aopen(self) -> tuple[AsyncSource[T], T]:
        """Open a source, with retries, and take its first item, or `END`."""
        self._run = run = self._run or self._begin()
        opened: tuple[AsyncSource[T], T] = await adrive(
            run, self._delay, arun_limited(run, partial(aopen_first, self._make)), (), {}
        )
        self._commit(run, *opened)
        return opened

    def failed(self, error: Exception, *, final: bool = False) -> bool:
        """Record that a source failed after its first item; return True if the next one is to be opened."""
        run = before = cast("StreamRun", self._run)
        if self.resume is not None and not final:
            self._make = partial(self.resume, cast("OpenedSource[T]", self._source).last)
            # There was progress: attempts, backoff and limits start again.
            self._run = run = self._begin(1)
            run.credited = True  # the budget, by the run that yielded the items before
            run.first_item = before.first_item
            run.elapsed_before = before.elapsed_before + run.started - before.started
            run.attempt_elapsed_before = run.started - before.attempt_started
        self._delay = run.failed(error, run.read_clock())
        run.attempt_elapsed_before = 0.0
        if run.replaces_error:
            raise error_of(run, error)
        return self._delay is not None

    def returned(self, error: Exception) -> None:  # noqa: ARG002  the consumer's
        """Record the end, without a failure: the consumer has thrown this error into the source."""
        self.ended()

    def call(self) -> EnclosingCall | None:
        """Return the call, which encloses its sources; None before the first item is requested."""
        return self._run

    def ended(self) -> None:
        """Record that a source ended or was closed."""
        run = cast("StreamRun", self._run)
        run.ended(run.read_clock())

    def _commit(self, run: StreamRun, source: OpenedSource[T], item: T) -> None:
        run.committed = True
        self._source, source.last = source, item
        if run.first_item is None and item is not END:
            run.first_item = run.now - run.started

    def _begin(self, attempt: int = 0) -> StreamRun:
        if not self._aio:
            self._reject_unsupported()
        return begin_run(StreamRun, self._policy, self._name, aio=self._aio, attempt=attempt)

    def _reject_unsupported(self) -> None:
        """Reject limits that blocking code cannot honour."""
        refuse_limits(self._policy, "a stream")


class OpenStream(Generic[T]):
    """One source of a blocking stream; inside ``with``, delegate to `first`, then to its result."""

    def __init__(self, opener: Opener[T]) -> None:
        self._opener = opener
        self._source: Source[T] | None = None
        self._thrown: BaseException | None = None  # by the consumer, at the first item
        self.resumes = False  # True if the source failed, and another one is to be opened

    def __enter__(self) -> Self:
        return self

    def call(self) -> EnclosingCall | None:
        """Return the call, which encloses the source; None before it begins."""
        return self._opener.call()

    def first(self) -> Generator[T, Any, Iterator[T]]:
        """Yield items until the consumer calls ``next``; return the later ones, to delegate to."""
        source, item = self._opener.open()
        self._source = source
        items: Any = source.items
        if self._opener.resume is None and isinstance(source.items, Generator):
            reply = ConsumerReply(items)
            while item is not END:
                with reply:
                    reply.sent = yield item
                self._thrown = reply.thrown
                if reply.sent is None and reply.thrown is None:
                    return cast("Iterator[T]", items)
                try:
                    item = items.send(reply.sent) if reply.thrown is None else items.throw(reply.thrown)
                except StopIteration as end:
                    source.value = end.value
                    item = END
        return _recorded(source, item)

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        if self._source is None:
            return False  # it was never opened, and the run has recorded that
        if error is None or isinstance(error, GeneratorExit):  # it has ended, or the consumer has left it
            try:
                self._source.close()
            except Exception as failure:
                self._opener.failed(failure, final=True)
                raise
            self._opener.ended()
            return False
        close_failed(self._source)
        if isinstance(error, Exception):
            if error is self._thrown:  # the consumer's own error is no failure of the source
                self._opener.returned(error)
            else:
                self.resumes = self._opener.failed(error)
        return self.resumes


def open_stream(
    policy: Options, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> OpenStream[Any]:
    """Return the stream of a call of a generator function."""
    return OpenStream(Opener(policy, name, partial(fn, *args, **kwargs)))


def _recorded(source: Source[T], item: T) -> Generator[T, Any, Any]:
    # Not by `yield from`, which closes an iterator: a source is closed once.
    while item is not END:
        source.last = item
        yield item
        item = next(source.items, END)
    return source.value


def items(opener: Opener[T]) -> Generator[T, Any, None]:
    """Yield the items of a source, and of the sources that resume it."""
    resumes = True
    while resumes:
        with OpenStream(opener) as stream:
            yield from (yield from stream.first())
        resumes = stream.resumes


def _read_call(frame: FrameType) -> EnclosingCall | None:
    """Return the call of a frame of `items`."""
    return cast("Opener[Any]", variables_of(frame)["opener"]).call()


holds_call("items", items.__code__.co_filename, _read_call)


@public("redouble.types")
class Stream(Iterator[T], AsyncIterator[T]):
    """The items of a stream, for ``for`` or ``async for``, depending on its source.

    It is closed at its end; to close it early, use it in a ``with`` or ``async with``.
    """

    def __init__(self, make: Callable[..., Opener[T]]) -> None:
        # Both are made now, so that threads may share the stream; nothing is opened before the first read.
        self._opener, self._async_opener = make(aio=False), make(aio=True)
        self._items = items(self._opener)
        self._async_items = async_items(self._async_opener)

    def __iter__(self) -> Generator[T, Any, None]:
        return self._items

    def __aiter__(self) -> AsyncGenerator[T, Any]:
        return self._async_items

    def __next__(self) -> T:
        return next(iter(self))

    async def __anext__(self) -> T:
        return await anext(aiter(self))

    def close(self) -> None:
        """Close the stream."""
        if self._async_opener.is_open:
            raise TypeError("this stream was read by `async for`: write `async with`, or await aclose()")
        self._items.close()

    async def aclose(self) -> None:
        """Close the stream."""
        if self._opener.is_open:
            raise TypeError("this stream was read by `for`: write `with`, or close()")
        await self._async_items.aclose()

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    @try_from_start
    def __exit__(self, *_: object) -> None:
        try:
            self.close()
        except BaseException:
            self.close()
            raise

    @try_from_start
    async def __aexit__(self, *_: object) -> None:
        try:
            await self.aclose()
        except BaseException:
            await self.aclose()
            raise
