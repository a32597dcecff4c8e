"""The ledger of a `Spend`: all of its limits, and the amounts that each holder has reserved of them.

`SpendLedger`
Rule 1: the limits are one mapping that is never changed in place. A change builds a new mapping, checks that
        the old one is still current and replaces it. Between that check and the assignment there is no call,
        so neither a signal handler nor the garbage collector can run there. If one ran before and changed
        the ledger, the change is computed again.
Rule 2: the clock is read under the lock. A time read before would be too old, and an amount would leave the
        window too early.
Rule 3: a holder may be garbage-collected without settling. Its weakref callback is a function written in C
        (`list.append`), which nothing can interrupt and which needs no lock: it queues the hold, and the next
        operation settles it.

`LimitState`, the exact arithmetic of one limit: immutable, and given the time as the index of a slice.
Rule 4: the amounts spent and reserved together never exceed the limit.
Rule 5: a spent amount counts for `WINDOW_SLICES` slices, its own included: it is dropped only when it is
        certainly older than the window. At most that many numbers are stored, however many calls there are.
Rule 6: an amount taken beyond the limit is overdrawn. While anything is overdrawn nothing is left: whatever
        leaves the window or is released makes up for it first, and counts as spent from then on.
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
    "ALREADY_SETTLED",
    "NOTHING",
    "WINDOW_SLICES",
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

WINDOW_SLICES = SLICES + 1  # the current slice is not complete
NEVER = -(2**62)  # an index before every slice


class LimitState(NamedTuple):
    """The state of one limit: what is spent, reserved and overdrawn."""

    limit: Amount
    warn_from: Amount | None = None  # log a warning from this amount on
    spent: Amount = 0
    reserved: Amount = 0
    overdrawn: Amount = 0
    slices: tuple[tuple[int, Amount], ...] = ()  # what is spent: index of the slice and amount, in order
    last_slice: int = NEVER  # of the last operation
    warned_in: int = NEVER  # the slice of the last warning
    overdraft_logged_in: int = NEVER  # the slice of the last log of an overdraft

    @property
    def left(self) -> Amount:
        """The amount that can be reserved."""
        return self.limit - self.spent - self.reserved

    def at(self, index: int) -> LimitState:
        """Return the state at slice ``index``: old amounts are dropped, overdrawn ones take their place."""
        if index == self.last_slice:
            return self
        if index < self.last_slice:
            return self._shifted(index - self.last_slice)
        spent, overdrawn, slices = self.spent, self.overdrawn, deque(self.slices)
        if overdrawn and slices:  # skip windows without any call: there may be millions
            laps = min((index - slices[-1][0]) // WINDOW_SLICES, int(overdrawn // spent))
            overdrawn -= laps * spent
            slices = deque((began + laps * WINDOW_SLICES, amount) for began, amount in slices)
        while slices and slices[0][0] + WINDOW_SLICES <= index:
            began, amount = slices.popleft()
            paid = min(overdrawn, amount)
            if paid:
                slices.append((began + WINDOW_SLICES, paid))
            overdrawn, spent = overdrawn - paid, spent - amount + paid
        return self._replace(spent=spent, overdrawn=overdrawn, slices=tuple(slices), last_slice=index)

    def _shifted(self, by: int) -> LimitState:
        """Continue after the clock went backwards: the time that passed is unknown and counts as none."""
        return self._replace(
            slices=tuple((began + by, amount) for began, amount in self.slices),
            last_slice=self.last_slice + by,
            warned_in=self.warned_in + by,
            overdraft_logged_in=self.overdraft_logged_in + by,
        )

    def reserve(self, amount: Amount) -> LimitState:
        """Reserve an amount that is known to be left."""
        return self._replace(reserved=self.reserved + amount)._with_warning() if amount else self

    def settle(self, held: Amount, taken: Amount) -> LimitState:
        """Release the amount ``held`` and record the amount ``taken``."""
        reserved, due = self.reserved - held, self.overdrawn + taken
        paid = min(due, self.limit - self.spent - reserved)
        slices = self.slices
        if paid:
            same = bool(slices) and slices[-1][0] == self.last_slice
            before = slices[-1][1] if same else 0
            slices = (*slices[: len(slices) - same], (self.last_slice, before + paid))
        settled = self._replace(
            spent=self.spent + paid, reserved=reserved, overdrawn=due - paid, slices=slices
        )
        if settled.overdrawn > self.overdrawn and self._may_log_again(self.overdraft_logged_in):
            settled = settled._replace(overdraft_logged_in=self.last_slice)
        return settled._with_warning() if taken else settled

    def _with_warning(self) -> LimitState:
        if (
            self.warn_from is None
            or not self._may_log_again(self.warned_in)
            or self.spent + self.reserved < self.warn_from
        ):
            return self
        return self._replace(warned_in=self.last_slice)

    def _may_log_again(self, last: int) -> bool:
        """Return True if a message last logged in slice ``last`` is due again: once per window."""
        return self.last_slice >= last + WINDOW_SLICES

    def fits_from(self, amount: Amount) -> int | None:
        """Return the slice from which on an amount fits if no other is taken; None if time alone cannot help.

        Overdrawn amounts come first: the whole window may have to pass more than once.
        """
        if amount > self.limit - self.reserved:
            return None
        excess = self.overdrawn + amount - self.left
        laps = -(-excess // self.spent) - 1
        freed = accumulate(amount for _, amount in self.slices)
        first = next(place for place, sum_ in enumerate(freed) if sum_ >= excess - laps * self.spent)
        return self.slices[first][0] + (laps + 1) * WINDOW_SLICES


Amounts: TypeAlias = Mapping[str, Amount]  # by the name of the limit
Taken: TypeAlias = Mapping[str, Amount | None]  # None: all that was reserved
LedgerView: TypeAlias = Mapping[str, LimitState]

NOTHING: Final[Amounts] = {"tokens": 0, "cost": 0, "requests": 0}
ALL: Final[Taken] = dict.fromkeys(NOTHING)
ALREADY_SETTLED = (
    "this reservation is settled: commit() or release() was called before, or its `with` block is over. "
    "Each call needs one of its own: spend.reserve(...)"
)


class HeldAmounts(NamedTuple):
    """The amounts of one hold and the process they belong to: a forked child does not own its parent's."""

    fork_count: int
    amounts: Amounts


