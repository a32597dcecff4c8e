"""The rate that adapts to throttling: its CUBIC curve, the rate meter and the token bucket."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.rate.cubic import SLICE, AdaptiveTokenBucket, CubicCurve, RateMeter
from redouble._layers.limits.rate.pacing import Ahead

NEAR = 1e-6
RATES = st.floats(0.5, 1000)
MOMENTS = st.floats(0, 1e5)
GAPS = st.floats(0, 3)

# ----------------------------------------------------------------------------- the curve


@pytest.mark.parametrize(
    ("after", "rate"),
    [(0, 7), (1, 9.64893600966), (2, 10.000030849917364), (3, 10.453284520772092), (6, 36.425998516920465)],
)
def test_the_curve_after_throttling_at_a_rate_of_ten(after: float, rate: float) -> None:
    assert CubicCurve(10.0, 5.0).rate_at(5.0 + after) == pytest.approx(rate, abs=5e-7)


@settings(max_examples=50)
@given(RATES, MOMENTS, st.floats(0, 10), st.floats(0, 10))
def test_the_curve_starts_at_the_cut_and_returns_to_the_top(
    rate: float, now: float, sooner: float, later: float
) -> None:
    """It never falls in between or afterwards."""
    cubic = CubicCurve(1.0, 0.0)
    cut = cubic.cut(rate, now)
    assert cut == pytest.approx(0.7 * rate)
    assert cubic.rate_at(now) == pytest.approx(cut)
    assert cubic.rate_at(now + cubic.plateau) == pytest.approx(rate)
    sooner, later = sorted((sooner, later))
    assert cubic.rate_at(now + sooner) <= cubic.rate_at(now + later)


@pytest.mark.parametrize(("beta", "scale", "cut", "plateau"), [(0.6, 0.4, 6, 10), (0.5, 0.005, 5, 1000)])
def test_the_curve_with_another_beta_and_scale(beta: float, scale: float, cut: float, plateau: float) -> None:
    cubic = CubicCurve(0.0, 0.0, beta, scale)
    assert cubic.cut(10.0, 3.0) == cut
    assert cubic.plateau**3 == pytest.approx(plateau)


# ----------------------------------------------------------------------- the rate meter


@pytest.mark.parametrize(
    ("answers", "rate"),
    [
        ([1.0], 0.8),
        ([0.1, 0.2, 0.3, 0.4, 0.49], 0),  # the slice is not over yet
        ([0.1, 0.2, 0.3, 0.4, 0.49, 0.5], 9.6),  # the result that notices the end of the slice is included
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 8.0),
        ([*range(1, 21)], 1.0),
        ([0.5, 1.0, 3.0], (1.6 * 0.2 + 1.6) * 0.2 + 0.4),
        ([1.0, 0.4], 0.8),  # a time that another thread read earlier
    ],
)
def test_the_meter_measures_results_per_second(answers: list[float], rate: float) -> None:
    measured = RateMeter(0.0)
    for now in answers:
        measured.count += 1
        measured.advance(now)
    assert measured.rate == pytest.approx(rate)


def test_a_clock_that_goes_back_far_begins_a_new_slice() -> None:
    measured = RateMeter(1000.2)
    measured.count = 9
    measured.advance(3.3)
    assert (measured.rate, measured.count, measured.slice_start, measured.slice_end) == (0, 9, 3.0, 3.5)
    measured.advance(3.5)
    assert measured.rate == pytest.approx(9 / SLICE * 0.8)


def test_a_busy_meter_is_checked_less_often() -> None:
    measured = RateMeter(0.0)
    measured.count = 1600
    measured.advance(0.5)
    assert (measured.count, measured.next_check, measured.slice_start, measured.slice_end) == (
        0,
        100,
        0.5,
        1.0,
    )
    measured.count = 64
    measured.advance(1.5)  # two slices later
    assert measured.next_check == 2


# ----------------------------------------------------------------------- the token bucket


def limited(rate: float, now: float = 0.0) -> AdaptiveTokenBucket:
    """Return a bucket that limits calls to this rate, without tokens."""
    bucket = AdaptiveTokenBucket(now)
    bucket.meter.limiting = True
    bucket.set_rate(rate, now)
    return bucket


def test_the_bucket_does_not_limit_until_the_first_throttling() -> None:
    bucket = AdaptiveTokenBucket(0.0)
    for now in range(1, 100):
        assert bucket.due(now / 10) == 0.0
        bucket.take(now / 10)
        bucket.record(throttled=False, now=now / 10)
        assert not bucket.meter.limiting
    measured = bucket.meter.rate
    bucket.record(throttled=True, now=9.95)
    assert bucket.meter.limiting
    assert bucket.rate == pytest.approx(0.7 * measured)
    taken = 0
    while not bucket.due(9.95):
        bucket.take(9.95)
        taken += 1
    assert taken <= bucket.capacity + NEAR


def test_further_throttling_cuts_the_lower_of_the_current_and_the_measured_rate() -> None:
    bucket = limited(4.0)
    bucket.meter.rate = 10.0
    bucket.record(throttled=True, now=0.1)
    assert bucket.rate == pytest.approx(2.8)
    bucket.meter.rate = 2.0
    bucket.record(throttled=True, now=0.2)
    assert bucket.rate == pytest.approx(1.4)


def test_the_rate_grows_to_at_most_twice_the_measured_one() -> None:
    bucket = limited(4.0)
    bucket.meter.rate = 3.0
    bucket.record(throttled=False, now=0.4)
    assert bucket.rate <= 6.0
    for _ in range(50):
        bucket.meter.count = 1
        bucket.record(throttled=False, now=100.0)
    assert bucket.rate == pytest.approx(2 * bucket.meter.rate)


@pytest.mark.parametrize(
    ("least", "wanted", "rate", "capacity"), [(0.2, 0.1, 0.2, 1), (0.5, 7, 7, 7), (3, 0, 3, 3)]
)
def test_the_rate_never_falls_below_the_least(
    least: float, wanted: float, rate: float, capacity: float
) -> None:
    bucket = AdaptiveTokenBucket(0.0, least)
    bucket.set_rate(wanted, 0.0)
    assert (bucket.rate, bucket.capacity) == (rate, capacity)


def test_a_new_rate_keeps_the_tokens_up_to_the_new_capacity() -> None:
    bucket = limited(10.0)
    bucket.set_rate(2.0, 1.0)
    assert bucket.due(1.0, 1, Ahead.of([1] * 1)) == 0.0
    assert bucket.due(1.0, 1, Ahead.of([1] * 2)) == 0.5
    bucket.set_rate(10.0, 1.0)
    assert bucket.due(1.0, 1, Ahead.of([1] * 1)) == 0.0
    assert bucket.due(1.0, 1, Ahead.of([1] * 2)) == pytest.approx(0.1)


def test_a_call_admitted_within_the_clock_tolerance_owes_no_more_than_that() -> None:
    bucket = limited(1.0)
    assert bucket.due(1.0 - 1e-9) == 0.0
    bucket.take(1.0 - 1e-9)
    assert bucket.due(1.0) == pytest.approx(1.0)


def test_the_bucket_has_no_fast_path() -> None:
    bucket = limited(1.0)
    bucket.close_fast_path()
    assert bucket.due(0.0) == 1.0
    bucket.open_fast_path()
    assert bucket.due(0.0) == 1.0


@settings(max_examples=50)
@given(RATES, MOMENTS, st.lists(GAPS, max_size=40))
def test_never_more_than_rate_times_t_plus_the_capacity(rate: float, start: float, gaps: list[float]) -> None:
    bucket, now, passed = limited(rate, start), start, list[float]()
    for gap in gaps:
        now += gap
        now += bucket.due(now)
        assert not bucket.due(now)
        bucket.take(now)
        passed.append(now)
    for first, began in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= rate * (passed[last] - began) + bucket.capacity + NEAR * rate


@settings(max_examples=50)
@given(RATES, MOMENTS, GAPS, st.integers(0, 30))
def test_due_is_the_time_until_the_call_is_admitted(
    rate: float, start: float, gap: float, ahead: int
) -> None:
    bucket, arrived = limited(rate, start), start + gap
    promised, now = bucket.due(arrived, 1, Ahead.of([1] * ahead)), arrived
    for _ in range(ahead):
        now += bucket.due(now)
        bucket.take(now)
    assert now + bucket.due(now) == pytest.approx(arrived + promised, abs=NEAR)


# -------------------------------------------------------------------- clocks that go back


@pytest.mark.parametrize("throttled", [False, True])
def test_a_clock_that_goes_back_far_keeps_the_curve(throttled: bool) -> None:
    """The time since the last throttling stays the same."""
    one, other = limited(4.0, 1000.0), limited(4.0, 1000.0)
    for bucket in (one, other):
        bucket.meter.rate = 8.0
        bucket.record(throttled=True, now=1000.0)
    other.record(throttled, 5.0)
    one.record(throttled, 1000.0)
    assert other.rate == pytest.approx(one.rate)
    for after in (0.1, 0.2, 0.4):
        assert other._curve.rate_at(5.0 + after) == pytest.approx(one._curve.rate_at(1000.0 + after))
        assert other.due(5.0 + after) == pytest.approx(one.due(1000.0 + after), abs=NEAR)


def test_a_clock_that_goes_back_far_keeps_the_tokens() -> None:
    bucket = limited(1.0, 1000.0)
    assert bucket.due(999.5) == pytest.approx(1.5)  # a time that another thread read earlier
    assert bucket.due(5.0) == 1.0
    assert bucket.due(6.0) == 0.0
