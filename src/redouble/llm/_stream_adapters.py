"""The sources of streams: the objects that a caller's function may return, and how each is read and closed.

Such an object is an iterable, a context manager that returns one, or a response of httpx, httpx2 or an SDK,
whose bytes are read. The functions are twins.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from redouble._drivers.opened_stream import (
    AsyncSource,
    Source,
    aclose_failed,
    astream_of,
    close_failed,
    stream_of,
)
from redouble._internal.callables import UsageError, display_name


def source_of(open: object, opened: Any) -> Source[Any]:  # noqa: A002
    """Return the opened stream as a source; if it cannot be used, close it and raise."""
    source, usable = Source[Any](), False
    try:
        if not has(opened, "__iter__", "iter_bytes") and has(opened, "__enter__"):
            manager = ExitStack()
            opened = manager.enter_context(opened)
            source.hold(manager)
        if has(opened, "iter_bytes"):
            source.hold(opened)
            if not getattr(opened, "is_success", True):  # the response of an SDK lacks it
                opened.read()  # so that the error has a body
                opened.raise_for_status()
            opened = opened.iter_bytes()
        _refuse_whole_answer(open, opened)
        source.hold(stream_of(open, opened))
        usable = True
    finally:
        if not usable:
            close_failed(source)
    return source


async def asource_of(open: object, opened: Any) -> AsyncSource[Any]:  # noqa: A002
    """Return the opened stream as a source; if it cannot be used, close it and raise."""
    source, usable = AsyncSource[Any](), False
    try:
        if not has(opened, "__aiter__", "aiter_bytes", "iter_bytes") and has(opened, "__await__"):
            opened = await opened
        if not has(opened, "__aiter__", "aiter_bytes", "iter_bytes") and has(opened, "__aenter__"):
            manager = AsyncExitStack()
            opened = await manager.enter_async_context(opened)
            source.hold(manager)
        if has(opened, "aiter_bytes", "iter_bytes"):
            source.hold(opened)
            if not getattr(opened, "is_success", True):  # the response of an SDK lacks it
                await opened.aread()  # so that the error has a body
                opened.raise_for_status()
            # The async responses of the SDKs have an async `iter_bytes` only.
            opened = opened.aiter_bytes() if has(opened, "aiter_bytes") else opened.iter_bytes()
        _refuse_whole_answer(open, opened)
        if not has(opened, "__aiter__"):  # it cannot be read, but must be closed
            source.hold(opened)
        source.hold(await astream_of(open, opened))
        usable = True
    finally:
        if not usable:
            await aclose_failed(source)
    return source


def _refuse_whole_answer(open: object, opened: object) -> None:  # noqa: A002
    """Raise if the function returned a whole answer: being iterable does not make it a stream."""
    kind = type(opened)
    if issubclass(kind, str | bytes | bytearray | Mapping) or has(opened, "model_dump"):
        fix = "write stream=True, or model.call instead of model.stream"
        raise UsageError(
            f"{display_name(open)} returned a whole answer ({kind.__name__}), not a stream: {fix}"
        )


def has(thing: object, *names: str) -> bool:
    """Return True if an object has one of these methods."""
    # By the type: an object that has every attribute, such as a mock, would pass otherwise.
    return any(hasattr(type(thing), name) for name in names)
