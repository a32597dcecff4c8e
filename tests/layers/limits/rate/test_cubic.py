"""How fast to call, learned from being throttled: the curve, what is measured, and the bucket."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble._layers.limits.cubic import SLICE, AdaptiveTokenBucket, CubicCurve, RateMeter

NEAR = 1e-6
RATES = st.floats(0.5, 1000)
MOMENTS = st.floats(0, 1e5)
GAPS = st.floats(0, 3)

# ----------------------------------------------------------------------------- the curve


@pytest.mark.parametrize(
    ("after", "rate"),
    [(0, 7), (1, 9.64893600966), (2, 10.000030849917364), (3, 10.453284520772092), (6, 36.425998516920465)],
)
def test_the_curve_after_throttling_at_ten(after: float, rate: float) -> None:
    assert CubicCurve(10.0, 5.0).rate_at(5.0 + after) == pytest.approx(rate, abs=5e-7)


@settings(max_examples=50)
@given(RATES, MOMENTS, st.floats(0, 10), st.floats(0, 10))
def test_it_goes_on_from_the_cut_and_comes_back_to_the_top(
    rate: float, now: float, sooner: float, later: float
) -> None:
    """And in between, and afterwards, it only grows."""
    cubic = CubicCurve(1.0, 0.0)
    cut = cubic.cut(rate, now)
    assert cut == pytest.approx(0.7 * rate)
    assert cubic.rate_at(now) == pytest.approx(cut)
    assert cubic.rate_at(now + cubic.plateau) == pytest.approx(rate)
    sooner, later = sorted((sooner, later))
    assert cubic.rate_at(now + sooner) <= cubic.rate_at(now + later)


@pytest.mark.parametrize(("beta", "scale", "cut", "plateau"), [(0.6, 0.4, 6, 10), (0.5, 0.005, 5, 1000)])
def test_other_shapes(beta: float, scale: float, cut: float, plateau: float) -> None:
    cubic = CubicCurve(0.0, 0.0, beta, scale)
    assert cubic.cut(10.0, 3.0) == cut
    assert cubic.plateau**3 == pytest.approx(plateau)


# --------------------------------------------------------------------- what is measured


@pytest.mark.parametrize(
    ("answers", "rate"),
    [
        ([1.0], 0.8),
        ([0.1, 0.2, 0.3, 0.4, 0.49], 0),  # the half second is not over yet
        ([0.1, 0.2, 0.3, 0.4, 0.49, 0.5], 9.6),  # the one that shows it is part of it
        ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 8.0),
        ([*range(1, 21)], 1.0),
        ([0.5, 1.0, 3.0], (1.6 * 0.2 + 1.6) * 0.2 + 0.4),
        ([1.0, 0.4], 0.8),  # a thread that read the clock before another
    ],
)
def test_what_is_measured(answers: list[float], rate: float) -> None:
    measured = RateMeter(0.0)
    for now in answers:
        measured.count += 1
        measured.advance(now)
    assert measured.rate == pytest.approx(rate)


def test_another_clock_begins_another_half_second() -> None:
    measured = RateMeter(1000.2)
    measured.count = 9
    measured.advance(3.3)
    assert (measured.rate, measured.count, measured.slice_start, measured.slice_end) == (0, 9, 3.0, 3.5)
    measured.advance(3.5)
    assert measured.rate == pytest.approx(9 / SLICE * 0.8)


def test_what_is_busy_is_looked_at_less_often() -> None:
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
    measured.advance(1.5)  # two halves
    assert measured.next_check == 2


# ----------------------------------------------------------------------------- the bucket


def limited(rate: float, now: float = 0.0) -> AdaptiveTokenBucket:
    """Make one that is on, at a rate, with nothing in its bucket."""
    tide = AdaptiveTokenBucket(now)
    tide.limiting = True
    tide.set_rate(rate, now)
    return tide


def test_off_until_the_first_throttling() -> None:
    tide = AdaptiveTokenBucket(0.0)
    for now in range(1, 100):
        assert tide.due(now / 10) == 0.0
        tide.take(now / 10)
        tide.record(throttled=False, now=now / 10)
        assert not tide.limiting
    measured = tide.meter.rate
    tide.record(throttled=True, now=9.95)
    assert tide.limiting
    assert tide.rate == pytest.approx(0.7 * measured)
    there = 0
    while not tide.due(9.95):
        tide.take(9.95)
        there += 1
    assert there <= tide.capacity + NEAR


def test_throttled_again_it_is_cut_from_the_slower_of_both() -> None:
    tide = limited(4.0)
    tide.meter.rate = 10.0
    tide.record(throttled=True, now=0.1)
    assert tide.rate == pytest.approx(2.8)
    tide.meter.rate = 2.0
    tide.record(throttled=True, now=0.2)
    assert tide.rate == pytest.approx(1.4)


def test_it_grows_to_no_more_than_twice_what_is_measured() -> None:
    tide = limited(4.0)
    tide.meter.rate = 3.0
    tide.record(throttled=False, now=0.4)
    assert tide.rate <= 6.0
    for _ in range(50):
        tide.meter.count = 1
        tide.record(throttled=False, now=100.0)
    assert tide.rate == pytest.approx(2 * tide.meter.rate)


@pytest.mark.parametrize(
    ("least", "wanted", "rate", "capacity"), [(0.2, 0.1, 0.2, 1), (0.5, 7, 7, 7), (3, 0, 3, 3)]
)
def test_the_least(least: float, wanted: float, rate: float, capacity: float) -> None:
    tide = AdaptiveTokenBucket(0.0, least)
    tide.set_rate(wanted, 0.0)
    assert (tide.rate, tide.capacity) == (rate, capacity)


def test_what_is_in_the_bucket_stays_as_far_as_it_fits() -> None:
    tide = limited(10.0)
    tide.set_rate(2.0, 1.0)
    assert tide.due(1.0, 1) == 0.0
    assert tide.due(1.0, 2) == 0.5
    tide.set_rate(10.0, 1.0)
    assert tide.due(1.0, 1) == 0.0
    assert tide.due(1.0, 2) == pytest.approx(0.1)


def test_who_is_let_pass_by_a_hair_owes_no_more_than_that() -> None:
    tide = limited(1.0)
    assert tide.due(1.0 - 1e-9) == 0.0
    tide.take(1.0 - 1e-9)
    assert tide.due(1.0) == pytest.approx(1.0)


def test_it_is_never_passed_unasked() -> None:
    tide = limited(1.0)
    tide.close_fast_path()
    assert tide.due(0.0) == 1.0
    tide.open_fast_path()
    assert tide.due(0.0) == 1.0


@settings(max_examples=50)
@given(RATES, MOMENTS, st.lists(GAPS, max_size=40))
def test_never_more_than_rate_times_t_plus_what_fits_in_the_bucket(
    rate: float, start: float, gaps: list[float]
) -> None:
    tide, now, passed = limited(rate, start), start, list[float]()
    for gap in gaps:
        now += gap
        now += tide.due(now)
        assert not tide.due(now)
        tide.take(now)
        passed.append(now)
    for first, began in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= rate * (passed[last] - began) + tide.capacity + NEAR * rate


@settings(max_examples=50)
@given(RATES, MOMENTS, GAPS, st.integers(0, 30))
def test_who_waits_is_told_how_long_it_will_be(rate: float, start: float, gap: float, ahead: int) -> None:
    tide, arrived = limited(rate, start), start + gap
    promised, now = tide.due(arrived, ahead), arrived
    for _ in range(ahead):
        now += tide.due(now)
        tide.take(now)
    assert now + tide.due(now) == pytest.approx(arrived + promised, abs=NEAR)


# -------------------------------------------------------------------------- another clock


@pytest.mark.parametrize("throttled", [False, True])
def test_another_clock_changes_nothing_but_the_time(throttled: bool) -> None:
    """What was throttled a second ago is so by either clock."""
    one, other = limited(4.0, 1000.0), limited(4.0, 1000.0)
    for tide in (one, other):
        tide.meter.rate = 8.0
        tide.record(throttled=True, now=1000.0)
    other.record(throttled, 5.0)
    one.record(throttled, 1000.0)
    assert other.rate == pytest.approx(one.rate)
    for after in (0.1, 0.2, 0.4):
        assert other._curve.rate_at(5.0 + after) == pytest.approx(one._curve.rate_at(1000.0 + after))
        assert other.due(5.0 + after) == pytest.approx(one.due(1000.0 + after), abs=NEAR)


def test_tokens_are_kept_when_the_clock_is_another() -> None:
    tide = limited(1.0, 1000.0)
    assert tide.due(999.5) == pytest.approx(1.5)  # a thread that read the clock before another
    assert tide.due(5.0) == 1.0
    assert tide.due(6.0) == 0.0
