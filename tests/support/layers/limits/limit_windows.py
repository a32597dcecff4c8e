"""Windowed limits, and an algorithm that records its samples."""

from __future__ import annotations

from typing import Any

from redouble._layers.limits.limit_algorithms import LimitAlgorithm, Sample
from redouble._layers.limits.limit_window import WindowedLimit

LONG = 1e9  # seconds until relearning: longer than these tests


class RecordingAlgorithm:
    """A limit algorithm that records its arguments and returns the given answers."""

    def __init__(self, *answers: float) -> None:
        self.answers = [*answers]
        self.samples: list[tuple[float, float, int, bool]] = []
        self.resets = 0

    def next(self, limit: float, sample: Sample, /) -> float:
        self.samples.append((limit, sample.rtt, sample.in_flight, sample.dropped))
        return self.answers.pop(0) if self.answers else limit

    def forget(self) -> None:
        self.resets += 1


def windowed(
    algorithm: LimitAlgorithm, initial: int = 20, least: int = 1, most: int = 1000, **options: Any
) -> WindowedLimit:
    """Return a limit at time 0, with windows of one second and without the early first relearning."""
    chance = options.get("random", 0.5)
    made = WindowedLimit(
        algorithm, initial, least, most, 1.0, options.get("relearn", LONG), 0.0, lambda: chance
    )
    made._schedule_relearning(0.0)
    return made


def calls(
    limit: WindowedLimit, now: float, count: int, seconds: float = 0.1, in_flight: int = 20
) -> list[int]:
    """Record ``count`` calls that end at once; return the results of `record()`."""
    return [limit.record(seconds, in_flight, now) for _ in range(count)]
