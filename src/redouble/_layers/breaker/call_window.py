"""The windows in which a circuit counts calls, and the bad ones among them.

A window has the calls of the last seconds, or the last calls.

A window has no clock and no lock: its owner passes the time, and holds the lock.
"""

from __future__ import annotations

from typing import Protocol

from redouble._internal.sliding_counter import SLICES, SlidingCounter


class CallWindow(Protocol):
    """A window of calls. ``calls`` and ``bad``: the counts as of the last recorded call."""

    calls: int
    bad: int

    def record(self, bad: bool, now: float, /) -> None:
        """Count a call."""
        ...

    def counts(self, now: float, /) -> tuple[int, int]:
        """Return how many calls are in the window now, and how many of them are bad."""
        ...

    def resized(self, seconds: float, size: int | None, /) -> CallWindow:
        """Return the window with another length: with its counts, unless it has another form then."""
        ...


class TimeWindow:
    """The calls of the last ``seconds``, in slices."""

    __slots__ = ("_bad", "_calls", "_seconds", "bad", "calls")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._calls, self._bad = SlidingCounter(), SlidingCounter()
        self.calls = self.bad = 0

    def record(self, bad: bool, now: float, /) -> None:
        """Count a call, and drop the slices that have left the window."""
        calls, bad_calls = self._calls, self._bad
        index = int(now * SLICES // self._seconds)
        if index != calls.latest:
            calls.advance(index)
            bad_calls.advance(index)
        calls.counts[calls.position] += 1  # inlined: this runs for every call
        calls.total += 1
        if bad:
            bad_calls.counts[bad_calls.position] += 1
            bad_calls.total += 1
        self.calls, self.bad = calls.total, bad_calls.total

    def counts(self, now: float, /) -> tuple[int, int]:
        """Return how many calls are in the window now, and how many of them are bad."""
        index = int(now * SLICES // self._seconds)
        return self._calls.count_at(index), self._bad.count_at(index)

    def resized(self, seconds: float, size: int | None, /) -> CallWindow:
        """Return the window with another length: with its counts, unless it counts calls then."""
        if size is not None:
            return CountWindow(size)
        if seconds != self._seconds:
            self._calls.rescale(self._seconds, seconds)
            self._bad.rescale(self._seconds, seconds)
            self._seconds = seconds
        self.calls, self.bad = self._calls.total, self._bad.total
        return self


class CountWindow:
    """The last ``size`` calls, whenever they were: one byte for each, in a ring."""

    __slots__ = ("_position", "_results", "bad", "calls")

    def __init__(self, size: int) -> None:
        self._results = bytearray(size)  # 1: bad
        self._position = 0  # of the next call, which replaces the oldest one if the ring is full
        self.calls = self.bad = 0

    def record(self, bad: bool, now: float, /) -> None:  # noqa: ARG002  as `TimeWindow`
        """Count a call, in place of the oldest one if the window is full."""
        results, position = self._results, self._position
        size = len(results)
        if self.calls < size:
            self.calls += 1
        else:
            self.bad -= results[position]
        results[position] = bad
        self.bad += bad
        self._position = position + 1 if position + 1 < size else 0

    def counts(self, now: float, /) -> tuple[int, int]:  # noqa: ARG002  as `TimeWindow`
        """Return how many calls are in the window, and how many of them are bad."""
        return self.calls, self.bad

    def resized(self, seconds: float, size: int | None, /) -> CallWindow:
        """Return a window of another size with the latest calls, or an empty one if it counts time then."""
        if size is None:
            return TimeWindow(seconds)
        resized, results = CountWindow(size), self._results
        for back in range(min(self.calls, size), 0, -1):
            resized.record(bool(results[self._position - back]), 0)
        return resized


def new_window(seconds: float, size: int | None) -> CallWindow:
    """Return an empty window: of the last ``size`` calls, or if that is None of the last ``seconds``."""
    return TimeWindow(seconds) if size is None else CountWindow(size)
