"""Bodies of requests, in every form that a client accepts, all with the same bytes.

A form that a client cannot send, or for which it computes a wrong length, is not in its list.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from io import BytesIO, RawIOBase
from tempfile import TemporaryFile
from typing import IO, Any

import aiohttp

from redouble.http import replayable
from tests.support.http.clients import is_async

__all__ = ["BEFORE", "DATA", "Unseekable", "again", "apieces", "multipart", "once", "real", "rows"]

DATA = b"0123456789" * 3
BEFORE = b"not this"


def pieces() -> Iterator[bytes]:
    yield DATA[:10]
    yield DATA[10:]


async def apieces() -> AsyncIterator[bytes]:
    for piece in pieces():
        yield piece


class Anew:
    def __iter__(self) -> Iterator[bytes]:
        return pieces()


class AsyncAnew:
    def __aiter__(self) -> AsyncIterator[bytes]:
        return apieces()


class Unseekable(RawIOBase):
    """A file that is not seekable and has no known length."""

    def __init__(self) -> None:
        self._file = BytesIO(DATA)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        return self._file.readinto(buffer)


def memory() -> BytesIO:
    return BytesIO(DATA)


def advanced() -> IO[bytes]:
    """Return a file in memory whose position is in its middle."""
    file = BytesIO(BEFORE + DATA)
    file.seek(len(BEFORE))
    return file


def real() -> IO[bytes]:
    """Return a temporary file whose position is in its middle."""
    file = TemporaryFile()  # noqa: SIM115  the test closes it
    file.write(BEFORE + DATA)
    file.seek(len(BEFORE))
    return file


def pipe() -> IO[bytes]:
    end, other = os.pipe()
    os.write(other, DATA)
    os.close(other)
    return os.fdopen(end, "rb")


Made = Callable[[], Any]

PLAIN: dict[str, Made] = {"bytes": lambda: DATA, "text": DATA.decode}
FILES: dict[str, Made] = {"memory": memory, "advanced": advanced, "real file": real}
ANEW: dict[str, Made] = {
    "re-iterable": Anew,
    "function": lambda: replayable(pieces),
    "file function": lambda: replayable(real),
}
ASYNC_ANEW: dict[str, Made] = {"re-iterable": AsyncAnew, "function": lambda: replayable(apieces)}
LISTS: dict[str, Made] = {"list": lambda: [*pieces()]}
WALKED: dict[str, Made] = {"generator": pieces, "iterator": lambda: iter([*pieces()])}
ASYNC_WALKED: dict[str, Made] = {"generator": apieces}

# httpx sends the length of the whole file whatever its position, and treats a pipe as empty.
RESENDABLE: dict[str, dict[str, Made]] = {
    "httpx": PLAIN | {"memory": memory} | ANEW | LISTS,
    "httpx2": PLAIN | FILES | ANEW | LISTS,
    "requests": PLAIN | FILES | ANEW,
    "aiohttp": PLAIN | FILES | ASYNC_ANEW,
}
ONCE: dict[str, dict[str, Made]] = {
    "httpx": {"unseekable": Unseekable} | WALKED,
    "httpx2": {"pipe": pipe, "unseekable": Unseekable} | WALKED,
    "requests": {"pipe": pipe, "unseekable": Unseekable} | WALKED,
    "aiohttp": {"pipe": pipe, "unseekable": Unseekable} | ASYNC_WALKED,
}


def again(name: str) -> dict[str, Made]:
    """Return the resendable bodies of a client, by name."""
    return PLAIN | ASYNC_ANEW if "-" in name else RESENDABLE[name]


def once(name: str) -> dict[str, Made]:
    """Return the one-shot bodies of a client, by name."""
    return ASYNC_WALKED if "-" in name else ONCE[name]


def rows(names: tuple[str, ...], which: Callable[[str], dict[str, Made]]) -> list[tuple[str, str]]:
    """Return each client with each of its bodies."""
    return [(name, kind) for name in names for kind in which(name)]


def multipart(name: str, *files: Any) -> Callable[[], dict[str, Any]]:
    """Return a function that makes a form of files; call it in the client's event loop."""

    def plain() -> dict[str, Any]:
        return {"files": [(f"f{i}", (f"name{i}", file)) for i, file in enumerate(files)]}

    async def aplain() -> dict[str, Any]:
        return plain()

    async def form() -> dict[str, Any]:
        made = aiohttp.FormData()
        for i, file in enumerate(files):
            made.add_field(f"f{i}", file, filename=f"name{i}")
        return {"body": made}

    made: Any = plain if not is_async(name) else form if name == "aiohttp" else aplain
    return made  # type: ignore[no-any-return]
