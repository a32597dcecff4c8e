"""The latency histogram, without any clock."""

from __future__ import annotations

from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.hedge.latency import (
    FINEST,
    MAX_UPDATE_INTERVAL,
    MIN_CALLS,
    MIN_UPDATE_INTERVAL,
    SAMPLING_INTERVAL,
    SAMPLING_THRESHOLD,
    SHORTEST,
    WINDOW,
    LatencyHistogram,
)

HOUR = 4096.0


def threshold_after(share: float, times: list[float]) -> float | None:
    """Record these latencies until the threshold is updated, and return it."""
    latencies = LatencyHistogram(share, 0.0)
    for seconds in times:
        latencies.record(seconds, 1.0)
    return latencies.threshold


# ----------------------------------------------------------------------------- latencies


@settings(max_examples=50)
@given(
    times=st.lists(st.floats(SHORTEST, HOUR * 0.99), min_size=32, max_size=150),
    share=st.sampled_from([0.05, 0.1, 0.2, 0.5, 0.99]),
)
def test_the_threshold_is_a_percentile_rounded_up(times: list[float], share: float) -> None:
    times = times[(len(times) - MIN_CALLS) % MIN_UPDATE_INTERVAL :]  # the last one updates the threshold
    allowed = floor(len(times) * share)
    exactly = sorted(times, reverse=True)[allowed]
    found = threshold_after(share, times)
    assert found is not None
    assert exactly < found <= exactly * FINEST
    assert sum(seconds > found for seconds in times) <= allowed


@settings(max_examples=50)
@given(share=st.floats(1e-3, 1.0), takes=st.floats(SHORTEST, HOUR * 0.99))
def test_there_is_no_threshold_before_there_are_enough_calls(share: float, takes: float) -> None:
    """The share must be at least one call, and a few calls are not enough."""
    latencies, enough = LatencyHistogram(share, 0.0), max(MIN_CALLS, ceil(1 / share))
    for _ in range(enough - 1):
        latencies.record(takes, 1.0)
        assert latencies.threshold is None
    latencies.record(takes, 1.0)
    assert latencies.threshold is not None


def test_without_a_share_there_is_no_threshold() -> None:
    assert threshold_after(0.0, [1.0] * 1000) is None


@pytest.mark.parametrize(
    ("takes", "expected"),
    [
        (0.0, SHORTEST),
        (-1.0, SHORTEST),  # a clock that went back
        (1e-12, SHORTEST),
        (1e-7, SHORTEST),
        (0.0005, SHORTEST),
        (0.1, 0.1015625),
        (1.0, 1.0625),
        (1.05, 1.0625),
        (1.0625, 1.125),
        (1.99, 2.0),
        (2.0, 2.125),
        (4095.0, HOUR),
        (1e6, HOUR),
        (1e300, HOUR),
    ],
)
def test_the_threshold_at_the_ends_of_the_scale(takes: float, expected: float) -> None:
    assert threshold_after(0.05, [takes] * 32) == expected


@pytest.mark.parametrize(("slow", "expected"), [(0, 1.0625), (3, 1.0625), (4, 8.5), (68, 8.5)])
def test_at_most_the_share_of_calls_exceeds_the_threshold(slow: int, expected: float) -> None:
    assert threshold_after(0.05, [8.0] * slow + [1.0] * (68 - slow)) == expected


def test_with_a_share_of_one_the_threshold_is_the_shortest_delay() -> None:
    assert threshold_after(1.0, [5.0] * 32) == SHORTEST


def record_many(
    latencies: LatencyHistogram, takes: float, now: float, many: int = MIN_UPDATE_INTERVAL
) -> float | None:
    for _ in range(many):
        latencies.record(takes, now)
    return latencies.threshold


def test_old_latencies_are_forgotten() -> None:
    """The data of one window and of the one before it count."""
    latencies = LatencyHistogram(0.05, 0.0)
    assert record_many(latencies, 1.0, 1.0, 32) == 1.0625
    assert record_many(latencies, 0.1, WINDOW) == 1.0625  # the first window ends here
    assert record_many(latencies, 0.1, WINDOW + 1) == 1.0625
    assert record_many(latencies, 0.1, WINDOW * 2 - 1) == 1.0625
    assert record_many(latencies, 0.1, WINDOW * 2) == 1.0625  # and here the second one
    assert record_many(latencies, 0.1, WINDOW * 2 + 1) == 0.1015625


def test_a_window_lasts_until_it_holds_enough_calls() -> None:
    """Where calls are rare, old data are better than none."""
    latencies = LatencyHistogram(0.02, 0.0)
    assert record_many(latencies, 1.0, 1.0, 64) == 1.0625
    assert record_many(latencies, 0.1, WINDOW) == 1.0625
    for many in range(1, 4):
        assert record_many(latencies, 0.1, WINDOW * (many + 1)) == 1.0625, many  # fewer than 50 since then
    assert record_many(latencies, 0.1, WINDOW * 5) == 1.0625
    assert record_many(latencies, 0.1, WINDOW * 6) == 0.1015625


