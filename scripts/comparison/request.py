"""One request that any client can send, and its outcome."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

PAYLOAD = b"0123456789" * 500
PIECE = 1000
LONG = 30.0


@dataclass(frozen=True)
class Request:
    """A request, and how its response is read."""

    method: str = "GET"
    body: Literal["none", "bytes", "generator", "file", "form with a file", "form with a pipe"] = "none"
    iterate: bool = False  # iterate over the response body instead of reading it as a whole
    total: float = LONG  # time limit of the whole call, in seconds
    own_limit: bool = False  # that limit is the client's own, if it has one for the whole call
    refuse_first: bool = False  # refuse the first connection
    read_below: bool = False  # read each response in a transport below, as for a log
    calls: int = 1  # how many calls the client makes; the last one counts
    breaker: int | None = None  # the failures in a row that open a breaker, without retries
    recorded: bool = False  # replace the connections of urllib3's pools, as vcrpy does

    def source(self) -> Any:
        """Return a new body."""
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
        """True if the request has a short time limit."""
        return self.total < LONG

    @property
    def is_form(self) -> bool:
        """True if the body is a form with a file."""
        return self.body.startswith("form")


def pieces() -> Iterator[bytes]:
    """Yield the body in pieces."""
    for start in range(0, len(PAYLOAD), PIECE):
        yield PAYLOAD[start : start + PIECE]


async def async_pieces() -> AsyncIterator[bytes]:
    """Yield the body in pieces, for an async client."""
    for piece in pieces():
        yield piece


class Pipe(io.RawIOBase):
    """A file of unknown length that cannot be rewound."""

    def __init__(self) -> None:
        self._inside = io.BytesIO(PAYLOAD)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into the buffer."""
        return self._inside.readinto(buffer)


@dataclass
class Outcome:
    """The result for the caller, and the requests that the server received."""

    status: int | None = None
    error: Exception | None = None
    received: bytearray = field(default_factory=bytearray)
    waiting: bool = False  # True if the call had not ended within the runner's timeout
    requests: int = 0
    pause: float = 0.0  # seconds between the first two requests
    took: float = 0.0  # seconds, where there is a limit
    lost: bool = False  # True if a request arrived without its body
    twice: bool = False  # True if the caller received a part of the response twice
    unrecorded: int = 0  # requests that the replaced connections have not seen

    def record_error(self, error: Exception) -> None:
        """Record an error, and the status of its response if it has one."""
        self.error = error
        response: Any = getattr(error, "response", None)
        self.status = getattr(response, "status_code", None)

    def __str__(self) -> str:
        """Return the text of a table cell: requests on the wire, and the result for the caller."""
        result = str(self.status) if self.error is None else type(self.error).__name__
        if self.error is not None and self.status is not None:
            result = f"{self.status} ({result})"
        texts = [f"{self.requests} → {'still waiting' if self.waiting else result}"]
        if self.lost:
            texts.append("body lost")
        if self.twice:
            texts.append("some of it twice")
        if self.unrecorded:
            texts.append(f"{self.unrecorded} not recorded")
        if self.pause >= 1:
            texts.append(f"{int(self.pause)} s later")
        if self.took >= 4:
            texts.append("too late")
        return ", ".join(texts)
