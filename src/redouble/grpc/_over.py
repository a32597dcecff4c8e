"""Over: what every call says that has come to its end, be it an answer or an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

if TYPE_CHECKING:
    FutureOfAny: TypeAlias = grpc.Future[Any]
else:
    FutureOfAny = grpc.Future

__all__ = ["FutureOfAny", "Over"]


class Over(grpc.Call, FutureOfAny):
    """A call that is over: there is nothing left to wait for, and nothing to cancel."""

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        """Call it at once."""
        fn(self)

    def add_callback(self, callback: Callable[[], object]) -> bool:  # noqa: ARG002
        """Say that it will not be called."""
        return False

    def cancel(self) -> bool:
        """Say that it is too late for that."""
        return False

    def done(self) -> bool:
        """Say that it is over."""
        return True

    def running(self) -> bool:
        """Say that it is over."""
        return False

    def is_active(self) -> bool:
        """Say that it is over."""
        return False

    def time_remaining(self) -> Any:
        """Say that there is no limit any more."""
        return None
