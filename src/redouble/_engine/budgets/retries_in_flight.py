"""The calls and the retries in flight of one budget, and how many retries there may be at once.

Rule 1: a call is in ``calls`` from its begin to its end, and in ``retries`` from the grant of a retry, before
        the delay, to the end of that attempt.
Rule 2: both sets hold weak references to a `CallInFlight`. Its driver ends it; one that was dropped without
        an end, because a signal handler has raised in between, leaves the sets when it is deallocated.
Rule 3: `admit` compares and adds under the lock. Everything else is one operation of a set, which takes none
        and may be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from weakref import ref

from redouble._internal.locks import ForkSafe
from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import integer, number


@public("redouble.types")
class RetriesInFlight(ForkSafe):
    """The counters of a budget that limits the retries in flight: for its `BudgetTraits`.

    share: the retries that may be in flight, as a share of the calls in flight, such as 0.2.
    minimum: the retries that may be in flight in any case.
    """

    def __init__(self, share: float, minimum: int = 3) -> None:
        wanted = "a share of the calls in flight from 0 to 1, such as 0.2"
        self.share = number(share, "RetryBudget max_in_flight", 0, 1, wanted)
        self.minimum = integer(minimum, "RetryBudget minimum", 0, "a whole number, 0 or more, such as 3")
        self._exact_share = Fraction(repr(self.share)).as_integer_ratio()
        self.calls: set[object] = set()
        self.retries: set[object] = set()
        super().__init__()

    @property
    def most(self) -> int:
        """The retries that may be in flight now."""
        numerator, denominator = self._exact_share
        allowed, minimum = len(self.calls) * numerator // denominator, self.minimum
        return allowed if allowed > minimum else minimum  # noqa: FURB136  faster

    def call(self, *, counted: bool) -> CallInFlight:
        """Return a call to begin; ``counted``: False if only its retries count."""
        return CallInFlight(self, counted=counted)

    def admit(self, retry: object) -> bool:
        """Add a retry and return True, or return False if enough are in flight."""
        if self._owned_by_this_thread():
            return False  # re-entrant: a signal handler or the garbage collector runs inside this method
        with self._lock:
            if len(self.retries) >= self.most:
                return False
            self.retries.add(retry)
        return True

    def adopt(self, other: RetriesInFlight) -> None:
        """Copy the limits of another one; what is in flight stays."""
        with self._lock:
            self.share, self.minimum, self._exact_share = other.share, other.minimum, other._exact_share

    def snapshot(self) -> Mapping[str, int]:
        """Return the numbers of calls and retries in flight, and of the retries that may be."""
        return {
            "calls_in_flight": len(self.calls),
            "retries_in_flight": len(self.retries),
            "max_retries_in_flight": self.most,
        }

    def _after_fork(self) -> None:
        super()._after_fork()
        self.calls.clear()  # they run in the parent
        self.retries.clear()


class CallInFlight:
    """One call: in flight from `begin_call` to `end`, with at most one retry at a time.

    counted: False if only its retries count, because a call around it counts for both.
    """

    __slots__ = ("__weakref__", "_call", "_counter", "_retry")

    def __init__(self, counter: RetriesInFlight, *, counted: bool) -> None:
        self._counter = counter
        self._call = self._reference(counter.calls) if counted else None
        self._retry: object = None

    def begin_call(self) -> None:
        """Count the call as in flight."""
        if self._call is not None:
            self._counter.calls.add(self._call)

    def begin_retry(self) -> bool:
        """Count a retry of the call as in flight, or return False if enough are."""
        self._retry = retry = self._retry or self._reference(self._counter.retries)
        return self._counter.admit(retry)

    def _reference(self, counted: set[object]) -> object:
        """Return a weak reference that leaves a set when the call is deallocated."""
        reference = ref(self, counted.discard)
        hash(reference)  # which is impossible afterwards
        return reference

    def end_retry(self) -> None:
        """Record that the attempt has ended; the first one of the call is no retry."""
        if self._retry is not None:
            self._counter.retries.discard(self._retry)

    @try_from_start
    def end(self) -> None:
        """Record that the call has ended, and its retry."""
        try:
            self._counter.retries.discard(self._retry)
            self._counter.calls.discard(self._call)
        except BaseException:
            self._counter.retries.discard(self._retry)
            self._counter.calls.discard(self._call)
            raise
