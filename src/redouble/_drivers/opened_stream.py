"""The source that one attempt at a stream has opened: it yields items, and is closed exactly once.

A source is a generator, or what a function of the caller's returned: a file, a response, a list.
`open_first` and `aopen_first` open one and take its first item, or leave nothing open; they are twins.

A finaliser has to close an async stream without awaiting it. If closing awaits nothing, it runs at once;
otherwise it runs in a task. Trio cannot continue a coroutine that has already been started elsewhere, so
`may_suspend` determines beforehand, from the bytecode, whether closing may await.
"""

from __future__ import annotations

import dis
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from functools import lru_cache
from inspect import isawaitable, iscoroutinefunction
from types import AsyncGeneratorType, CodeType
from typing import Any, Final, Generic, Protocol, TypeVar, cast, runtime_checkable

from redouble._internal.callables import UsageError, close_unawaited, display_name
from redouble._internal.logger import ABANDONED, log

__all__ = [
    "END",
    "AsyncSource",
    "Source",
    "aopen_first",
    "close_without_suspending",
    "may_suspend",
    "open_first",
]


# No instruction follows one of ENDS. Every `await`, explicit or not, is compiled to a SEND.
ENDS = {"RERAISE", "RETURN_CONST", "RETURN_VALUE", "RAISE_VARARGS"}
JUMPS = {"JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD"}
AWAIT = "SEND"


@runtime_checkable
class SuspendableClose(Protocol):
    """A stream of this package, which knows whether closing it may await."""

    def may_wait(self) -> bool:
        """Return True if closing it may have to await something."""
        ...


def may_suspend(stream: object) -> bool:
    """Return True if closing a stream, at its present position, may have to await something."""
    try:
        if isinstance(stream, AsyncGeneratorType):
            frame = cast("Any", stream).ag_frame
            return frame is not None and _reaches_await(frame.f_code, frame.f_lasti)
        if isinstance(stream, SuspendableClose):
            return stream.may_wait()
        aclose = getattr(stream, "aclose", None)
        close = aclose or getattr(stream, "close", None)
        if iscoroutinefunction(close):
            return any(step.opname == AWAIT for step in dis.get_instructions(close))
    except Exception:
        return True  # unknown
    return aclose is not None


