"""Relearning the latency without a queue, for one window with half of the limit; and clocks that go back."""

from __future__ import annotations

import pytest

from redouble._layers.limits.limit_algorithms import Gradient
from redouble._layers.limits.limit_window import MIN_SAMPLES
from tests.support.layers.limits.limit_windows import RecordingAlgorithm, calls, new_limit, windowed

# --------------------------------------------------------------------------- relearning


def test_relearning_halves_the_limit_for_one_window() -> None:
    algorithm = RecordingAlgorithm(20, 20, 99, 30)
    limit = windowed(algorithm, relearn=2.0)
    calls(limit, 1.0, MIN_SAMPLES)
    assert (limit.limit, algorithm.resets) == (20, 0)
    calls(limit, 2.0, MIN_SAMPLES)
    assert (limit.limit, algorithm.resets) == (10, 1)
    calls(limit, 3.0, MIN_SAMPLES)
    assert (limit.limit, algorithm.resets) == (20, 1)  # restored, whatever the algorithm answered
    assert algorithm.samples[2][0] == 10
    calls(limit, 3.9, MIN_SAMPLES)
    calls(limit, 4.0, 1)
    assert (limit.limit, algorithm.resets) == (15, 2)


@pytest.mark.parametrize(("relearn", "at"), [(60.0, 15), (3.0, 13)])
def test_the_first_relearning_is_early(relearn: float, at: int) -> None:
    """After five windows, because the first ones may have been measured under load."""
    algorithm = RecordingAlgorithm()
    limit = new_limit(algorithm, 10.0, relearn=relearn)
    for second in range(11, at):
        calls(limit, float(second), MIN_SAMPLES)
    assert algorithm.resets == 0
    calls(limit, float(at), MIN_SAMPLES)
    assert (algorithm.resets, limit.limit) == (1, 10)
    calls(limit, at + 1.0, MIN_SAMPLES)
    assert (algorithm.resets, limit.limit) == (1, 20)


def test_relearning_keeps_the_limit_if_few_calls_are_in_flight() -> None:
    algorithm = RecordingAlgorithm()
    limit = windowed(algorithm, relearn=2.0)
    for second in (1.0, 2.0, 3.0):
        calls(limit, second, MIN_SAMPLES, in_flight=9)
        assert limit.limit == 20
    assert algorithm.resets == 1


@pytest.mark.parametrize(("least", "limit"), [(15, 15), (20, 20), (1, 10)])
def test_relearning_does_not_lower_the_limit_below_the_least(least: int, limit: int) -> None:
    algorithm = RecordingAlgorithm()
    made = windowed(algorithm, least=least, relearn=1.5)
    calls(made, 1.5, MIN_SAMPLES)
    assert made.limit == limit
    calls(made, 2.5, MIN_SAMPLES)
    assert made.limit == 20
    assert [asked[0] for asked in algorithm.samples] == [20, limit]


def test_a_window_with_a_dropped_call_postpones_relearning() -> None:
    algorithm = RecordingAlgorithm()
    limit = windowed(algorithm, relearn=1.0)
    limit.record(None, 20, 1.0, dropped=True)
    assert (limit.limit, algorithm.resets) == (20, 0)
    calls(limit, 2.0, MIN_SAMPLES)
    assert (limit.limit, algorithm.resets) == (10, 1)


def test_a_call_dropped_while_relearning_lowers_the_limit() -> None:
    algorithm = RecordingAlgorithm(20, 9)
    limit = windowed(algorithm, relearn=1.0)
    calls(limit, 1.0, MIN_SAMPLES)
    limit.record(None, 10, 2.0, dropped=True)
    assert limit.limit == 9
    calls(limit, 3.0, MIN_SAMPLES)
    assert algorithm.samples[2][0] == 9


def test_calls_that_began_before_relearning_are_ignored() -> None:
    """With many calls in flight, the first ones to end began before the limit was halved."""
    algorithm = Gradient()
    limit = windowed(algorithm, initial=200, relearn=3.0)
    calls(limit, 3.0, 200, seconds=0.4, in_flight=200)
    assert limit.limit == 132
    calls(limit, 3.1, 200, seconds=0.4, in_flight=200)
    calls(limit, 3.5, 400, seconds=0.1, in_flight=100)
    assert calls(limit, 4.0, 1, seconds=0.1, in_flight=100) == [791]
    assert limit.limit == 265
    assert algorithm.shortest == 0.1


@pytest.mark.parametrize(("random", "at"), [(0.0, 85), (0.5, 100), (0.999_999, 115)])
def test_the_time_of_relearning_is_jittered(random: float, at: int) -> None:
    algorithm = RecordingAlgorithm()
    limit = windowed(algorithm, relearn=100.0, random=random)
    for second in range(1, at):
        calls(limit, float(second), MIN_SAMPLES)
    assert algorithm.resets == 0
    calls(limit, float(at), MIN_SAMPLES)
    assert algorithm.resets == 1


# ------------------------------------------------------------------ clocks that go back


def test_a_clock_that_goes_back_far_begins_a_new_window() -> None:
    algorithm = RecordingAlgorithm(30)
    limit = new_limit(algorithm, 5000.0)
    calls(limit, 5000.9, MIN_SAMPLES)
    calls(limit, 7.0, MIN_SAMPLES)
    assert (limit.limit, algorithm.samples) == (20, [])
    calls(limit, 8.0, 1, seconds=0.7)
    assert (limit.limit, len(algorithm.samples)) == (30, 1)
    assert algorithm.samples[0][1] == 0.1
    for second in range(9, 67):
        calls(limit, float(second), MIN_SAMPLES)
    assert algorithm.resets == 0
    calls(limit, 67.0, MIN_SAMPLES)
    assert algorithm.resets == 1


def test_a_clock_that_goes_back_a_little_keeps_the_window() -> None:
    limit = new_limit(RecordingAlgorithm(30), 5000.0)
    calls(limit, 4999.5, MIN_SAMPLES)
    assert calls(limit, 5001.0, 1) == [MIN_SAMPLES + 1]
