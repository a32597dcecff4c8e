"""The moment by which a blocking client has to stop waiting, for the sockets that we made for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

__all__ = ["UNTIL", "Shrunk", "room", "waiting"]


# The moment by which a blocking client must have stopped waiting, for those of its sockets that we made.
UNTIL: ContextVar[tuple[float, Callable[[], float]] | None] = ContextVar("redouble_http_until", default=None)


@contextmanager
def waiting(now: Callable[[], float], rest: float) -> Generator[None]:
    """Shorten every wait inside to the time that is left."""
    if rest == inf:
        yield
        return
    before = UNTIL.set((now() + rest, now))
    try:
        yield
    finally:
        UNTIL.reset(before)


class Shrunk(float):
    """A timeout that was shortened for an attempt. It knows the ``own`` one, for what comes after it."""

    own: float | None

    def __new__(cls, own: float | None, rest: float) -> Shrunk:
        """Shorten it."""
        made = super().__new__(cls, rest if own is None else min(own, rest))
        made.own = own.own if isinstance(own, Shrunk) else own
        return made


def room(timeout: float | None) -> float | None:
    """Say how long a wait may take: no longer than the call; the client's own once limits have ended."""
    limit = UNTIL.get()
    if limit is None:
        return timeout.own if isinstance(timeout, Shrunk) else timeout
    until, now = limit
    rest = until - now()
    if rest <= 0:
        raise TimeoutError("the time of the call was up")
    return rest if timeout is None else min(timeout, rest)
