"""A limit that changes once per window: when a window ends, and which sample the algorithm is given."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Vegas
from redouble._layers.limits.limit_window import MAX_SAMPLES, MIN_SAMPLES
from tests.support.layers.limits.limit_windows import RecordingAlgorithm, calls, new_limit, windowed

# ------------------------------------------------------------------------------ windows


def test_it_begins_with_the_initial_limit() -> None:
    assert windowed(RecordingAlgorithm()).limit == 20


def test_the_limit_changes_once_per_window() -> None:
    algorithm = RecordingAlgorithm(30, 40)
    limit = windowed(algorithm)
    assert calls(limit, 0.5, 50) == [0] * 50
    assert algorithm.samples == []
    assert calls(limit, 1.0, 20) == [51] + [0] * 19
    assert (limit.limit, len(algorithm.samples)) == (30, 1)
    assert calls(limit, 1.999, 20) == [0] * 20
    assert calls(limit, 2.0, 2) == [40, 0]
    assert (limit.limit, len(algorithm.samples)) == (40, 2)


def test_a_window_lasts_until_it_has_enough_samples() -> None:
    algorithm = RecordingAlgorithm(30)
    limit = windowed(algorithm)
    assert calls(limit, 5.0, MIN_SAMPLES - 1) == [0] * (MIN_SAMPLES - 1)
    assert limit.limit == 20
    assert calls(limit, 60.0, 1) == [MIN_SAMPLES]
    assert limit.limit == 30
    assert calls(limit, 60.9, MIN_SAMPLES) == [0] * MIN_SAMPLES  # the next window begins there
    assert calls(limit, 61.0, 1) == [MIN_SAMPLES + 1]


def test_a_sample_has_the_median_latency_and_the_most_calls_in_flight() -> None:
    algorithm = RecordingAlgorithm()
    limit = windowed(algorithm)
    times = [9.0, 0.1, 0.2, 0.4, 9.0, 0.3, 0.2, 0.1, 0.1, 0.2, 9.0]
    for index, seconds in enumerate(times):
        limit.record(seconds, 3 + index % 7, 1.0 if index == len(times) - 1 else 0.1)
    assert algorithm.samples == [(20.0, 0.2, 9, False)]
    calls(limit, 2.0, MIN_SAMPLES, seconds=0.5, in_flight=2)  # the next window has its own sample
    assert algorithm.samples[1:] == [(20.0, 0.5, 2, False)]


def test_the_latency_of_at_most_max_samples_calls_is_recorded() -> None:
    algorithm = RecordingAlgorithm()
    limit = windowed(algorithm)
    calls(limit, 0.1, MAX_SAMPLES, seconds=1.0)
    assert calls(limit, 0.5, 10 * MAX_SAMPLES, seconds=2.0, in_flight=21)[-1] == 0
    assert calls(limit, 1.0, 1, seconds=2.0) == [11 * MAX_SAMPLES + 1]
    assert algorithm.samples == [(20.0, 1.0, 21, False)]


# ------------------------------------------------------------------------------ dropped


def test_one_dropped_call_is_enough_at_the_end_of_a_window() -> None:
    algorithm = RecordingAlgorithm(18)
    limit = windowed(algorithm)
    assert limit.record(None, 3, 0.5, dropped=True) == 0
    assert limit.limit == 20
    assert limit.record(0.25, 2, 1.0) == 2
    assert algorithm.samples == [(20.0, 0.25, 3, True)]
    assert limit.limit == 18
    assert limit.record(0.25, 2, 2.0) == 0  # no dropped call in the next window
    assert len(algorithm.samples) == 1


def test_a_window_of_dropped_calls_has_a_latency_of_zero() -> None:
    algorithm = RecordingAlgorithm()
    limit = windowed(algorithm)
    assert limit.record(None, 3, 1.5, dropped=True) == 1
    assert algorithm.samples == [(20.0, 0.0, 3, True)]


@pytest.mark.parametrize("algorithm", [Gradient(), Vegas(), Aimd(5.0)])
def test_dropped_calls_alone_lower_the_limit_to_the_least(algorithm: LimitAlgorithm) -> None:
    limit = windowed(algorithm, least=3)
    for second in range(1, 50):
        limit.record(None, 0, float(second), dropped=True)
    assert limit.limit == 3


@pytest.mark.parametrize("algorithm", [Gradient(), Vegas(), Aimd(5.0)])
def test_a_dropped_call_in_the_first_window_lowers_the_limit(algorithm: LimitAlgorithm) -> None:
    limit = windowed(algorithm)
    calls(limit, 0.5, 20)
    assert limit.record(None, 19, 1.0, dropped=True) == 21
    assert 18 <= limit.limit <= 19


# ------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("answer", "limit"), [(0.0, 5), (-7.0, 5), (4.9, 5), (5.9, 5), (49.9, 49), (51.0, 50)]
)
def test_it_stays_between_its_bounds(answer: float, limit: int) -> None:
    algorithm = RecordingAlgorithm(answer)
    made = windowed(algorithm, least=5, most=50)
    calls(made, 1.0, MIN_SAMPLES)
    assert made.limit == limit
    calls(made, 2.0, MIN_SAMPLES)
    assert algorithm.samples[1][0] == max(5.0, min(50.0, answer))  # starts from the bounded value


def test_a_fractional_limit_is_rounded_down() -> None:
    limit = windowed(RecordingAlgorithm(20.5, 20.9, 21.0))
    seen: list[int] = []
    for second in (1.0, 2.0, 3.0):
        calls(limit, second, MIN_SAMPLES)
        seen.append(limit.limit)
    assert seen == [20, 20, 21]


# ----------------------------------------------------------------------------- properties


@settings(max_examples=50)
@given(
    st.sampled_from([Gradient, Vegas, lambda: Aimd(5.0)]),
    st.integers(1, 10),
    st.lists(
        st.tuples(st.floats(0, 20), st.none() | st.floats(0, 100), st.integers(0, 60), st.booleans()),
        max_size=60,
    ),
)
def test_it_never_leaves_its_bounds_nor_changes_twice_in_a_window(
    make: Callable[[], LimitAlgorithm],
    least: int,
    seen: list[tuple[float, float | None, int, bool]],
) -> None:
    limit = new_limit(make(), least=least, most=50, relearn=5)
    now = begun = 0.0
    for passed, seconds, in_flight, dropped in seen:
        now, before = now + passed, limit.limit
        for _ in range(4):
            ended = limit.record(None if dropped else seconds, in_flight, now, dropped=dropped)
            assert least <= limit.limit <= 50
            assert ended or limit.limit == before
            if ended:
                assert now >= begun + 1.0
                begun, before = now, limit.limit
