"""A budget of our own: anything with these six methods is one."""

from __future__ import annotations

from collections.abc import Mapping

from redouble import Grant, Kind


class Allowance:
    """Retries earned by successes: each success earns a part of one, and at most so many are kept.

    While everything fails nothing is earned, so a service in trouble is soon left in peace.
    """

    def __init__(self, earned: float = 0.2, most: float = 10.0) -> None:
        self._earned, self._most, self._left = earned, most, most

    def start(self, now: float, /) -> None:
        """Earn nothing for a call that merely begins."""

    def failed(self, kind: Kind, now: float, /) -> None:
        """Lose nothing: what a failure costs is its retry."""

    def spend(self, _kind: Kind, _now: float, /) -> Grant | None:
        """Allow one retry, if one is left."""
        if self._left < 1:
            return None
        self._left -= 1
        return Grant(1)

    def credit(self, _grant: Grant | None, _now: float, /) -> None:
        """Earn for a success."""
        self._left = min(self._most, self._left + self._earned)

    def refund(self, grant: Grant, _now: float, /) -> None:
        """Take a retry back that never started."""
        self._left = min(self._most, self._left + grant.cost)

    def snapshot(self) -> Mapping[str, float]:
        """Tell what is left."""
        return {"available": self._left}
