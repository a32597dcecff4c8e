"""How many at once are right: Gradient, Vegas and AIMD, each asked with a limit and what was seen."""

from __future__ import annotations

from itertools import accumulate
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Sample, Vegas

DROPPED = Sample(0.0, 0, dropped=True)
WAYS = [Gradient, Vegas, Aimd]


def limits(way: LimitAlgorithm, limit: float, *samples: Sample) -> list[float]:
    """Tell the limit after each of these."""
    return list(accumulate(samples, way.next, initial=limit))[1:]


# ----------------------------------------------------------------------------- gradient


@pytest.mark.parametrize(
    ("limit", "shortest", "rtt", "new"),
    [
        (100, 0.010, 0.100, 57),  # a tenth as fast: half of it, and room for a queue
        (100, 0.010, 0.010, 136),  # 125 + 11.18
        (100, 0.010, 0.0125, 110),  # as much slower as the buffer allows: only the room for a queue
        (100, 0.010, 0.025, 57),  # from here on it shrinks by half, and no faster
        (100, 0.010, 0.020, 70),  # 62.5 + 7.9
        (1, 1.0, 1.0, 2),
        (1, 1.0, 9.0, 1),
        (3, 0.010, 0.100, 2),
    ],
)
def test_it_follows_the_ratio_of_the_shortest_time_to_the_latest(
    limit: int, shortest: float, rtt: float, new: int
) -> None:
    way = Gradient()
    assert way.next(limit, Sample(shortest, 0)) == limit
    assert way.shortest == shortest
    assert way.next(limit, Sample(rtt, limit)) == new
    assert way.shortest == shortest


def test_a_time_that_is_shorter_is_the_shortest_from_now_on() -> None:
    way = Gradient(buffer=0)
    assert limits(way, 100, *(Sample(rtt, 100) for rtt in (0.2, 0.1, 0.4, 0.3))) == [110, 120, 67, 39]
    assert way.shortest == 0.1


def test_a_larger_buffer_tolerates_a_longer_queue_and_no_growth_is_more_than_double() -> None:
    assert limits(Gradient(buffer=1), 100, Sample(1, 0), Sample(2, 100)) == [100, 110]
    assert limits(Gradient(buffer=99), 100, Sample(1, 100)) == [214]


def test_calls_that_take_no_time_are_no_sign_of_a_queue() -> None:
    """A clock that is too coarse for them says 0."""
    assert limits(Gradient(), 100, Sample(0.0, 100), Sample(0.0, 100)) == [136, 183]


def test_what_it_knows_can_be_forgotten() -> None:
    way = Gradient()
    assert limits(way, 100, Sample(1, 0), Sample(2, 100)) == [100, 70]
    way.forget()
    assert way.shortest == inf
    assert way.next(100, Sample(2, 100)) == 136


# -------------------------------------------------------------------------------- vegas


def test_the_first_time_seen_and_every_shorter_one_change_nothing() -> None:
    way = Vegas()
    assert limits(way, 10, Sample(0.2, 10), Sample(0.1, 10)) == [10, 10]
    assert way.shortest == 0.1
    way.forget()
    assert way.shortest == inf
    assert way.next(10, Sample(5.0, 10)) == 10


@pytest.mark.parametrize(
    ("limit", "rtt", "new"),
    [
        (10, 1.0, 16),  # nobody waits: by beta
        (10, 1.1, 16),  # one
        (10, 1.2, 11),  # two: by one
        (10, 1.25, 11),
        (10, 1.3, 10),  # three: enough
        (10, 1.5, 10),
        (10, 2.49, 10),  # six: not yet too many
        (10, 2.6, 9),  # seven
        (10, 99.0, 9),
        (100, 1.0, 112),  # steps are larger for larger limits: 2, from 6 to 12
        (100, 1.02, 112),
        (100, 1.05, 102),
        (100, 1.1, 100),
        (100, 1.13, 100),
        (100, 1.2, 98),
        (9, 1.0, 15),
        (1, 1.0, 7),
    ],
)
def test_how_many_seem_to_wait_is_kept_between_two_bounds(limit: int, rtt: float, new: int) -> None:
    assert limits(Vegas(), limit, Sample(1.0, limit), Sample(rtt, limit)) == [limit, new]


