"""The deadline of blocking socket waits, a context variable read by the sockets that we wrap."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar

from redouble._internal.shared_context_manager import Block

# The deadline and the clock by which it is measured, or None.
SOCKET_DEADLINE: ContextVar[tuple[float, Callable[[], float]] | None] = ContextVar(
    "redouble_socket_deadline", default=None
)

UNLIMITED = nullcontext()


class LimitedWaits(Block[None]):
    """A block with a deadline for all socket waits in it, ``seconds`` from now."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._deadline = (now() + seconds, now)
        self._before = SOCKET_DEADLINE.get()

    def begin(self) -> None:
        """Set the deadline."""
        SOCKET_DEADLINE.set(self._deadline)

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Set the deadline before this one."""
        SOCKET_DEADLINE.set(self._before)


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
