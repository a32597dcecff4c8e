"""Windowed limits, and an algorithm that records its samples."""

from __future__ import annotations

from typing import Any

from redouble import AdaptiveConcurrency
from redouble._layers.limits.limit_algorithms import LimitAlgorithm, Sample
from redouble._layers.limits.limit_window import WindowedLimit
from tests.support.scripted import Draws

LONG = 1e9  # seconds until relearning: longer than these tests


class RecordingAlgorithm(LimitAlgorithm):
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


def new_limit(
    algorithm: LimitAlgorithm, now: float = 0.0, *, random: float = 0.5, **options: Any
) -> WindowedLimit:
    """Return a limit with windows of one second."""
    settings = AdaptiveConcurrency(window=1, random=Draws(random), **options).settings
    return WindowedLimit(settings, algorithm, now)


def windowed(algorithm: LimitAlgorithm, relearn: float = LONG, **options: Any) -> WindowedLimit:
    """Return a limit at time 0, with windows of one second and without the early first relearning."""
    made = new_limit(algorithm, relearn=relearn, **options)
    made._schedule_relearning(0.0)
    return made


def calls(
    limit: WindowedLimit, now: float, count: int, seconds: float = 0.1, in_flight: int = 20
) -> list[int]:
    """Record ``count`` calls that end at once; return the results of `record()`."""
    return [limit.record(seconds, in_flight, now) for _ in range(count)]
