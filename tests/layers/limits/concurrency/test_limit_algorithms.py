"""Gradient, Vegas and AIMD: the next limit that each derives from a limit and a sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from math import inf
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Sample, Vegas

DROPPED = Sample(0.0, 0, dropped=True)
ALGORITHMS = [Gradient, Vegas, partial(Aimd, 5.0)]
Make: TypeAlias = Callable[[], LimitAlgorithm]


def limits(algorithm: LimitAlgorithm, limit: float, *samples: Sample) -> list[float]:
    """Return the limit after each sample."""
    return list(accumulate(samples, algorithm.next, initial=limit))[1:]


# ----------------------------------------------------------------------------- gradient


@pytest.mark.parametrize(
    ("limit", "shortest", "rtt", "new"),
    [
        (100, 0.010, 0.100, 57),  # ten times slower: half of the limit, plus room for a queue
        (100, 0.010, 0.010, 136),  # 125 + 11.18
        (100, 0.010, 0.0125, 110),  # slower by the buffer: only room for a queue is added
        (100, 0.010, 0.025, 57),  # from here on it is halved, and shrinks no faster
        (100, 0.010, 0.020, 70),  # 62.5 + 7.9
        (1, 1.0, 1.0, 2),
        (1, 1.0, 9.0, 1),
        (3, 0.010, 0.100, 2),
    ],
)
def test_gradient_follows_the_ratio_of_the_shortest_latency_to_the_latest(
    limit: int, shortest: float, rtt: float, new: int
) -> None:
    algorithm = Gradient()
    assert algorithm.next(limit, Sample(shortest, 0)) == limit
    assert algorithm.shortest == shortest
    assert algorithm.next(limit, Sample(rtt, limit)) == new
    assert algorithm.shortest == shortest


def test_a_shorter_latency_becomes_the_shortest() -> None:
    algorithm = Gradient()
    assert limits(algorithm, 100, *(Sample(rtt, 100) for rtt in (0.2, 0.1, 0.4, 0.3))) == [136, 183, 101, 57]
    assert algorithm.shortest == 0.1


def test_gradient_treats_a_latency_of_zero_as_no_queue() -> None:
    """A coarse clock measures 0 for short calls."""
    assert limits(Gradient(), 100, Sample(0.0, 100), Sample(0.0, 100)) == [136, 183]


def test_forget_resets_the_shortest_latency() -> None:
    algorithm = Gradient()
    assert limits(algorithm, 100, Sample(1, 0), Sample(2, 100)) == [100, 70]
    algorithm.forget()
    assert algorithm.shortest == inf
    assert algorithm.next(100, Sample(2, 100)) == 136


# -------------------------------------------------------------------------------- vegas


def test_vegas_keeps_the_limit_at_the_first_and_at_every_shorter_latency() -> None:
    algorithm = Vegas()
    assert limits(algorithm, 10, Sample(0.2, 10), Sample(0.1, 10)) == [10, 10]
    assert algorithm.shortest == 0.1
    algorithm.forget()
    assert algorithm.shortest == inf
    assert algorithm.next(10, Sample(5.0, 10)) == 10


@pytest.mark.parametrize(
    ("limit", "rtt", "new"),
    [
        (10, 1.0, 16),  # no queued call: plus beta
        (10, 1.1, 16),  # one queued call
        (10, 1.2, 11),  # two: plus one step
        (10, 1.25, 11),
        (10, 1.3, 10),  # three, which is alpha: unchanged
        (10, 1.5, 10),
        (10, 2.49, 10),  # six, which is beta: unchanged
        (10, 2.6, 9),  # seven: minus one step
        (10, 99.0, 9),
        (100, 1.0, 112),  # a larger limit has larger steps: 2, with alpha=6 and beta=12
        (100, 1.02, 112),
        (100, 1.05, 102),
        (100, 1.1, 100),
        (100, 1.13, 100),
        (100, 1.2, 98),
        (9, 1.0, 15),
        (1, 1.0, 7),
    ],
)
def test_vegas_keeps_the_estimated_queue_between_two_bounds(limit: int, rtt: float, new: int) -> None:
    assert limits(Vegas(), limit, Sample(1.0, limit), Sample(rtt, limit)) == [limit, new]


def test_vegas_treats_a_latency_of_zero_as_no_queue() -> None:
    assert limits(Vegas(), 10, Sample(0.0, 10), Sample(0.0, 10)) == [10, 16]


# --------------------------------------------------------------------------------- aimd


@pytest.mark.parametrize(
    ("limit", "sample", "new"),
    [
        (30, Sample(0.1, 30), 31),
        (30, Sample(5.0, 30), 31),
        (30, Sample(5.1, 30), 27),
        (30, Sample(5.1, 0), 27),
        (30, DROPPED, 27),
        (25, DROPPED, 22),
        (1, DROPPED, 0),
    ],
)
def test_aimd_adds_one_or_subtracts_a_tenth(limit: int, sample: Sample, new: int) -> None:
    assert Aimd(5.0).next(limit, sample) == new


def test_aimd_counts_slow_calls_as_failures() -> None:
    assert limits(Aimd(slow=1), 30, Sample(1.1, 30), Sample(1.0, 30)) == [27, 28]


def test_aimd_has_nothing_to_forget() -> None:
    algorithm = Aimd(5.0)
    algorithm.next(10, Sample(1, 10))
    algorithm.forget()
    assert algorithm.next(10, Sample(1, 10)) == 11


# ---------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("make", ALGORITHMS)
@pytest.mark.parametrize(("in_flight", "grows"), [(0, False), (49, False), (50, True), (100, True)])
def test_a_limit_of_which_less_than_half_is_used_does_not_grow(
    make: Make, in_flight: int, grows: bool
) -> None:
    algorithm = make()
    algorithm.next(100, Sample(1.0, 0))
    assert (algorithm.next(100, Sample(1.0, in_flight)) > 100) is grows


@pytest.mark.parametrize("make", [Gradient, Vegas])
def test_a_limit_of_which_less_than_half_is_used_does_not_shrink_by_latency(
    make: Make,
) -> None:
    """A longer latency while few calls are in flight has another cause."""
    assert limits(make(), 100, Sample(1.0, 0), Sample(9.0, 49)) == [100, 100]
    assert limits(make(), 100, Sample(1.0, 0), Sample(9.0, 50))[1] < 100


@pytest.mark.parametrize(
    ("make", "new", "shortest"), [(Gradient, 90, 1.0), (Vegas, 98, 1.0), (partial(Aimd, 5.0), 90, inf)]
)
def test_a_dropped_call_lowers_the_limit_however_few_are_in_flight(
    make: Make, new: float, shortest: float
) -> None:
    """Its latency is ignored."""
    algorithm = make()
    algorithm.next(100, Sample(1.0, 0))
    assert algorithm.next(100, Sample(0.001, 0, dropped=True)) == new
    assert algorithm.shortest == shortest


@settings(max_examples=50)
@given(
    st.sampled_from(ALGORITHMS),
    st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 10_000), st.booleans()), max_size=20),
)
def test_any_sequence_of_samples_changes_the_limit_by_bounded_steps(
    make: Make, seen: list[tuple[float, int, bool]]
) -> None:
    """A dropped call always lowers it, and with few calls in flight it never grows."""
    algorithm, limit = make(), 100.0
    for rtt, in_flight, dropped in seen:
        new = algorithm.next(limit, Sample(rtt, in_flight, dropped=dropped))
        assert limit * 0.5 - 1 <= new <= limit * 2 + limit**0.5 * 1.5 + 12
        if dropped:
            assert new < limit
        elif in_flight * 2 < limit:
            assert new <= limit
        limit = max(1.0, min(1000.0, new))
