"""What a caller's function may give for a stream, and what is iterated over and closed then.

An iterable; a context manager that gives one; an answer of httpx or httpx2, whose bytes it is then. Twins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redouble._drivers.stream_source import (
    AsyncSource,
    Source,
    aclose_failed,
    astream_of,
    close_failed,
    stream_of,
)
from redouble._internal.callables import UsageError, display_name

__all__ = ["asource_of", "source_of"]


class UnreadSource:
    """A context manager that was entered: closing it is leaving it."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def close(self) -> None:
        """Leave it."""
        self._manager.__exit__(None, None, None)


class AsyncUnreadSource:
    """One that was entered in async code."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def aclose(self) -> None:
        """Leave it."""
        await self._manager.__aexit__(None, None, None)


def source_of(open: object, found: Any) -> Source[Any]:  # noqa: A002
    """Return the source that was opened; of one that cannot be used nothing stays open."""
    source, kept = Source[Any](), False
    try:
        if not _has(found, "__iter__") and not _has(found, "iter_bytes"):
            found = _entered(source, found)
        if _has(found, "iter_bytes"):
            source.hold(found)
            if not getattr(found, "is_success", True):  # what an SDK hands out has been looked at
                found.read()  # so that the error has something to tell
                found.raise_for_status()
            found = found.iter_bytes()
        _refuse_whole(open, found)
        source.hold(stream_of(open, found))
        kept = True
    finally:
        if not kept:
            close_failed(source)
    return source


async def asource_of(open: object, found: Any) -> AsyncSource[Any]:  # noqa: A002
    """Return the source that was opened; of one that cannot be used nothing stays open."""
    source, kept = AsyncSource[Any](), False
    try:
        if not _has(found, "__aiter__") and not _has(found, "aiter_bytes"):
            found = await _aentered(source, found)
        if _has(found, "aiter_bytes"):
            source.hold(found)
            if not getattr(found, "is_success", True):  # what an SDK hands out has been looked at
                await found.aread()  # so that the error has something to tell
                found.raise_for_status()
            found = found.aiter_bytes()
        _refuse_whole(open, found)
        if not _has(found, "__aiter__"):  # nobody can read it, and it is closed all the same
            source.hold(found)
        source.hold(await astream_of(open, found))
        kept = True
    finally:
        if not kept:
            await aclose_failed(source)
    return source


def _entered(source: Source[Any], found: Any) -> Any:
    if not _has(found, "__enter__"):
        return found
    stream = found.__enter__()
    source.hold(UnreadSource(found))
    return stream


async def _aentered(source: AsyncSource[Any], found: Any) -> Any:
    if _has(found, "__await__"):
        found = await found
    if not _has(found, "__aenter__") or _has(found, "__aiter__"):
        return found
    stream = await found.__aenter__()
    source.hold(AsyncUnreadSource(found))
    return stream


def _refuse_whole(open: object, found: object) -> None:  # noqa: A002
    """Say no to an answer in one piece: that it can be iterated over does not make it a stream."""
    kind = type(found)
    if issubclass(kind, str | bytes | bytearray | Mapping) or _has(found, "model_dump"):
        fix = "write stream=True, or model.call instead of model.stream"
        raise UsageError(f"{display_name(open)} gave a whole answer ({kind.__name__}), and no stream: {fix}")


def _has(found: object, name: str) -> bool:
    # Asked of the type: an object that answers to every attribute is nothing of the sort for that.
    return hasattr(type(found), name)
