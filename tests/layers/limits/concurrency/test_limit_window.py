"""A limit that is set anew once in a window: when a window ends, what is made of it, and learning anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Sample, Vegas
from redouble._layers.limits.limit_window import MAX_SAMPLES, MIN_SAMPLES, WindowedLimit

LONG = 1e9


class Asked:
    """A way that writes down what it is asked, and answers what it was told to."""

    def __init__(self, *answers: float) -> None:
        self.answers = [*answers]
        self.asked: list[tuple[float, float, int, bool]] = []
        self.forgotten = 0

    def next(self, limit: float, sample: Sample, /) -> float:
        self.asked.append((limit, sample.rtt, sample.in_flight, sample.dropped))
        return self.answers.pop(0) if self.answers else limit

    def forget(self) -> None:
        self.forgotten += 1


def windowed(
    way: LimitAlgorithm, initial: int = 20, least: int = 1, most: int = 1000, **said: Any
) -> WindowedLimit:
    """Make one, at time 0, with windows of a second, as if it had learned once already."""
    chance = said.get("random", 0.5)
    made = WindowedLimit(way, initial, least, most, 1.0, said.get("relearn", LONG), 0.0, lambda: chance)
    made._schedule_relearning(0.0)
    return made


def calls(
    limit: WindowedLimit, now: float, count: int, seconds: float = 0.1, in_flight: int = 20
) -> list[int]:
    """Let calls end, all at once."""
    return [limit.record(seconds, in_flight, now) for _ in range(count)]


# ------------------------------------------------------------------------------ windows


def test_it_begins_where_it_is_told_to() -> None:
    assert windowed(Asked()).limit == 20


def test_one_change_for_each_window() -> None:
    way = Asked(30, 40)
    limit = windowed(way)
    assert calls(limit, 0.5, 50) == [0] * 50
    assert way.asked == []
    assert calls(limit, 1.0, 20) == [51] + [0] * 19
    assert (limit.limit, len(way.asked)) == (30, 1)
    assert calls(limit, 1.999, 20) == [0] * 20
    assert calls(limit, 2.0, 2) == [40, 0]
    assert (limit.limit, len(way.asked)) == (40, 2)


def test_a_window_lasts_until_there_is_enough_to_go_by() -> None:
    way = Asked(30)
    limit = windowed(way)
    assert calls(limit, 5.0, MIN_SAMPLES - 1) == [0] * (MIN_SAMPLES - 1)
    assert limit.limit == 20
    assert calls(limit, 60.0, 1) == [MIN_SAMPLES]
    assert limit.limit == 30
    assert calls(limit, 60.9, MIN_SAMPLES) == [0] * MIN_SAMPLES  # the next one is counted from there
    assert calls(limit, 61.0, 1) == [MIN_SAMPLES + 1]


def test_it_goes_by_the_time_in_the_middle_and_by_the_most_that_were_under_way() -> None:
    way = Asked()
    limit = windowed(way)
    times = [9.0, 0.1, 0.2, 0.4, 9.0, 0.3, 0.2, 0.1, 0.1, 0.2, 9.0]
    for place, seconds in enumerate(times):
        limit.record(seconds, 3 + place % 7, 1.0 if place == len(times) - 1 else 0.1)
    assert way.asked == [(20.0, 0.2, 9, False)]
    calls(limit, 2.0, MIN_SAMPLES, seconds=0.5, in_flight=2)  # and the next by its own
    assert way.asked[1:] == [(20.0, 0.5, 2, False)]


def test_no_more_times_than_so_many_are_looked_at() -> None:
    way = Asked()
    limit = windowed(way)
    calls(limit, 0.1, MAX_SAMPLES, seconds=1.0)
    assert calls(limit, 0.5, 10 * MAX_SAMPLES, seconds=2.0, in_flight=21)[-1] == 0
    assert calls(limit, 1.0, 1, seconds=2.0) == [11 * MAX_SAMPLES + 1]
    assert way.asked == [(20.0, 1.0, 21, False)]


# ------------------------------------------------------------------------------ dropped


def test_one_that_was_dropped_is_enough_when_the_window_is_over() -> None:
    way = Asked(18)
    limit = windowed(way)
    assert limit.record(None, 3, 0.5, dropped=True) == 0
    assert limit.limit == 20
    assert limit.record(0.25, 2, 1.0) == 2
    assert way.asked == [(20.0, 0.25, 3, True)]
    assert limit.limit == 18
    assert limit.record(0.25, 2, 2.0) == 0  # the next window has had none
    assert len(way.asked) == 1


def test_a_window_of_nothing_but_drops_has_no_time() -> None:
    way = Asked()
    limit = windowed(way)
    assert limit.record(None, 3, 1.5, dropped=True) == 1
    assert way.asked == [(20.0, 0.0, 3, True)]


@pytest.mark.parametrize("way", [Gradient(), Vegas(), Aimd()])
def test_drops_alone_lead_down_to_the_least(way: LimitAlgorithm) -> None:
    limit = windowed(way, least=3)
    for second in range(1, 50):
        limit.record(None, 0, float(second), dropped=True)
    assert limit.limit == 3


@pytest.mark.parametrize("way", [Gradient(), Vegas(), Aimd()])
def test_a_first_window_with_good_calls_and_a_drop(way: LimitAlgorithm) -> None:
    limit = windowed(way)
    calls(limit, 0.5, 20)
    assert limit.record(None, 19, 1.0, dropped=True) == 21
    assert 18 <= limit.limit <= 19


# ------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("answer", "limit"), [(0.0, 5), (-7.0, 5), (4.9, 5), (5.9, 5), (49.9, 49), (51.0, 50)]
)
def test_it_stays_between_its_bounds(answer: float, limit: int) -> None:
    way = Asked(answer)
    made = windowed(way, least=5, most=50)
    calls(made, 1.0, MIN_SAMPLES)
    assert made.limit == limit
    calls(made, 2.0, MIN_SAMPLES)
    assert way.asked[1][0] == max(5.0, min(50.0, answer))  # and goes on from there


def test_parts_of_a_place_add_up() -> None:
    limit = windowed(Asked(20.5, 20.9, 21.0))
    seen: list[int] = []
    for second in (1.0, 2.0, 3.0):
        calls(limit, second, MIN_SAMPLES)
        seen.append(limit.limit)
    assert seen == [20, 20, 21]


# ------------------------------------------------------------------------- whatever comes


@settings(max_examples=50)
@given(
    st.sampled_from([Gradient, Vegas, Aimd]),
    st.integers(1, 10),
    st.lists(
        st.tuples(st.floats(0, 20), st.none() | st.floats(0, 100), st.integers(0, 60), st.booleans()),
        max_size=60,
    ),
)
def test_it_never_leaves_its_bounds_nor_changes_twice_in_a_window(
    make: type[Gradient | Vegas | Aimd],
    least: int,
    seen: list[tuple[float, float | None, int, bool]],
) -> None:
    limit = WindowedLimit(make(), 20, least, 50, 1.0, 5.0, 0.0, lambda: 0.5)
    now = begun = 0.0
    for passed, seconds, under_way, dropped in seen:
        now, before = now + passed, limit.limit
        for _ in range(4):
            ended = limit.record(None if dropped else seconds, under_way, now, dropped=dropped)
            assert least <= limit.limit <= 50
            assert ended or limit.limit == before
            if ended:
                assert now >= begun + 1.0
                begun, before = now, limit.limit
