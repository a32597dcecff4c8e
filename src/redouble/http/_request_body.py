"""Request bodies: which can be sent again, and how they are rewound.

A body is classified before anything is sent. A body in memory can be resent, and so can an iterable that
yields the same bytes on each iteration. A file is rewound to its initial position. An iterator or a pipe can
be sent once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from inspect import getgeneratorstate, isgenerator
from typing import Any, TypeAlias, cast, overload

from redouble._internal.callables import callable_kind, close_unawaited, display_name
from redouble._internal.public import public

CHUNK = 65_536


# Rewinds a body to its start, so that it can be sent again; returns True if that was possible.
Rewind: TypeAlias = Callable[[], bool]


def nothing_to_rewind() -> bool:
    """Do nothing: the body can be sent again as it is."""
    return True


def classify_body(source: object, once: Rewind | None = None) -> Rewind:
    """Return how a body can be sent again, if at all; ``once`` is the result for one that can be sent once.

    Unless given, it returns True as long as a generator was not started, because it is still complete.
    """
    once = once or (lambda: isgenerator(source) and getgeneratorstate(source) == "GEN_CREATED")
    if hasattr(source, "read"):
        return _rewind_of_file(source) or once
    if source is None or isinstance(source, (str, bytes, bytearray, memoryview)):
        return nothing_to_rewind
    return nothing_to_rewind if _is_reiterable(source) else once


def _is_reiterable(source: object, depth: int = 3) -> bool:
    """Return True if a second iteration yields the same bytes: nothing in it is an iterator or a file."""
    if isinstance(source, Replayable | AsyncReplayable | list | tuple):
        return True
    if not isinstance(source, Iterable | AsyncIterable) or isinstance(source, Iterator | AsyncIterator):
        return False
    return not any(_is_exhaustible(held, depth) for held in _referents(cast("object", source)))


def _is_exhaustible(held: object, depth: int) -> bool:
    if isinstance(held, str | bytes | type) or held is None:
        return False
    if isinstance(held, Iterator | AsyncIterator) or hasattr(held, "read") or hasattr(held, "get_nowait"):
        return True
    return depth > 0 and any(_is_exhaustible(inner, depth - 1) for inner in _referents(held))


def _referents(source: Any) -> list[object]:
    """Return the objects that an object refers to: a progress bar, for instance, refers to its iterator."""
    if isinstance(source, dict):
        return list(cast("dict[object, object]", source).values())
    if isinstance(source, list | tuple | set | frozenset | deque):
        return list(cast("Iterable[object]", source))
    names = [name for kind in type(source).__mro__ for name in getattr(kind, "__slots__", ())]
    held = [getattr(source, name, None) for name in names if isinstance(name, str)]
    return [*held, *getattr(source, "__dict__", {}).values()]


def classify_parts(sources: Iterable[object]) -> Rewind:
    """Return how all of several bodies can be sent again, if at all."""
    parts = [part for source in sources if (part := classify_body(source)) is not nothing_to_rewind]
    return (lambda: all(rewind() for rewind in parts)) if parts else nothing_to_rewind


def _rewind_of_file(file: Any) -> Rewind | None:
    """Return what rewinds a file to its current position; None if it cannot be rewound."""
    try:
        start = file.tell() if file.seekable() is True else None
    except Exception:  # no such methods, or they fail, as for a text file during iteration
        return None
    if not isinstance(start, int) or callable_kind(file.seek) == "coroutine":
        close_unawaited(start)  # an async file's tell() is a coroutine, which cannot be awaited here
        return None

    def rewind() -> bool:
        try:
            file.seek(start)
        except Exception:  # closed meanwhile, or seekable() was wrong
            return False
        return True

    return rewind


# --------------------------------------------------------------- bodies made by a function


@public("redouble.http")
class Replayable:
    """A body that a function makes for each attempt."""

    def __init__(self, make: Callable[[], Iterable[bytes]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[bytes]:
        source: Any = self._make()
        if not hasattr(source, "read"):
            yield from source
            return
        with source:
            while piece := source.read(CHUNK):
                yield piece


@public("redouble.http")
class AsyncReplayable:
    """A body that a function makes for each attempt, for async clients."""

    def __init__(self, make: Callable[[], AsyncIterable[bytes]]) -> None:
        self._make = make

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._make().__aiter__()


@overload
def replayable(make: Callable[[], Iterable[bytes]], /) -> Replayable: ...
@overload
def replayable(make: Callable[[], AsyncIterable[bytes]], /) -> AsyncReplayable: ...
@public("redouble.http")
def replayable(make: Callable[[], Any], /) -> Replayable | AsyncReplayable:
    """Make a resendable body from a function that opens a file or makes an iterator.

    For instance::

        client.put(url, content=redouble.http.replayable(lambda: open("big.bin", "rb")))

    The function is called once for each attempt. For async clients write an async generator function.
    """
    if not callable(make):
        raise TypeError(f"replayable({make!r}): write a function that opens the body, such as a lambda")
    if callable_kind(make) == "coroutine":
        raise TypeError(f"replayable({display_name(make)}): write a generator function, or an async one")
    if callable_kind(make) == "async generator":
        return AsyncReplayable(cast("Callable[[], AsyncIterable[bytes]]", make))
    return Replayable(cast("Callable[[], Iterable[bytes]]", make))
