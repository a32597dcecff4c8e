"""What is left of one limit: the exact arithmetic of an allowance.

It is told the time, in slices, and has no clock and no lock; nothing in it changes in place.

Rule 1: what is spent and what is reserved are never more than the limit, together.
Rule 2: what is spent counts for `KEPT` slices, its own included: it is forgotten only when it is surely older
        than the window. So there are at most that many numbers to keep, however many calls there are.
Rule 3: what was taken beyond the limit is owed. While anything is owed nothing is left: whatever leaves the
        window, and whatever is handed back, pays for it first, and counts from then on.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from redouble._internal.sliding_counter import SLICES

__all__ = ["KEPT", "Allowance", "Amount"]

Amount: TypeAlias = int | Fraction

KEPT = SLICES + 1  # the running slice is not over
LONG_AGO = -(2**62)  # a slice before all others


class Allowance(NamedTuple):
    """One limit, and what is taken of it."""

    limit: Amount
    soft: Amount | None = None  # from here on it is worth a warning
    spent: Amount = 0
    reserved: Amount = 0
    owed: Amount = 0
    parts: tuple[tuple[int, Amount], ...] = ()  # what is spent: slices in order, and how much in each
    latest: int = LONG_AGO  # the slice of the last use
    warned: int = LONG_AGO  # that there is little left
    told: int = LONG_AGO  # that something is owed

    @property
    def left(self) -> Amount:
        """How much could be reserved."""
        return self.limit - self.spent - self.reserved

    def at(self, index: int) -> Allowance:
        """Forget what is too old by now, and let what is owed take its place."""
        if index == self.latest:
            return self
        if index < self.latest:
            return self._redated(index - self.latest)
        spent, owed, parts = self.spent, self.owed, deque(self.parts)
        if owed and parts:  # windows that went by with nothing but paying: there may be millions
            laps = min((index - parts[-1][0]) // KEPT, int(owed // spent))
            owed -= laps * spent
            parts = deque((began + laps * KEPT, amount) for began, amount in parts)
        while parts and parts[0][0] + KEPT <= index:
            began, amount = parts.popleft()
            paid = min(owed, amount)
            if paid:
                parts.append((began + KEPT, paid))
            owed, spent = owed - paid, spent - amount + paid
        return self._replace(spent=spent, owed=owed, parts=tuple(parts), latest=index)

    def _redated(self, by: int) -> Allowance:
        """Go on by another clock: how much time went by is not known, so it is taken for none."""
        return self._replace(
            parts=tuple((began + by, amount) for began, amount in self.parts),
            latest=self.latest + by,
            warned=self.warned + by,
            told=self.told + by,
        )

    def reserve(self, amount: Amount) -> Allowance:
        """Set aside what is left for sure."""
        return self._replace(reserved=self.reserved + amount)._warned() if amount else self

    def settle(self, held: Amount, taken: Amount) -> Allowance:
        """Hand back what was held, and count what was really taken."""
        reserved, due = self.reserved - held, self.owed + taken
        paid = min(due, self.limit - self.spent - reserved)
        parts = self.parts
        if paid:
            same = bool(parts) and parts[-1][0] == self.latest
            before = parts[-1][1] if same else 0
            parts = (*parts[: len(parts) - same], (self.latest, before + paid))
        settled = self._replace(spent=self.spent + paid, reserved=reserved, owed=due - paid, parts=parts)
        if settled.owed > self.owed and self._due(self.told):
            settled = settled._replace(told=self.latest)
        return settled._warned() if taken else settled

    def _warned(self) -> Allowance:
        if self.soft is None or not self._due(self.warned) or self.spent + self.reserved < self.soft:
            return self
        return self._replace(warned=self.latest)

    def _due(self, last: int) -> bool:
        """Say whether something may be told again: once in a window is enough."""
        return self.latest >= last + KEPT

    def fits_from(self, amount: Amount) -> int | None:
        """Tell from which slice on it would fit, if nobody else comes; None if time alone does not help.

        What is owed comes first: the whole window may have to pass more than once.
        """
        if amount > self.limit - self.reserved:
            return None
        leave = self.owed + amount - self.left
        laps = -(-leave // self.spent) - 1
        gone = accumulate(part for _, part in self.parts)
        first = next(place for place, sum_ in enumerate(gone) if sum_ >= leave - laps * self.spent)
        return self.parts[first][0] + (laps + 1) * KEPT
