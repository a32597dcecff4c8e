"""What a budget is: an allowance for retries, shared by many calls.

The engine asks it at fixed moments and passes the time; a budget never sleeps. Anything with these
methods will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from redouble._failures.verdict import Kind
from redouble._internal.public import public

__all__ = ["Budget", "Grant"]


@public("redouble")
class Grant(NamedTuple):
    """Leave to retry once. ``cost`` was taken; the delay must be at least ``wait`` seconds."""

    cost: float
    wait: float = 0.0


@public("redouble.types")
class Budget(Protocol):
    """An allowance for retries."""

    def start(self, now: float, /) -> None:
        """Note that a call begins."""
        ...

    def failed(self, kind: Kind, now: float, /) -> None:
        """Note that an attempt failed."""
        ...

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        """Allow one retry, or return None."""
        ...

    def credit(self, grant: Grant | None, now: float, /) -> None:
        """Note a success; ``grant`` is the one its last retry used, None without retries."""
        ...

    def refund(self, grant: Grant, now: float, /) -> None:
        """Take back a grant whose retry never started."""
        ...

    def snapshot(self) -> Mapping[str, float]:
        """Tell what is left, for people and metrics."""
        ...