def test_a_clock_that_goes_back_ends_the_window_too() -> None:
    latencies = LatencyHistogram(0.05, 1000.0)
    record_many(latencies, 1.0, 1001.0, 32)
    record_many(latencies, 0.1, 5.0)
    record_many(latencies, 0.1, 5.0 + WINDOW, 32)
    assert record_many(latencies, 0.1, 6.0 + WINDOW) == 0.1015625


def test_with_many_calls_the_threshold_is_updated_less_often() -> None:
    """An update takes too long to be made at every call."""
    latencies = LatencyHistogram(0.001, 0.0)
    record_many(latencies, 1.0, 1.0, 20_000)
    updates = 0
    for _ in range(10 * MAX_UPDATE_INTERVAL):
        latencies.threshold = None
        latencies.record(1.0, 1.0)
        updates += latencies.threshold is not None
    assert updates == 10


def test_with_many_calls_only_some_are_sampled() -> None:
    latencies = LatencyHistogram(0.5, 0.0)
    assert latencies.skip == 0
    record_many(latencies, 1.0, 1.0, SAMPLING_THRESHOLD // 2)
    assert latencies.skip == 1
    record_many(latencies, 1.0, 1.0, SAMPLING_THRESHOLD)
    assert latencies.skip == SAMPLING_INTERVAL


# ------------------------------------------------------------------------ minimum, bounds, factor


@pytest.mark.parametrize("minimum", [1, 5, 16, 20, 40, 2000])
def test_a_minimum_of_calls(minimum: int) -> None:
    """There is a threshold from exactly that many calls on."""
    latencies = LatencyHistogram(0.02, 0.0, minimum=minimum)
    assert record_many(latencies, 1.0, 1.0, minimum - 1) is None
    assert record_many(latencies, 1.0, 1.0, 1) == 1.0625


@pytest.mark.parametrize(
    ("takes", "factor", "expected"),
    [(0.001, 1, 0.1), (1.0, 1, 1.0625), (1.0, 1.5, 1.59375), (1.0, 3, 2.0), (9.0, 1, 2.0), (0.001, 40, 0.1)],
)
def test_the_threshold_has_bounds_and_a_factor(takes: float, factor: float, expected: float) -> None:
    latencies = LatencyHistogram(0.05, 0.0, shortest=0.1, longest=2.0, factor=factor)
    assert record_many(latencies, takes, 1.0, 32) == expected


# --------------------------------------------------------------------------- calls that were cut off


def test_a_cut_call_counts_as_long_as_it_took() -> None:
    """A service that has become slow is noticed, although none of its calls ends in time."""
    latencies = LatencyHistogram(0.05, 0.0)
    record_many(latencies, 1.0, 1.0, 32)
    for _ in range(16):
        latencies.record_cut(2.0, 1.0)
    assert latencies.threshold == 2.125


def test_a_call_that_was_cut_early_says_nothing() -> None:
    """Whether it was among the slow ones is unknown: counted as fast it would lower the threshold."""
    latencies = LatencyHistogram(0.05, 0.0)
    record_many(latencies, 1.0, 1.0, 32)
    for _ in range(1000):
        latencies.record_cut(0.01, 1.0)
    assert record_many(latencies, 1.0, 1.0, 16) == 1.0625


def test_before_there_is_a_threshold_every_cut_call_counts() -> None:
    latencies = LatencyHistogram(0.05, 0.0)
    for _ in range(2 * MIN_UPDATE_INTERVAL):
        latencies.record_cut(2.0, 1.0)
    assert latencies.threshold == 2.125


@given(limit=st.floats(SHORTEST, HOUR * 0.99), share=st.sampled_from([0.05, 0.5]))
def test_calls_cut_by_one_limit_are_never_ignored(limit: float, share: float) -> None:
    latencies = LatencyHistogram(share, 0.0)
    for _ in range(10 * MIN_CALLS):
        latencies.skip = -1
        latencies.record_cut(limit, 1.0)
        assert latencies.skip > 0


def test_a_smaller_minimum_applies_after_so_many_further_calls() -> None:
    latencies = LatencyHistogram(0.02, 0.0, minimum=500)
    record_many(latencies, 1.0, 1.0, 40)
    latencies.reconfigure(LatencyHistogram(0.02, 0.0, minimum=5))
    assert record_many(latencies, 1.0, 1.0, 4) is None
    assert record_many(latencies, 1.0, 1.0, 1) == 1.0625


def test_with_a_larger_minimum_the_threshold_stays_until_there_are_enough_calls() -> None:
    latencies = LatencyHistogram(0.05, 0.0)
    record_many(latencies, 1.0, 1.0, MIN_CALLS)
    latencies.reconfigure(LatencyHistogram(0.05, 0.0, minimum=2 * MIN_CALLS + MIN_UPDATE_INTERVAL))
    assert record_many(latencies, 8.0, 1.0, 2 * MIN_UPDATE_INTERVAL) == 1.0625
    assert record_many(latencies, 8.0, 1.0, MIN_CALLS) == 8.5
