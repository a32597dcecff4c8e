"""The quota of extra calls: they never exceed the share of all calls plus one, from the first call on."""

from __future__ import annotations

MAX_SAVED_CALLS = 1000  # calls whose share of extra calls may be saved up


class HedgeQuota:
    """The quota of one hedge. ``calls``: how many calls there were."""

    def __init__(self, share: float | None) -> None:
        self._share = share
        self.calls = 0
        self._spent = 0.0  # extra calls, and the part of the quota that expired unused

    def spend(self) -> bool:
        """Return True and count an extra call if the quota allows it."""
        if self._share is None:
            return True
        earned = 1 + self.calls * self._share
        self._spent = max(self._spent, earned - 1 - MAX_SAVED_CALLS * self._share)
        if earned - self._spent < 1 - 1e-9:
            return False
        self._spent += 1
        return True

    def reconfigure(self, share: float | None) -> None:
        """Set the share. The extra calls that may be made now stay as many."""
        self._spent += self.calls * ((share or 0.0) - (self._share or 0.0))
        self._share = share

    def refund(self) -> None:
        """Return the quota of an extra call that never started."""
        self._spent -= 1
