"""How many there were lately: against a plain list of all that ever was."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._internal.sliding_counter import SLICES, SlidingCounter


def test_nothing_at_first() -> None:
    recent = SlidingCounter()
    assert (recent.total, len(recent.counts)) == (0, SLICES)


@pytest.mark.parametrize("size", [1, 2, 100])
def test_it_counts_as_many_slices_as_asked_for(size: int) -> None:
    recent = SlidingCounter(size)
    recent.add(3, 0)
    recent.advance(size - 1)
    assert recent.total == 3
    recent.advance(size)
    assert recent.total == 0


def test_a_slice_that_is_over_can_still_be_added_to() -> None:
    recent = SlidingCounter(10)
    recent.advance(50)
    recent.add(1, 41)
    recent.add(1, 40)  # too old
    recent.add(1, 51)  # not yet
    assert recent.total == 1
    recent.advance(51)
    assert recent.total == 0


def test_never_below_none() -> None:
    recent = SlidingCounter(10)
    recent.add(2, 0)
    recent.advance(1)
    recent.add(-1, 1)  # there is none in that slice to take
    assert recent.total == 2
    recent.add(-5, 0)
    assert recent.total == 0


@pytest.mark.parametrize("back", [1, 9])
def test_a_little_back_is_no_move(back: int) -> None:
    recent = SlidingCounter(10)
    recent.advance(50)
    recent.add(1, 50)
    recent.advance(50 - back)
    assert (recent.total, recent.latest) == (1, 50)


@pytest.mark.parametrize("to", [40, 0, -50])
def test_far_back_is_another_clock(to: int) -> None:
    recent = SlidingCounter(10)
    recent.advance(50)
    recent.add(1, 50)
    recent.advance(to)
    assert (recent.total, recent.latest, sum(recent.counts)) == (0, to, 0)
    recent.add(1, to)
    assert recent.total == 1


STEPS = st.lists(st.tuples(st.integers(0, 25), st.integers(0, 12), st.integers(-3, 5)), max_size=60)


@settings(deadline=None)
@given(size=st.integers(1, 12), start=st.integers(-1000, 1000), steps=STEPS)
def test_it_agrees_with_a_list(size: int, start: int, steps: list[tuple[int, int, int]]) -> None:
    """Forwards by any number of slices, adding to slices of now and of before, and taking away."""
    recent, now = SlidingCounter(size), start
    recent.advance(start - 2 * size)
    recent.advance(start)
    known: dict[int, int] = {}
    for passed, ago, number in steps:
        now += passed
        recent.advance(now)
        index = now - ago
        recent.add(number, index)
        if ago < size:
            known[index] = max(0, known.get(index, 0) + number)
        assert recent.total == sum(recent.counts)
        for at in (now, now + 1, now + size - 1, now + size, now + 99):
            assert recent.count_at(at) == sum(
                count for index, count in known.items() if at - size < index <= now
            )
        assert recent.count_at(now) == recent.count_at(now - 1) == recent.total


@settings(deadline=None)
@given(size=st.integers(1, 12), moves=st.lists(st.integers(-40, 40), min_size=2))
def test_wherever_it_moves_it_stands_there_or_a_little_later(size: int, moves: list[int]) -> None:
    recent = SlidingCounter(size)
    recent.advance(moves[0])
    for before, to in pairwise([recent.latest, *moves]):
        assert recent.latest - size < before <= recent.latest
        recent.advance(to)
        recent.add(1, to)
        assert recent.total == sum(recent.counts) > 0
        assert recent.position == recent.latest % size
