"""A count that looks at the clock about sixteen times in a slice of time, however many calls there are."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.counting_gate import CHECKS_PER_SLICE, MAX_STEP, SampledCounter


def test_at_first_the_clock_is_looked_at_by_the_first_call() -> None:
    tally = SampledCounter()
    assert (tally.count, tally.next_check) == (0, 1)
    assert not tally.slice_start <= 0.0 < tally.slice_end
    assert (tally.slice_start, tally.slice_end) == (-inf, -inf)


@pytest.mark.parametrize(
    ("before", "step"),
    [(0, 1), (1, 1), (16, 1), (31, 1), (32, 2), (160, 10), (4095, 255), (4096, 256), (10**9, 256)],
)
def test_how_often_it_looks_is_learned_from_the_slice_before(before: int, step: int) -> None:
    tally = SampledCounter()
    tally.count = 7
    tally.begin_slice(before, 10.0, 10.5)
    assert (tally.count, tally.next_check, tally.step) == (7, 7 + step, step)
    assert (tally.slice_start, tally.slice_end) == (10.0, 10.5)


@pytest.mark.parametrize(
    ("counted", "sure", "since"),
    [
        (0, 0, 0),
        (9, 0, 9),  # nobody has looked yet
        (10, 0, 10),
        (15, 10, 5),  # one look, at the tenth
        (29, 20, 9),
        (30, 20, 10),
    ],
)
def test_what_was_counted_since_the_last_look_may_be_of_another_slice(
    counted: int, sure: int, since: int
) -> None:
    tally = SampledCounter()
    tally.begin_slice(160, 0.0, 0.5)
    for number in range(1, counted + 1):
        tally.count += 1
        if tally.count >= tally.next_check and number < counted:
            tally.next_check = tally.count + tally.step
    assert tally.drain() == (sure, since)
    assert tally.count == 0


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5000), min_size=2, max_size=8))
def test_it_looks_neither_too_often_nor_too_seldom(slices: list[int]) -> None:
    """As long as about as much goes on as before, and never further apart than so many calls."""
    tally = SampledCounter()
    for before, calls in pairwise(slices):
        tally.begin_slice(before, 0.0, 1.0)
        looks = 0
        for _ in range(calls):
            tally.count += 1
            if tally.count >= tally.next_check:
                looks += 1
                tally.next_check = tally.count + tally.step
        assert looks >= calls // MAX_STEP
        if before >= calls >= CHECKS_PER_SLICE:
            assert looks >= CHECKS_PER_SLICE // 2 * calls // before
        if before >= calls and before <= MAX_STEP * CHECKS_PER_SLICE:
            assert looks <= 2 * CHECKS_PER_SLICE
        assert sum(tally.drain()) == calls
