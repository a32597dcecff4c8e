"""The sliding window of `Throttle`: exact for few calls, and nearly exact for many."""

from __future__ import annotations

from contextlib import suppress
from math import floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Throttle, errors
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom, Draws
from tests.support.layers.limits.throttles import NEVER, fails


def test_the_window_slides() -> None:
    throttle = Throttle(window=128, random=Draws(NEVER))
    with virtual_time() as clock:
        seen: list[tuple[float, float]] = []
        for step in (0, 60, 67, 1, 59, 1, 67):
            clock.advance(step)
            if clock.now() < 100:
                with pytest.raises(Boom):
                    throttle.call(fails)
                throttle.call(int)
            now = throttle.snapshot()
            seen.append((now["requests"], now["accepts"]))
    # calls made at 0 leave the window at 128, calls made at 60 at 188
    assert seen == [(2, 1), (4, 2), (4, 2), (2, 1), (2, 1), (0, 0), (0, 0)]


@pytest.mark.parametrize("apart", [1.0, 40.0, 119.0, 121.0, 500.0])
def test_calls_far_apart_are_counted_until_they_leave_the_window(apart: float) -> None:
    throttle = Throttle()
    with virtual_time() as clock:
        for number in range(5):
            clock.advance(apart)
            throttle.call(int)
            expected = min(number, floor(119.0 / apart)) + 1
            assert throttle.snapshot() == {"share": 0, "requests": expected, "accepts": expected}


def test_many_calls_are_counted_near_their_slice() -> None:
    """With many calls in a slice the clock is read less often; no call is lost."""
    throttle = Throttle(window=128)
    with virtual_time() as clock:
        for _ in range(4):
            for _ in range(1000):
                throttle.call(int)
            clock.advance(1)
        assert throttle.snapshot()["accepts"] == 4000
        clock.advance(123.9)
        assert throttle.snapshot()["accepts"] == 4000
        clock.advance(0.1)  # the first thousand leaves, except for a few that count in the next slice
        assert 3000 <= throttle.snapshot()["accepts"] <= 3064
        clock.advance(500)
        for _ in range(20):
            throttle.call(int)
        with pytest.raises(Boom):
            throttle.call(fails)
        assert throttle.snapshot() == {"share": 0, "requests": 21, "accepts": 20}


def test_a_count_is_off_by_at_most_a_sixteenth_of_a_slice() -> None:
    throttle = Throttle(window=128)
    with virtual_time() as clock:
        for calls in (160, 100):
            clock.advance(1)
            for _ in range(calls):
                throttle.call(int)
        clock.advance(100)
        throttle.call(int)  # the first for a long time
        clock.advance(28)
        assert 1 <= throttle.snapshot()["accepts"] <= 11


def test_a_throttle_made_before_virtual_time_obeys_it() -> None:
    throttle = Throttle()
    for _ in range(2):  # each block begins at 0 again
        with virtual_time() as clock:
            for _ in range(5):
                throttle.call(int)
                clock.advance(3600)
            throttle.call(int)
            assert throttle.snapshot() == {"share": 0, "requests": 1, "accepts": 1}


class SetDraw:
    """A random source that returns ``draw``."""

    draw = 0.0

    def random(self) -> float:
        return self.draw


@settings(max_examples=50)
@given(
    st.sampled_from([1.0, 1.5, 2.0]),
    st.sampled_from([1.0, 0.5]),
    st.integers(0, 4),
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.0, 30.0, 127.0, 128.0, 300.0]),
            st.sampled_from(["good", "bad", "cancelled"]),
            st.sampled_from([0.0, 0.3, 0.6, NEVER]),
        ),
        max_size=30,
    ),
)
def test_any_sequence_of_calls_matches_a_list_of_all_calls(
    k: float, most: float, minimum: int, steps: list[tuple[float, str, float]]
) -> None:
    chance, seen = SetDraw(), list[tuple[int, bool]]()
    throttle = Throttle(k, 128, most, minimum, random=chance)

    def model(clock: VirtualClock) -> tuple[int, int, float]:
        alive = [accepted for at, accepted in seen if at > floor(clock.now()) - 128]
        requests, accepts = len(alive), sum(alive)
        share = min(most, max(0.0, (requests - k * accepts) / (requests + 1)))
        return requests, accepts, share if requests >= minimum else 0

    def call(how: str) -> None:
        if how != "good":
            raise Boom if how == "bad" else GeneratorExit

    with virtual_time() as clock:
        for passed, how, draw in steps:
            clock.advance(passed)
            share, chance.draw, outcome = model(clock)[2], draw, how
            try:
                with suppress(Boom, GeneratorExit):
                    throttle.call(call, how)
            except errors.Rejected:
                outcome = "rejected"
            assert outcome == ("rejected" if draw < share else how)
            if outcome != "cancelled":
                seen.append((floor(clock.now()), outcome == "good"))
            now = throttle.snapshot()
            assert (now["requests"], now["accepts"], now["share"]) == model(clock)
