"""A limit that is set anew: learning again what calls take when few are under way, and another clock."""

from __future__ import annotations

import pytest

from redouble._layers.limits.limit_algorithms import Gradient
from redouble._layers.limits.limit_window import MIN_SAMPLES, WindowedLimit
from tests.layers.limits.concurrency.test_limit_window import Asked, calls, windowed

# ------------------------------------------------------------------------ learning anew


def test_half_are_held_off_for_one_window_to_learn_anew() -> None:
    way = Asked(20, 20, 99, 30)
    limit = windowed(way, relearn=2.0)
    calls(limit, 1.0, MIN_SAMPLES)
    assert (limit.limit, way.forgotten) == (20, 0)
    calls(limit, 2.0, MIN_SAMPLES)
    assert (limit.limit, way.forgotten) == (10, 1)
    calls(limit, 3.0, MIN_SAMPLES)
    assert (limit.limit, way.forgotten) == (20, 1)  # whatever that window said
    assert way.asked[2][0] == 10
    calls(limit, 3.9, MIN_SAMPLES)
    calls(limit, 4.0, 1)
    assert (limit.limit, way.forgotten) == (15, 2)


@pytest.mark.parametrize(("relearn", "at"), [(60.0, 15), (3.0, 13)])
def test_the_first_time_is_soon(relearn: float, at: int) -> None:
    """After five windows: it has begun anywhere."""
    way = Asked()
    limit = WindowedLimit(way, 20, 1, 1000, 1.0, relearn, 10.0, lambda: 0.5)
    for second in range(11, at):
        calls(limit, float(second), MIN_SAMPLES)
    assert way.forgotten == 0
    calls(limit, float(at), MIN_SAMPLES)
    assert (way.forgotten, limit.limit) == (1, 10)
    calls(limit, at + 1.0, MIN_SAMPLES)
    assert (way.forgotten, limit.limit) == (1, 20)


def test_nobody_is_held_off_if_there_are_few_anyway() -> None:
    way = Asked()
    limit = windowed(way, relearn=2.0)
    for second in (1.0, 2.0, 3.0):
        calls(limit, second, MIN_SAMPLES, in_flight=9)
        assert limit.limit == 20
    assert way.forgotten == 1


@pytest.mark.parametrize(("least", "limit"), [(15, 15), (20, 20), (1, 10)])
def test_no_more_are_held_off_than_the_least_allows(least: int, limit: int) -> None:
    way = Asked()
    made = windowed(way, least=least, relearn=1.5)
    calls(made, 1.5, MIN_SAMPLES)
    assert made.limit == limit
    calls(made, 2.5, MIN_SAMPLES)
    assert made.limit == 20
    assert [asked[0] for asked in way.asked] == [20, limit]


def test_a_window_with_drops_is_none_to_learn_from() -> None:
    way = Asked()
    limit = windowed(way, relearn=1.0)
    limit.record(None, 20, 1.0, dropped=True)
    assert (limit.limit, way.forgotten) == (20, 0)
    calls(limit, 2.0, MIN_SAMPLES)
    assert (limit.limit, way.forgotten) == (10, 1)


def test_what_is_dropped_while_learning_counts() -> None:
    way = Asked(20, 9)
    limit = windowed(way, relearn=1.0)
    calls(limit, 1.0, MIN_SAMPLES)
    limit.record(None, 10, 2.0, dropped=True)
    assert limit.limit == 9
    calls(limit, 3.0, MIN_SAMPLES)
    assert way.asked[2][0] == 9


def test_calls_from_before_say_nothing_about_what_they_take_when_few_are_under_way() -> None:
    """With many under way, all that come back at first had begun before the others were held off."""
    way = Gradient()
    limit = windowed(way, 200, relearn=3.0)
    calls(limit, 3.0, 200, seconds=0.4, in_flight=200)
    assert limit.limit == 132
    calls(limit, 3.1, 200, seconds=0.4, in_flight=200)
    calls(limit, 3.5, 400, seconds=0.1, in_flight=100)
    assert calls(limit, 4.0, 1, seconds=0.1, in_flight=100) == [791]
    assert limit.limit == 265
    assert way.shortest == 0.1


@pytest.mark.parametrize(("random", "at"), [(0.0, 85), (0.5, 100), (0.999_999, 115)])
def test_when_to_learn_anew_is_left_to_chance_a_little(random: float, at: int) -> None:
    way = Asked()
    limit = windowed(way, relearn=100.0, random=random)
    for second in range(1, at):
        calls(limit, float(second), MIN_SAMPLES)
    assert way.forgotten == 0
    calls(limit, float(at), MIN_SAMPLES)
    assert way.forgotten == 1


# ------------------------------------------------------------------------ another clock


def test_another_clock_begins_another_window() -> None:
    way = Asked(30)
    limit = WindowedLimit(way, 20, 1, 1000, 1.0, 60.0, 5000.0, lambda: 0.5)
    calls(limit, 5000.9, MIN_SAMPLES)
    calls(limit, 7.0, MIN_SAMPLES)
    assert (limit.limit, way.asked) == (20, [])
    calls(limit, 8.0, 1, seconds=0.7)
    assert (limit.limit, len(way.asked)) == (30, 1)
    assert way.asked[0][1] == 0.1
    for second in range(9, 67):
        calls(limit, float(second), MIN_SAMPLES)
    assert way.forgotten == 0
    calls(limit, 67.0, MIN_SAMPLES)
    assert way.forgotten == 1


def test_a_clock_that_goes_back_a_little_is_the_same() -> None:
    limit = WindowedLimit(Asked(30), 20, 1, 1000, 1.0, 60.0, 5000.0, lambda: 0.5)
    calls(limit, 4999.5, MIN_SAMPLES)
    assert calls(limit, 5001.0, 1) == [MIN_SAMPLES + 1]