def close_without_suspending(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that awaits nothing; if it suspends after all, close it there, and log that."""
    try:
        work.send(None)
        work.close()
        log(ABANDONED)
    except StopIteration:
        pass
    except Exception:
        log(ABANDONED, error=True)


@lru_cache(maxsize=512)
def _reaches_await(code: CodeType, last: int) -> bool:
    """Return True if a generator suspended at ``last`` can reach an await when it is closed there."""
    bytecode = dis.Bytecode(code)
    steps = list(bytecode)
    index = {step.offset: place for place, step in enumerate(steps)}
    handlers: list[Any] = getattr(bytecode, "exception_entries")  # noqa: B009  not in the stubs
    # Closing raises GeneratorExit where the generator is suspended. From there on, follow every branch.
    ahead, seen = _handlers_at(handlers, last), set[int]()
    while ahead:
        offset = ahead.pop()
        if offset in seen:
            continue
        seen.add(offset)
        step = steps[index[offset]]
        if step.opname == AWAIT:
            return True
        ahead += _handlers_at(handlers, offset)
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            ahead.append(int(step.argval))
        if step.opname not in ENDS | JUMPS:
            ahead.append(steps[index[offset] + 1].offset)
    return False


def _handlers_at(handlers: list[Any], offset: int) -> list[int]:
    return [handler.target for handler in handlers if handler.start <= offset < handler.end]


T = TypeVar("T")

END: Final[Any] = object()  # the item after the last


class Source(Generic[T]):
    """The opened stream of one attempt in blocking code. ``value`` is what an empty generator returned."""

    __slots__ = ("_open", "items", "value")

    def __init__(self, *stream: Iterable[T]) -> None:
        self._open: list[Any] = [*stream]
        self.value: object = None

    def hold(self, stream: object) -> None:
        """Own another opened object: the last one is iterated over, all are closed."""
        self._open.insert(0, stream)

    def first(self) -> T:
        """Begin to iterate, and take the first item."""
        self.items: Iterator[T] = iter(self._open[0])
        if self.items is not self._open[0]:
            self._open.insert(0, self.items)
        return self.items.__next__()

    def close(self) -> None:
        """Close the iterator, then, even if that failed, the object that it iterates over."""
        if self._open:
            close = getattr(self._open.pop(0), "close", None)
            try:
                if close is not None:
                    close()
            finally:
                self.close()


class AsyncSource(Generic[T]):
    """The opened stream of one attempt in async code."""

    __slots__ = ("_open", "items", "value")

    def __init__(self, *stream: AsyncIterable[T]) -> None:
        self._open: list[Any] = [*stream]
        self.value: object = None

    def hold(self, stream: object) -> None:
        """Own another opened object: the last one is iterated over, all are closed."""
        self._open.insert(0, stream)

    async def afirst(self) -> T:
        """Begin to iterate, and take the first item."""
        self.items: AsyncIterator[T] = aiter(self._open[0])
        if self.items is not self._open[0]:
            self._open.insert(0, self.items)
        return await self.items.__anext__()

    def leave_iterator(self) -> bool:
        """Drop the iterator, which has ended; return True if anything else has to be closed."""
        self._open.remove(self.items)
        return bool(self._open)

    def may_wait(self) -> bool:
        """Return True if closing it may have to await something."""
        return any(may_suspend(stream) for stream in self._open)

    async def aclose(self) -> None:
        """Close the iterator, then, even if that failed, the object that it iterates over."""
        if self._open:
            stream = self._open.pop(0)
            close = getattr(stream, "aclose", None) or getattr(stream, "close", None)
            try:
                if close is not None and isawaitable(closing := close()):
                    await closing
            finally:
                await self.aclose()


def open_first(open: Callable[[], Iterable[T]], /) -> tuple[Source[T], T]:  # noqa: A002
    """Open a source and take its first item, or `END`; close it if that fails."""
    source = Source(stream_of(open, open()))
    ready = False
    try:
        item = source.first()
        ready = True
    except StopIteration as end:
        source.value = getattr(end, "value", None)
        item, ready = END, True
    finally:
        if not ready:
            close_failed(source)
    return source, item


async def aopen_first(open: Callable[[], AsyncIterable[T]], /) -> tuple[AsyncSource[T], T]:  # noqa: A002
    """Open a source and take its first item, or `END`; close it if that fails."""
    source = AsyncSource(await astream_of(open, open()))
    ready = False
    try:
        item = await source.afirst()
        ready = True
    except StopAsyncIteration as end:
        source.value = getattr(end, "value", None)
        item, ready = END, True
    finally:
        if not ready:
            await aclose_failed(source)
    return source, item


def close_failed(source: Source[Any]) -> None:
    """Close a source that failed; log an error of closing, since the first error is the one to raise."""
    try:
        source.close()
    except Exception:
        log(CLOSE_FAILED, error=True)


async def aclose_failed(source: AsyncSource[Any]) -> None:
    """Close a source that failed; log an error of closing, since the first error is the one to raise."""
    try:
        await source.aclose()
    except Exception:
        log(CLOSE_FAILED, error=True)


CLOSE_FAILED = "a stream that had failed could not be closed either"


def stream_of(open: object, stream: object) -> Iterable[Any]:  # noqa: A002
    """Return the opened stream; raise `UsageError` if it cannot be iterated over."""
    if not hasattr(type(stream), "__iter__") and not hasattr(type(stream), "__getitem__"):
        close_unawaited(stream)
        fix = ": write `async for`" if hasattr(stream, "__aiter__") or isawaitable(stream) else ""
        raise UsageError(
            f"{display_name(open)} opened {type(stream).__name__!r}, which cannot be iterated over{fix}"
        )
    return cast("Iterable[Any]", stream)


async def astream_of(open: object, stream: object) -> AsyncIterable[Any]:  # noqa: A002
    """Return the opened stream, awaited if necessary; raise `UsageError` if ``async for`` cannot use it."""
    if isawaitable(stream):
        stream = await stream
    if not hasattr(type(stream), "__aiter__"):
        fix = ": write `for`" if hasattr(type(stream), "__iter__") else ""
        raise UsageError(
            f"{display_name(open)} opened {type(stream).__name__!r}, which `async for` cannot use{fix}"
        )
    return cast("AsyncIterable[Any]", stream)
