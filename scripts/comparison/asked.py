"""One request as any client can send it, and what was seen of it."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

PAYLOAD = b"0123456789" * 500
PIECE = 1000
LONG = 30.0


@dataclass(frozen=True)
class Asked:
    """A request, and how its answer is read."""

    method: str = "GET"
    body: Literal["none", "bytes", "generator", "file", "form with a file", "form with a pipe"] = "none"
    iterate: bool = False  # over the answer, instead of reading it whole
    total: float = LONG  # seconds that all of it may take
    refused: bool = False  # the first connection

    def source(self) -> Any:
        """Make the body."""
        match self.body:
            case "none":
                return None
            case "bytes":
                return PAYLOAD
            case "generator":
                return pieces()
            case "form with a pipe":
                return Pipe()
            case "file" | "form with a file":
                return io.BytesIO(PAYLOAD)

    @property
    def limited(self) -> bool:
        """Say whether the time is short."""
        return self.total < LONG

    @property
    def parts(self) -> bool:
        """Say whether it is a form with a file in it."""
        return self.body.startswith("form")


def pieces() -> Iterator[bytes]:
    """Give the body piece by piece, once."""
    for start in range(0, len(PAYLOAD), PIECE):
        yield PAYLOAD[start : start + PIECE]


async def async_pieces() -> AsyncIterator[bytes]:
    """Give the body piece by piece, once, to an async client."""
    for piece in pieces():
        yield piece


class Pipe(io.RawIOBase):
    """A file that cannot be rewound, and does not tell its length."""

    def __init__(self) -> None:
        self._inside = io.BytesIO(PAYLOAD)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read some of it."""
        return self._inside.readinto(buffer)


@dataclass
class Seen:
    """What the caller got, and what the server saw."""

    status: int | None = None
    error: Exception | None = None
    received: bytearray = field(default_factory=bytearray)
    waiting: bool = False  # still, when nobody wanted to wait any longer
    requests: int = 0
    pause: float = 0.0  # seconds between the first two requests
    took: float = 0.0  # seconds, where there is a limit
    lost: bool = False  # a request arrived without its body
    twice: bool = False  # the caller was given some of the answer a second time

    def ended(self, error: Exception) -> None:
        """Take in an error; one that is about an answer tells its status."""
        self.error = error
        response: Any = getattr(error, "response", None)
        self.status = getattr(response, "status_code", None)

    def __str__(self) -> str:
        """Say it in a cell: requests on the wire, and what the caller got."""
        what = str(self.status) if self.error is None else type(self.error).__name__
        if self.error is not None and self.status is not None:
            what = f"{self.status} ({what})"
        said = [f"{self.requests} → {'still waiting' if self.waiting else what}"]
        if self.lost:
            said.append("body lost")
        if self.twice:
            said.append("some of it twice")
        if self.pause >= 1:
            said.append(f"{int(self.pause)} s later")
        if self.took >= 4:
            said.append("too late")
        return ", ".join(said)
