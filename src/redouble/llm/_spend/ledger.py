"""All limits of a `Spend` together, and who holds what of them: both change at once, or neither.

Rule 1: what there is now is one mapping, never changed in place. Who changes something makes another one,
        looks whether it is still the old one that is there, and puts the new one in its place: from looking
        to taking there is no call, so that neither a signal nor the collector can come in between. If one has
        come before, and done something of its own, all is reckoned anew.
Rule 2: time is read under the lock, or it would be too old by then: an amount would leave too early.
Rule 3: who holds something may go without a word. What is left behind then is noted by a function of C, which
        nothing can interrupt and which needs no lock; whoever comes next settles it.

What is left of one limit: the exact arithmetic of an allowance.

It is told the time, in slices, and has no clock and no lock; nothing in it changes in place.

Rule 1: what is spent and what is reserved are never more than the limit, together.
Rule 2: what is spent counts for `KEPT` slices, its own included: it is forgotten only when it is surely older
        than the window. So there are at most that many numbers to keep, however many calls there are.
Rule 3: what was taken beyond the limit is owed. While anything is owed nothing is left: whatever leaves the
        window, and whatever is handed back, pays for it first, and counts from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias
from weakref import ref

from redouble._internal.locks import ForkSafe
from redouble._internal.sliding_counter import SLICES
from redouble._runtime.clock import SYSTEM

__all__ = [
    "ALL",
    "KEPT",
    "NOTHING",
    "SETTLED",
    "Amount",
    "Amounts",
    "LedgerChange",
    "LedgerView",
    "LimitState",
    "SpendLedger",
    "Taken",
    "WeakHold",
]


Amount: TypeAlias = int | Fraction

KEPT = SLICES + 1  # the running slice is not over
LONG_AGO = -(2**62)  # a slice before all others


class LimitState(NamedTuple):
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

    def at(self, index: int) -> LimitState:
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

    def _redated(self, by: int) -> LimitState:
        """Go on by another clock: how much time went by is not known, so it is taken for none."""
        return self._replace(
            parts=tuple((began + by, amount) for began, amount in self.parts),
            latest=self.latest + by,
            warned=self.warned + by,
            told=self.told + by,
        )

    def reserve(self, amount: Amount) -> LimitState:
        """Set aside what is left for sure."""
        return self._replace(reserved=self.reserved + amount)._warned() if amount else self

    def settle(self, held: Amount, taken: Amount) -> LimitState:
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

    def _warned(self) -> LimitState:
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


Amounts: TypeAlias = Mapping[str, Amount]  # of what, how much
Taken: TypeAlias = Mapping[str, Amount | None]  # None: all that was held
LedgerView: TypeAlias = Mapping[str, LimitState]

NOTHING: Final[Amounts] = {"tokens": 0, "cost": 0, "requests": 0}
ALL: Final[Taken] = dict.fromkeys(NOTHING)
SETTLED = (
    "this reservation is settled: commit() or release() was called before, or its `with` block is over. "
    "Each call needs one of its own: spend.reserve(...)"
)


class HeldAmounts(NamedTuple):
    """What somebody holds, and in which process: what a parent held is nobody's in its child."""

    forks: int
    amounts: Amounts


class WeakHold(ref[object]):
    """What somebody holds, for as long as that one lives; None once it is settled.

    ``lost``: what counts as taken if that one goes without a word.
    """

    held: HeldAmounts | None = None
    lost: Taken = NOTHING


class LedgerChange(NamedTuple):
    """What there was, and what there is now: None if nothing was changed."""

    before: LedgerView
    after: LedgerView | None


class SpendLedger(ForkSafe):
    """What is left of each limit, for any number of holders."""

    def __init__(self, allowances: LedgerView, per: float | None) -> None:
        super().__init__()
        self._stand = allowances
        self._forks = 0
        self._holds = dict[int, WeakHold]()  # by identity: what is dead has no other
        self._gone: list[WeakHold] = []  # of those who are no more
        # Of slices in a second, and exactly so: an amount must not leave the window a moment early.
        self._up, self._down = (0, 1) if per is None else (SLICES / Fraction(per)).as_integer_ratio()

    def now(self) -> LedgerView:
        """Tell what there is."""
        with self._lock:
            self._tidy()
            return self._moved(self._stand)

    def until(self, index: int) -> float:
        """Tell in how many seconds a slice will have begun, and be it by a hundredth of one."""
        width = self._down / self._up
        return max(0.0, index * self._down / self._up - SYSTEM.now()) + width / 100

    def open(self, holder: object, lost: Taken) -> WeakHold:
        """Let somebody hold something from now on: nothing at first."""
        hold = WeakHold(holder, self._gone.append)
        hold.lost = lost
        hold.held = HeldAmounts(self._forks, {})
        self._holds[id(hold)] = hold
        return hold

    def hold(self, hold: WeakHold, asked: Amounts, least: Amounts) -> LedgerChange:
        """Let somebody hold all of it, or nothing more. Where it is 0, ``least`` has to be left."""
        with self._lock:
            self._tidy()
            while True:
                stand, held = self._stand, hold.held
                if held is None:
                    raise RuntimeError(SETTLED)
                now = self._moved(stand)
                if any((asked[what] or least[what]) > allowance.left for what, allowance in now.items()):
                    return LedgerChange(now, None)
                after = {what: allowance.reserve(asked[what]) for what, allowance in now.items()}
                had = self._here(held)
                held = HeldAmounts(self._forks, {what: had.get(what, 0) + asked[what] for what in now})
                if self._stand is stand:  # by rule 1
                    self._stand = after
                    hold.held = held
                    return LedgerChange(now, after)

    def settle(self, hold: WeakHold, taken: Taken) -> LedgerChange:
        """Let somebody hold nothing any more, and count what was taken: for None all that was held."""
        with self._lock:
            # Before what others have left behind: it may be among that, if the collector has found it with
            # whoever settles it now.
            change = self._settled(hold, taken)
            self._holds.pop(id(hold), None)
            self._tidy()
            return change

    def _settled(self, hold: WeakHold, taken: Taken) -> LedgerChange:
        while True:
            stand, held = self._stand, hold.held
            if held is None:
                return LedgerChange(stand, None)
            now, had = self._moved(stand), self._here(held)
            after = dict[str, LimitState]()
            for what, allowance in now.items():
                holds, took = had.get(what, 0), taken[what]
                after[what] = allowance.settle(holds, holds if took is None else took)
            if self._stand is stand:  # by rule 1
                self._stand = after
                hold.held = None
                return LedgerChange(now, after)

    def _tidy(self) -> None:
        """Settle what is left behind by those who are no more."""
        gone = self._gone
        while gone:
            hold = gone[0]
            self._settled(hold, hold.lost)
            self._holds.pop(id(hold), None)
            if gone and gone[0] is hold:  # else a signal has come, and done it
                del gone[0]

    def _here(self, held: HeldAmounts) -> Amounts:
        return held.amounts if held.forks == self._forks else {}

    def _moved(self, stand: LedgerView) -> LedgerView:
        index = 0
        if self._up:
            up, down = SYSTEM.now().as_integer_ratio()
            index = up * self._up // (down * self._down)
        return {what: allowance.at(index) for what, allowance in stand.items()}

    def _after_fork(self) -> None:
        super()._after_fork()
        self._forks += 1
        self._stand = {
            what: allowance.settle(allowance.reserved, 0) for what, allowance in self._stand.items()
        }
