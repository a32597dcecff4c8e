"""HTTP calls with httpware's settings, bodies that can be sent once, and the error of a call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from redouble import Retry
from tests.support.http.clients import HttpResult, is_async

PIECES = (b"hello", b" world")


def httpware(**options: Any) -> Retry:
    """Return a policy as in httpware's tests: 3 attempts, no delays."""
    defaults: dict[str, Any] = {"attempts": 3, "backoff": [0] * 9}
    return Retry(**defaults | options)


def once(name: str) -> Any:
    """Return a body that can be sent once."""

    def pieces() -> Iterator[bytes]:
        yield from PIECES

    async def apieces() -> AsyncIterator[bytes]:
        for piece in PIECES:
            yield piece

    return apieces() if is_async(name) else pieces()


def raised(seen: HttpResult) -> type[Exception] | None:
    try:
        seen.raise_for_status()
    except Exception as error:
        return type(error)
    return None