def test_its_bounds_can_be_given() -> None:
    rows = [(1.0, 15), (1.2, 11), (1.3, 10), (1.6, 10), (2.1, 9)]
    for rtt, new in rows:
        assert limits(Vegas(alpha=3, beta=5), 10, Sample(1.0, 10), Sample(rtt, 10))[1] == new


def test_how_it_decreases_and_how_smoothly() -> None:
    samples = [Sample(0.01, 100), Sample(0.02, 100), Sample(0.02, 100)]
    assert limits(Vegas(decrease=lambda limit: limit / 2), 100, *samples) == [100, 50, 25]
    smooth = Vegas(smoothing=0.5, decrease=lambda limit: limit / 2)
    assert limits(smooth, 100, *samples) == [100, 75, 56.25]


def test_no_time_at_all_is_no_queue() -> None:
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
def test_one_more_or_a_tenth_less(limit: int, sample: Sample, new: int) -> None:
    assert Aimd().next(limit, sample) == new


def test_what_is_slow_and_how_much_less_can_be_given() -> None:
    assert limits(Aimd(slow=1, backoff=0.5), 30, Sample(1.1, 30), Sample(1.0, 30)) == [15, 16]


def test_it_has_nothing_to_forget() -> None:
    way = Aimd()
    way.next(10, Sample(1, 10))
    way.forget()
    assert way.next(10, Sample(1, 10)) == 11


# ---------------------------------------------------------------------------- all of them


@pytest.mark.parametrize("make", WAYS)
@pytest.mark.parametrize(("under_way", "grows"), [(0, False), (49, False), (50, True), (100, True)])
def test_a_limit_of_which_less_than_half_is_used_does_not_grow(
    make: type[Gradient | Vegas | Aimd], under_way: int, grows: bool
) -> None:
    way = make()
    way.next(100, Sample(1.0, 0))
    assert (way.next(100, Sample(1.0, under_way)) > 100) is grows


@pytest.mark.parametrize("make", [Gradient, Vegas])
def test_nor_does_it_shrink_by_times(make: type[Gradient | Vegas]) -> None:
    """Calls that take longer while few are under way have other reasons."""
    assert limits(make(), 100, Sample(1.0, 0), Sample(9.0, 49)) == [100, 100]
    assert limits(make(), 100, Sample(1.0, 0), Sample(9.0, 50))[1] < 100


@pytest.mark.parametrize(("make", "new"), [(Gradient, 90), (Vegas, 98), (Aimd, 90)])
def test_what_was_dropped_counts_however_few_were_under_way(
    make: type[Gradient | Vegas | Aimd], new: float
) -> None:
    """And its time says nothing."""
    way = make()
    way.next(100, Sample(1.0, 0))
    assert way.next(100, Sample(0.001, 0, dropped=True)) == new
    assert getattr(way, "shortest", 1.0) == 1.0


@settings(max_examples=50)
@given(
    st.sampled_from(WAYS),
    st.lists(st.tuples(st.floats(0, 1e9), st.integers(0, 10_000), st.booleans()), max_size=20),
)
def test_whatever_is_seen_a_limit_is_a_number_to_go_on_with(
    make: type[Gradient | Vegas | Aimd], seen: list[tuple[float, int, bool]]
) -> None:
    """Within bounds it moves by steps that are not too large, and never for nothing."""
    way, limit = make(), 100.0
    for rtt, under_way, dropped in seen:
        new = way.next(limit, Sample(rtt, under_way, dropped=dropped))
        assert limit * 0.5 - 1 <= new <= limit * 2 + limit**0.5 * 1.5 + 12
        if dropped:
            assert new < limit
        elif under_way * 2 < limit:
            assert new <= limit
        limit = max(1.0, min(1000.0, new))
