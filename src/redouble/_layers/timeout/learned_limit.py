"""A limit that is learned: a multiple of the latency that most of the recent calls stayed under.

Rule 1: calls that succeed are recorded. A call that was cut off, by this limit or another one, counts as one
        that took at least as long, so that a limit that cuts calls rises. Other failures say nothing: an
        error at once is no fast call.
Rule 2: until there were enough calls, the limit is the initial one.
"""

from __future__ import annotations

from redouble._internal.locks import ForkSafe
from redouble._layers.hedge.latency import LatencyHistogram
from redouble._runtime.clock import SYSTEM


class LearnedLimit(ForkSafe):
    """The limit of the calls of one `Timeout`, shared by all threads and event loops."""

    def __init__(
        self, multiple: float, quantile: float, least: float, most: float, initial: float, minimum: int | None
    ) -> None:
        super().__init__()
        self._initial = initial
        self._latencies = LatencyHistogram(
            1 - quantile, SYSTEM.now(), minimum=minimum, shortest=least, longest=most, factor=multiple
        )

    @property
    def seconds(self) -> float:
        """The current limit."""
        learned = self._latencies.threshold
        return self._initial if learned is None else learned

    def reconfigure(self, other: LearnedLimit) -> None:
        """Adopt the initial limit, the share, the multiple and the bounds of another one."""
        with self._lock:
            self._initial = other._initial
            self._latencies.reconfigure(other._latencies)

    def record(self, seconds: float, error: BaseException | None, now: float) -> None:
        """Record a call that took this long, and its error."""
        with self._lock:
            if error is None:
                self._latencies.record(seconds, now)
            elif isinstance(error, TimeoutError) or not isinstance(error, Exception):
                self._latencies.record_cut(seconds, now)
