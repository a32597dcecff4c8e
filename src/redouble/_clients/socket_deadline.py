"""The deadline of blocking socket waits, a context variable read by the sockets that we wrap."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

# The deadline and the clock by which it is measured, or None.
SOCKET_DEADLINE: ContextVar[tuple[float, Callable[[], float]] | None] = ContextVar(
    "redouble_socket_deadline", default=None
)

UNLIMITED = nullcontext()


@contextmanager
def limited_waits(now: Callable[[], float], seconds: float) -> Generator[None]:
    """Set a deadline for all socket waits in the block, ``seconds`` from now."""
    before = SOCKET_DEADLINE.set((now() + seconds, now))
    try:
        yield
    finally:
        SOCKET_DEADLINE.reset(before)


class ShortenedTimeout(float):
    """A timeout shortened for one attempt. ``original`` is the client's, valid again after the attempt."""

    original: float | None

    def __new__(cls, own: float | None, seconds: float) -> ShortenedTimeout:
        """Shorten a timeout to ``seconds``."""
        shortened = super().__new__(cls, seconds if own is None else min(own, seconds))
        shortened.original = own.original if isinstance(own, ShortenedTimeout) else own
        return shortened


def socket_timeout(timeout: float | None) -> float | None:
    """Return the timeout of one wait: at most the time left, or the client's own without a deadline."""
    limit = SOCKET_DEADLINE.get()
    if limit is None:
        return timeout.original if isinstance(timeout, ShortenedTimeout) else timeout
    until, now = limit
    seconds_left = until - now()
    if seconds_left <= 0:
        raise TimeoutError("the time of the call was up")
    return seconds_left if timeout is None else min(timeout, seconds_left)
