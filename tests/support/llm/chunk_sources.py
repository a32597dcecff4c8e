"""Scripted sources of chunks, in every shape in which a stream can be opened.

A script is a list of steps for each attempt: chunks to deliver, errors to raise, and the few steps below.
Chunks are words: ``end`` is the end marker, and a word that begins with ``!`` is an error event.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Event as Flag
from typing import Any, Literal, NamedTuple

from redouble import SYSTEM
from redouble.llm import ErrorEvent, Protocol, Usage


class Takes(NamedTuple):
    """A step that takes some seconds."""

    seconds: float


class CloseFails(NamedTuple):
    """A step after which closing the source raises ``error``."""

    error: type[BaseException]


class ChunkObject(NamedTuple):
    """A chunk that is neither text nor bytes."""

    word: str


SILENT = object()  # a step that lasts until the test sets ``released``, or until it is cancelled


class Words(Protocol):
    """The protocol of these chunks: a request uses one token, and each chunk one more."""

    def read(self, chunk: object, /) -> ErrorEvent | None:
        word = chunk.word if isinstance(chunk, ChunkObject) else chunk
        text = word.decode() if isinstance(word, bytes) else str(word)
        self.known = True
        self.pieces += 1
        self.ended = self.ended or text == "end"
        self.usage = Usage(1, self.pieces)
        return ErrorEvent(text, type="overloaded_error") if text.startswith("!") else None

    def cut_short(self) -> str:
        return "no end was said"


class Source:
    """One source: an iterator in both colours, which records in the trail of its feed when it is closed."""

    def __init__(self, feed: Feed, number: int, steps: Sequence[Any]) -> None:
        self.feed, self.number, self.steps = feed, number, iter(steps)
        self.close_error: type[BaseException] | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.feed.reads += 1
        for step in self.steps:
            match step:
                case Takes(seconds):
                    self.feed.slept += seconds
                    SYSTEM.sleep(seconds)
                case _ if step is SILENT:
                    self.feed.released.wait()
                case _ if self.run_step(step):
                    return step
                case _:
                    pass
        raise StopIteration

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        self.feed.reads += 1
        await SYSTEM.asleep(0)
        for step in self.steps:
            match step:
                case Takes(seconds):
                    await SYSTEM.asleep(seconds)
                case _ if step is SILENT:
                    await SYSTEM.asleep(10_000)
                case _ if self.run_step(step):
                    return step
                case _:
                    pass
        raise StopAsyncIteration

    def run_step(self, step: Any) -> bool:
        """Run a step that takes no time; return True if it is a chunk."""
        if isinstance(step, type):
            raise step("as the script says")
        if isinstance(step, CloseFails):
            self.close_error = step.error
            return False
        return True

    def record_close(self) -> None:
        self.feed.trail.append(f"close:{self.number}")
        self.feed.closed.set()
        if self.close_error is not None:
            raise self.close_error("cannot be closed")


class ClosableSource(Source):
    """A source with a plain ``close()``, also for async code."""

    def close(self) -> None:
        self.record_close()


class AsyncClosableSource(ClosableSource):
    """A source with an ``aclose()`` too, which awaits something."""

    async def aclose(self) -> None:
        try:
            await SYSTEM.asleep(0)
        finally:  # closed even if the wait is cancelled, as Trio requires
            self.record_close()


class ClosableIterable:
    """An iterable that has to be closed itself; its iterator has no ``close()``."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __iter__(self) -> Iterator[Any]:
        return self.source

    def __aiter__(self) -> AsyncIterator[Any]:
        return self.source

    def close(self) -> None:
        self.source.record_close()


class Awaited(NamedTuple):
    """An awaitable that is no coroutine."""

    value: Any

    def __await__(self) -> Any:
        yield from SYSTEM.asleep(0).__await__()
        return self.value


Shape = Literal["generator", "close", "aclose", "iterable", "manager", "coroutine", "awaited manager"]
SHAPES: tuple[Shape, ...] = (
    "generator",
    "close",
    "aclose",
    "iterable",
    "manager",
    "coroutine",
    "awaited manager",
)


class Feed:
    """Opens scripted sources one after the other; the last script repeats."""

    def __init__(self, *script: Sequence[Any], shape: Shape = "generator") -> None:
        self.script, self.shape = script, shape
        self.trail: list[str] = []
        self.opened = self.reads = 0
        self.slept = 0.0
        self.released = Flag()  # ends the `SILENT` steps
        self.closed = Flag()  # set when a source is closed

    def _next(self, kind: type[Source]) -> Any:
        self.opened += 1
        self.trail.append(f"open:{self.opened}")
        return kind(self, self.opened, self.script[min(self.opened, len(self.script)) - 1])

    def open(self) -> Any:
        match self.shape:
            case "generator":
                return self._generator()
            case "iterable":
                return ClosableIterable(self._next(Source))
            case "manager" | "awaited manager":
                return self._manager()
            case _:
                return self._next(ClosableSource)

    def aopen(self) -> Any:
        match self.shape:
            case "generator":
                return self._agenerator()
            case "iterable":
                return ClosableIterable(self._next(Source))
            case "manager":
                return self._amanager()
            case "awaited manager":
                return Awaited(self._amanager())
            case "coroutine":
                return self._coroutine()
            case "aclose":
                return self._next(AsyncClosableSource)
            case _:
                return self._next(ClosableSource)

    def _generator(self) -> Iterator[Any]:
        source = self._next(Source)
        try:
            yield from source
        finally:
            source.record_close()

    async def _agenerator(self) -> AsyncIterator[Any]:
        source = self._next(Source)
        try:
            async for chunk in source:
                yield chunk
        finally:
            source.record_close()

    @contextmanager
    def _manager(self) -> Generator[Any]:
        source = self._next(Source)
        try:
            yield source
        finally:
            source.record_close()

    @asynccontextmanager
    async def _amanager(self) -> AsyncGenerator[Any]:
        source = self._next(Source)
        try:
            yield source
        finally:
            source.record_close()

    async def _coroutine(self) -> Any:
        await SYSTEM.asleep(0)
        return self._next(AsyncClosableSource)