class WeakHold(ref[object]):
    """A weak reference to a holder, with the amounts it has reserved: ``held`` is None once they are settled.

    ``taken_if_abandoned``: what counts as taken if the holder is garbage-collected without settling.
    """

    held: HeldAmounts | None = None
    taken_if_abandoned: Taken = NOTHING


class LedgerChange(NamedTuple):
    """The limits before and after an operation; ``after`` is None if it changed nothing."""

    before: LedgerView
    after: LedgerView | None


class SpendLedger(ForkSafe):
    """The limits of one `Spend` and the holds on them."""

    def __init__(self, limits: LedgerView, per: float | None) -> None:
        super().__init__()
        self._view = limits
        self._fork_count = 0
        # By id(): a weak reference hashes as its referent, which may be dead.
        self._holds = dict[int, WeakHold]()
        self._abandoned: list[WeakHold] = []  # holds whose holder was collected
        # Slices per second, as an exact fraction: an amount must not leave the window too early.
        self._rate_up, self._rate_down = (
            (0, 1) if per is None else (SLICES / Fraction(per)).as_integer_ratio()
        )

    def view(self) -> LedgerView:
        """Return the limits as they are now."""
        with self._lock:
            self._settle_abandoned()
            return self._at_current_time(self._view)

    def seconds_until(self, index: int) -> float:
        """Return the seconds until a slice has certainly begun: a hundredth of a slice is added."""
        width = self._rate_down / self._rate_up
        return max(0.0, index * self._rate_down / self._rate_up - SYSTEM.now()) + width / 100

    def open_hold(self, holder: object, taken_if_abandoned: Taken) -> WeakHold:
        """Create the hold of a new holder, with nothing reserved."""
        hold = WeakHold(holder, self._abandoned.append)
        hold.taken_if_abandoned = taken_if_abandoned
        hold.held = HeldAmounts(self._fork_count, {})
        self._holds[id(hold)] = hold
        return hold

    def reserve(self, hold: WeakHold, amounts: Amounts, least: Amounts) -> LedgerChange:
        """Add all of the amounts to a hold, or none. Where an amount is 0, ``least`` must be left."""
        with self._lock:
            self._settle_abandoned()
            while True:
                view, held = self._view, hold.held
                if held is None:
                    raise RuntimeError(ALREADY_SETTLED)
                now = self._at_current_time(view)
                if any(
                    (amounts[resource] or least[resource]) > state.left for resource, state in now.items()
                ):
                    return LedgerChange(now, None)
                after = {resource: state.reserve(amounts[resource]) for resource, state in now.items()}
                own = self._amounts_of_this_process(held)
                held = HeldAmounts(
                    self._fork_count, {resource: own.get(resource, 0) + amounts[resource] for resource in now}
                )
                if self._view is view:  # by rule 1
                    self._view = after
                    hold.held = held
                    return LedgerChange(now, after)

    def settle(self, hold: WeakHold, taken: Taken) -> LedgerChange:
        """End a hold and record what was taken: for None all that was reserved."""
        with self._lock:
            # Before the abandoned holds: this one may be among them, if the garbage collector found it
            # together with the object that settles it now.
            change = self._settle(hold, taken)
            self._holds.pop(id(hold), None)
            self._settle_abandoned()
            return change

    def _settle(self, hold: WeakHold, taken: Taken) -> LedgerChange:
        while True:
            view, held = self._view, hold.held
            if held is None:
                return LedgerChange(view, None)
            now, own = self._at_current_time(view), self._amounts_of_this_process(held)
            after = dict[str, LimitState]()
            for resource, state in now.items():
                holds, took = own.get(resource, 0), taken[resource]
                after[resource] = state.settle(holds, holds if took is None else took)
            if self._view is view:  # by rule 1
                self._view = after
                hold.held = None
                return LedgerChange(now, after)

    def _settle_abandoned(self) -> None:
        """Settle the holds whose holders were garbage-collected."""
        abandoned = self._abandoned
        while abandoned:
            hold = abandoned[0]
            self._settle(hold, hold.taken_if_abandoned)
            self._holds.pop(id(hold), None)
            if abandoned and abandoned[0] is hold:  # else a signal handler has settled it
                del abandoned[0]

    def _amounts_of_this_process(self, held: HeldAmounts) -> Amounts:
        return held.amounts if held.fork_count == self._fork_count else {}

    def _at_current_time(self, view: LedgerView) -> LedgerView:
        index = 0
        if self._rate_up:
            up, down = SYSTEM.now().as_integer_ratio()
            index = up * self._rate_up // (down * self._rate_down)
        return {resource: state.at(index) for resource, state in view.items()}

    def _after_fork(self) -> None:
        super()._after_fork()
        self._fork_count += 1
        self._view = {resource: state.settle(state.reserved, 0) for resource, state in self._view.items()}
