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

__all__ = [
    "BEFORE",
    "DATA",
    "Unseekable",
    "apieces",
    "multipart",
    "one_shot_bodies",
    "real_file",
    "resendable_bodies",
    "rows",
]

DATA = b"0123456789" * 3
BEFORE = b"not this"


def pieces() -> Iterator[bytes]:
    yield DATA[:10]
    yield DATA[10:]


async def apieces() -> AsyncIterator[bytes]:
    for piece in pieces():
        yield piece


class ReIterable:
    def __iter__(self) -> Iterator[bytes]:
        return pieces()


class AsyncReIterable:
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


def real_file() -> IO[bytes]:
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


MakeBody = Callable[[], Any]

PLAIN: dict[str, MakeBody] = {"bytes": lambda: DATA, "text": DATA.decode}
FILES: dict[str, MakeBody] = {"memory": memory, "advanced": advanced, "real file": real_file}
RE_ITERABLE: dict[str, MakeBody] = {
    "re-iterable": ReIterable,
    "function": lambda: replayable(pieces),
    "file function": lambda: replayable(real_file),
}
ASYNC_RE_ITERABLE: dict[str, MakeBody] = {
    "re-iterable": AsyncReIterable,
    "function": lambda: replayable(apieces),
}
LISTS: dict[str, MakeBody] = {"list": lambda: [*pieces()]}
ITERATORS: dict[str, MakeBody] = {"generator": pieces, "iterator": lambda: iter([*pieces()])}
ASYNC_ITERATORS: dict[str, MakeBody] = {"generator": apieces}

# httpx sends the length of the whole file whatever its position, and treats a pipe as empty.
RESENDABLE: dict[str, dict[str, MakeBody]] = {
    "httpx": PLAIN | {"memory": memory} | RE_ITERABLE | LISTS,
    "httpx2": PLAIN | FILES | RE_ITERABLE | LISTS,
    "requests": PLAIN | FILES | RE_ITERABLE,
    "aiohttp": PLAIN | FILES | ASYNC_RE_ITERABLE,
}
ONE_SHOT: dict[str, dict[str, MakeBody]] = {
    "httpx": {"unseekable": Unseekable} | ITERATORS,
    "httpx2": {"pipe": pipe, "unseekable": Unseekable} | ITERATORS,
    "requests": {"pipe": pipe, "unseekable": Unseekable} | ITERATORS,
    "aiohttp": {"pipe": pipe, "unseekable": Unseekable} | ASYNC_ITERATORS,
}


def resendable_bodies(name: str) -> dict[str, MakeBody]:
    """Return the resendable bodies of a client, by name."""
    return PLAIN | ASYNC_RE_ITERABLE if "-" in name else RESENDABLE[name]


def one_shot_bodies(name: str) -> dict[str, MakeBody]:
    """Return the one-shot bodies of a client, by name."""
    return ASYNC_ITERATORS if "-" in name else ONE_SHOT[name]


def rows(names: tuple[str, ...], which: Callable[[str], dict[str, MakeBody]]) -> list[tuple[str, str]]:
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
