"""The moment by which a blocking client has to stop waiting, for the sockets that we made for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

__all__ = ["SOCKET_DEADLINE", "ShortenedTimeout", "limited_waits", "socket_timeout"]


# The moment by which a blocking client must have stopped waiting, for those of its sockets that we made.
SOCKET_DEADLINE: ContextVar[tuple[float, Callable[[], float]] | None] = ContextVar(
    "redouble_http_until", default=None
)


@contextmanager
def limited_waits(now: Callable[[], float], rest: float) -> Generator[None]:
    """Shorten every wait inside to the time that is left."""
    if rest == inf:
        yield
        return
    before = SOCKET_DEADLINE.set((now() + rest, now))
    try:
        yield
    finally:
        SOCKET_DEADLINE.reset(before)


class ShortenedTimeout(float):
    """A timeout that was shortened for an attempt. It knows the ``own`` one, for what comes after it."""

    original: float | None

    def __new__(cls, own: float | None, rest: float) -> ShortenedTimeout:
        """Shorten it."""
        made = super().__new__(cls, rest if own is None else min(own, rest))
        made.original = own.original if isinstance(own, ShortenedTimeout) else own
        return made


def socket_timeout(timeout: float | None) -> float | None:
    """Say how long a wait may take: no longer than the call; the client's own once limits have ended."""
    limit = SOCKET_DEADLINE.get()
    if limit is None:
        return timeout.original if isinstance(timeout, ShortenedTimeout) else timeout
    until, now = limit
    rest = until - now()
    if rest <= 0:
        raise TimeoutError("the time of the call was up")
    return rest if timeout is None else min(timeout, rest)
