"""A limit of one attempt at a stream, up to its first message: it ends the call that is under way.

A limit of the whole rpc, which gRPC knows, would also end the messages after the first.
"""

from __future__ import annotations

from _thread import allocate_lock
from math import inf
from threading import Timer
from types import TracebackType
from typing import Self

from redouble._runtime.backend import Scope, cut_after
from redouble.grpc._permit import Permit, cancel

__all__ = ["Cut", "awithin", "within"]


def within(permit: Permit, seconds: float) -> Cut:
    """Return what cuts an attempt in blocking code."""
    return Cut(permit, seconds)


def awithin(_: Permit, seconds: float) -> Scope:
    """Return what cuts an attempt in async code."""
    return cut_after(seconds)


class Cut:
    """A limit in blocking code, with the face of `cut_after`: the call is cancelled when time is up."""

    def __init__(self, permit: Permit, seconds: float) -> None:
        self.cancelled_caught = self._over = False
        self._permit, self._deciding = permit, allocate_lock()
        self._timer = None if seconds == inf else Timer(max(0.0, seconds), self._cut)

    def __enter__(self) -> Self:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if self._timer is not None:
            self._timer.cancel()
        with self._deciding:
            self._over = True
        return self.cancelled_caught and isinstance(error, Exception)

    def _cut(self) -> None:
        # All of it before the attempt may end, or the call that is cancelled would be that of the next one.
        with self._deciding:
            if not self._over:
                self.cancelled_caught = self._permit.overdue = True
                cancel(self._permit.current)
