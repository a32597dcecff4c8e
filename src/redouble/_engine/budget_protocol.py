"""The protocol of a retry budget, which many calls share.

The engine calls it at fixed points of a call and passes the time; a budget never sleeps. Any object with
these methods is a budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from redouble._failures.verdict import Kind
from redouble._internal.public import public

__all__ = ["Budget", "Grant"]


@public("redouble")
class Grant(NamedTuple):
    """Permission to retry once. ``cost`` was taken; the delay must be at least ``wait`` seconds."""

    cost: float
    wait: float = 0.0


@public("redouble.types")
class Budget(Protocol):
    """A retry budget."""

    def start(self, now: float, /) -> None:
        """Record that a call begins."""
        ...

    def failed(self, kind: Kind, now: float, /) -> None:
        """Record that an attempt failed."""
        ...

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        """Return the grant for one retry, or None to refuse it."""
        ...

    def credit(self, grant: Grant | None, now: float, /) -> None:
        """Record a success; ``grant`` is the grant that its last retry used, None without retries."""
        ...

    def refund(self, grant: Grant, now: float, /) -> None:
        """Take back a grant whose retry never started."""
        ...

    def snapshot(self) -> Mapping[str, float]:
        """Return the remaining allowance, for people and metrics."""
        ...
