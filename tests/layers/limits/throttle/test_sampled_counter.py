"""`SampledCounter` reads the clock about sixteen times in a slice, however many calls there are."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.sampled_counter import CHECKS_PER_SLICE, MAX_STEP, SampledCounter


def test_the_first_call_reads_the_clock() -> None:
    counter = SampledCounter()
    assert (counter.count, counter.next_check) == (0, 1)
    assert not counter.slice_start <= 0.0 < counter.slice_end
    assert (counter.slice_start, counter.slice_end) == (-inf, -inf)


@pytest.mark.parametrize(
    ("before", "step"),
    [(0, 1), (1, 1), (16, 1), (31, 1), (32, 2), (160, 10), (4095, 255), (4096, 256), (10**9, 256)],
)
def test_the_step_depends_on_the_calls_in_the_previous_slice(before: int, step: int) -> None:
    counter = SampledCounter()
    counter.count = 7
    counter.begin_slice(before, 10.0, 10.5)
    assert (counter.count, counter.next_check, counter.step) == (7, 7 + step, step)
    assert (counter.slice_start, counter.slice_end) == (10.0, 10.5)


@pytest.mark.parametrize(
    ("counted", "dated", "since"),
    [
        (0, 0, 0),
        (9, 0, 9),  # the clock was not read yet
        (10, 0, 10),
        (15, 10, 5),  # read once, at the tenth call
        (29, 20, 9),
        (30, 20, 10),
    ],
)
def test_drain_separates_the_calls_since_the_last_read_of_the_clock(
    counted: int, dated: int, since: int
) -> None:
    counter = SampledCounter()
    counter.begin_slice(160, 0.0, 0.5)
    for number in range(1, counted + 1):
        counter.count += 1
        if counter.count >= counter.next_check and number < counted:
            counter.next_check = counter.count + counter.step
    assert counter.drain() == (dated, since)
    assert counter.count == 0


@settings(max_examples=50)
@given(st.lists(st.integers(0, 5000), min_size=2, max_size=8))
def test_the_number_of_reads_of_the_clock_is_bounded(slices: list[int]) -> None:
    """At least every `MAX_STEP` calls; at most twice `CHECKS_PER_SLICE` if the calls do not increase."""
    counter = SampledCounter()
    for before, calls in pairwise(slices):
        counter.begin_slice(before, 0.0, 1.0)
        reads = 0
        for _ in range(calls):
            counter.count += 1
            if counter.count >= counter.next_check:
                reads += 1
                counter.next_check = counter.count + counter.step
        assert reads >= calls // MAX_STEP
        if before >= calls >= CHECKS_PER_SLICE:
            assert reads >= CHECKS_PER_SLICE // 2 * calls // before
        if before >= calls and before <= MAX_STEP * CHECKS_PER_SLICE:
            assert reads <= 2 * CHECKS_PER_SLICE
        assert sum(counter.drain()) == calls
