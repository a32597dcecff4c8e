"""`SlidingCounter`, compared with a plain list of all counts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._internal.sliding_counter import SLICES, SlidingCounter


def test_a_new_counter_is_empty() -> None:
    counter = SlidingCounter()
    assert (counter.total, len(counter.counts)) == (0, SLICES)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_the_window_has_the_given_number_of_slices(size: int) -> None:
    counter = SlidingCounter(size)
    counter.add(3, 0)
    counter.advance(size - 1)
    assert counter.total == 3
    counter.advance(size)
    assert counter.total == 0


def test_an_earlier_slice_of_the_window_can_be_added_to() -> None:
    counter = SlidingCounter(10)
    counter.advance(50)
    counter.add(1, 41)
    counter.add(1, 40)  # too old
    counter.add(1, 51)  # in the future
    assert counter.total == 1
    counter.advance(51)
    assert counter.total == 0


def test_a_count_is_never_negative() -> None:
    counter = SlidingCounter(10)
    counter.add(2, 0)
    counter.advance(1)
    counter.add(-1, 1)  # nothing to subtract in that slice
    assert counter.total == 2
    counter.add(-5, 0)
    assert counter.total == 0


@pytest.mark.parametrize("back", [1, 9])
def test_a_small_step_back_is_ignored(back: int) -> None:
    counter = SlidingCounter(10)
    counter.advance(50)
    counter.add(1, 50)
    counter.advance(50 - back)
    assert (counter.total, counter.latest) == (1, 50)


@pytest.mark.parametrize("to", [40, 0, -50])
def test_a_large_step_back_resets_the_counter(to: int) -> None:
    counter = SlidingCounter(10)
    counter.advance(50)
    counter.add(1, 50)
    counter.advance(to)
    assert (counter.total, counter.latest, sum(counter.counts)) == (0, to, 0)
    counter.add(1, to)
    assert counter.total == 1


STEPS = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 12), st.integers(-3, 5)), max_size=60)


@settings(deadline=None)
@given(size=st.integers(1, 12), start=st.integers(-1000, 1000), steps=STEPS)
def test_the_total_agrees_with_a_list_of_all_counts(
    size: int, start: int, steps: list[tuple[int, int, int]]
) -> None:
    """For steps forward of any size, and for additions to and subtractions from earlier slices."""
    counter, now = SlidingCounter(size), start
    counter.advance(start - 2 * size)
    counter.advance(start)
    counts: dict[int, int] = {}
    for passed, ago, number in steps:
        now += passed
        counter.advance(now)
        index = now - ago
        counter.add(number, index)
        if ago < size:
            counts[index] = max(0, counts.get(index, 0) + number)
        assert counter.total == sum(counter.counts)
        for at in (now, now + 1, now + size - 1, now + size, now + 99):
            assert counter.count_at(at) == sum(
                count for index, count in counts.items() if at - size < index <= now
            )
        assert counter.count_at(now) == counter.count_at(now - 1) == counter.total


@settings(deadline=None)
@given(size=st.integers(1, 12), moves=st.lists(st.integers(-40, 40), min_size=2))
def test_the_latest_slice_is_at_or_shortly_after_the_given_one(size: int, moves: list[int]) -> None:
    counter = SlidingCounter(size)
    counter.advance(moves[0])
    for before, to in pairwise([counter.latest, *moves]):
        assert counter.latest - size < before <= counter.latest
        counter.advance(to)
        counter.add(1, to)
        assert counter.total == sum(counter.counts) > 0
        assert counter.position == counter.latest % size
