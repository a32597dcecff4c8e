"""A policy for streams, and a reader that takes the first items of a stream."""

from __future__ import annotations

from typing import Any

from redouble import Retry
from tests.support.fakes import Boom, Virtual, in_colour


def policy(**options: Any) -> Retry:
    """Return a policy that retries at once, in virtual time."""
    arguments: dict[str, Any] = {"on": Boom, "backoff": [0] * 9, "clock": Virtual()}
    return Retry(**arguments | options)


def read(colour: str, stream: Any, most: int = 99) -> list[Any]:
    """Return at most this many items of a stream, and close the stream."""
    taken: list[Any] = []

    def blocking() -> None:
        for item in stream:
            taken.append(item)
            if len(taken) == most:
                break

    async def waiting() -> None:
        async for item in stream:
            taken.append(item)
            if len(taken) == most:
                await stream.aclose()
                break

    in_colour(colour, blocking, waiting)
    return taken
