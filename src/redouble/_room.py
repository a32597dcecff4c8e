"""How many calls are under way, of how many: what every call behind an adaptive limit changes, unlocked.

From looking at ``inside`` to changing it there must be no call; see `_concurrency`, where that is done.
"""

from __future__ import annotations

__all__ = ["Room"]


class Room:
    """How many are ``inside``, of how many. A forked process has a new one: those calls go on elsewhere."""

    __slots__ = ("half", "inside", "limit", "skip", "timed")

    def __init__(self, limit: int) -> None:
        self.inside, self.skip, self.timed = 0, 0, 1
        self.resize(limit)

    def resize(self, limit: int) -> None:
        """Take on another limit."""
        self.limit, self.half = limit, (limit - 1) // 2
