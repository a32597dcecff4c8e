"""`LimitLedger`: what is taken and reserved of one limit of a `Spend`, in a sliding window of slices.

All amounts are integers. It has no clock and no lock: its `Spend` passes the index of the current slice, and
holds the lock.

Rule 1: the amounts spent and reserved together never exceed the limit. What is taken beyond it is overdrawn:
        while anything is overdrawn nothing is left. Whatever leaves the window or is released makes up for it
        first, and counts as spent from then on.
Rule 2: a spent amount counts for `WINDOW_SLICES` slices, its own included: it is dropped only when it is
        certainly older than the window. That many numbers are stored, however many calls there are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from math import inf
from typing import NamedTuple, cast

from redouble._internal.sliding_counter import SLICES
from redouble.llm._spend.usage import UNITS, multiply

WINDOW_SLICES = SLICES + 1  # the current slice is not complete


class Shortage(NamedTuple):
    """A limit with too little left. The greatest of several shortages is the one with the longest wait."""

    exceeds_limit: bool
    never_fits: bool  # by waiting alone
    fits_from: int  # a slice
    resource: str
    message: str


class LimitLedger:
    """The amounts of one limit. Where nothing is limited, ``limit`` is infinite: there are only the sums."""

    def __init__(self, resource: str, limit: int | None, suffix: str, warn_at: float | None) -> None:
        self.resource, self.limit = resource, cast("int", inf) if limit is None else limit
        self._unit = UNITS if resource == "cost" else 1
        self._title = f"Spend({resource}={self._text(self.limit)}{suffix})"
        self._warn_from = inf if limit is None or warn_at is None else multiply(warn_at, limit)
        self.log_from = min(self._warn_from, self.limit + 1)
        self._warn_again = self._overdraft_again = 0  # slices: each message is logged once per window
        self.taken = self.reserved = 0  # ``taken`` includes what is overdrawn
        self.slices = [0] * WINDOW_SLICES  # the spent amounts, by the index of their slice modulo the size
        self._spent = self._slice = 0  # their sum, and the index of the current slice

    def advance(self, index: int) -> None:
        """Advance to a slice: amounts older than the window are dropped, overdrawn ones take their place."""
        while self._step(index):
            pass

    def _step(self, index: int) -> bool:
        """Count overdrawn amounts as spent, then advance by one slice or more; False at the end. Atomic."""
        room = self.limit - self.reserved
        spent = self.taken if self.taken < room else room  # noqa: FURB136  min() is a call
        self.slices[self._slice % WINDOW_SLICES] += spent - self._spent
        self._spent = spent
        if not spent and self._slice < index:
            self._slice = index
        if self._slice >= index:
            return False
        # Skip whole windows in which overdrawn amounts replace all that is spent: there may be millions.
        windows, most = (index - self._slice) // WINDOW_SLICES, (self.taken - spent) // spent
        windows = windows if windows < most else most  # noqa: FURB136
        if windows:
            self.taken -= windows * spent
            self._slice += windows * WINDOW_SLICES
        else:
            self._slice += 1
            place = self._slice % WINDOW_SLICES
            self.taken -= self.slices[place]
            self._spent -= self.slices[place]
            self.slices[place] = 0
        return True

    def shortage(self, asked: int, wanted: int) -> Shortage:
        """Return when ``wanted`` fits if no other amount is taken before; the call reserves ``asked``.

        Overdrawn amounts come first: the whole window may have to pass more than once.
        """
        self.advance(self._slice)  # so that overdrawn amounts count as spent
        fits_from, missing = self._slice, self.taken + self.reserved + wanted - self.limit
        lacks, exceeds = wanted > 0 and missing > 0, wanted > self.limit
        never = lacks and (wanted > self.limit - self.reserved or not self._spent)
        if lacks and not never:
            windows, missing = divmod(missing - 1, self._spent)
            oldest = (self._slice + 1) % WINDOW_SLICES
            freed = [*accumulate(self.slices[oldest:] + self.slices[:oldest])]
            fits_from += windows * WINDOW_SLICES + bisect_right(freed, missing) + 1
        verb = "was" if asked == self._unit else "were"
        why = f"{self._text(asked)} {verb} asked for" if asked else "none is left"
        spent, reserved, _, _, overdrawn = self._amounts()
        owed = f", {self._text(overdrawn)} overdrawn" if overdrawn else ""
        state = f"{self._text(spent)} are spent{owed} and {self._text(reserved)} reserved, and {why}"
        message = f"{why}, which is more than it ever allows" if exceeds else state
        return Shortage(exceeds, never, fits_from, self.resource, f"{self._title}: {message}")

    def messages(self) -> Iterator[tuple[str, ...]]:
        """Yield what to log, each at most once per window: `warn_at` is passed, or the limit overdrawn."""
        used = self.taken + self.reserved
        if used >= self._warn_from and self._slice >= self._warn_again:
            self._warn_again = self._slice + WINDOW_SLICES
            shown = self._text(min(used, self.limit)), self._text(self.limit)
            yield "%s: %s of %s are spent or reserved", self._title, *shown
        if used > self.limit and self._slice >= self._overdraft_again:
            self._overdraft_again = self._slice + WINDOW_SLICES
            yield "%s: %s more were used than it allows", self._title, self._text(used - self.limit)

    def snapshot(self) -> dict[str, float]:
        """Return the amounts by their names."""
        name = self.resource
        names = name, f"{name}_reserved", f"{name}_left", f"{name}_limit", f"overdrawn_{name}"
        amounts = self._amounts() if self.limit < inf else (self.taken, self.reserved)
        shown = amounts if self._unit == 1 else [one / self._unit for one in amounts]
        return dict(zip(names, shown, strict=False))

    def _amounts(self) -> tuple[int, ...]:
        """Return what is spent, reserved and left, the limit, and what is overdrawn."""
        taken, reserved = self.taken, self.reserved
        overdrawn = max(0, taken + reserved - self.limit)
        left = self.limit - taken - reserved + overdrawn
        return taken - overdrawn, reserved, left, self.limit, overdrawn

    def _text(self, amount: int) -> str:
        return f"{amount}" if self._unit == 1 else f"{amount / self._unit:.12g}"
