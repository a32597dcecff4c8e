"""Polly, Finagle, Envoy, gRPC, failsafe, resilience4j, cenkalti/backoff: delays and waiting."""

from __future__ import annotations

import pytest

from redouble import Backoff, Hints, Reason
from tests.conformance.flows import INSTEAD, Flow, answers, check, flow, in_every_colour
from tests.support.scripted import fail, ok, series

DAY = 86400
CASCADE = Backoff.exponential(500).maximum(5000)


@pytest.mark.parametrize(
    ("base", "draw", "expected"),
    [(1, 0, 0.75), (1, 0.4, 0.95), (1, 0.6, 1.05), (1, 1, 1.25), (3, 0.6, 3.15), (3, 1, 3.75)],
)
def test_jitter_polly_linear_constant(base: float, draw: float, expected: float) -> None:
    """jitter.polly_linear_constant: 25 % up or down."""
    assert series(Backoff.constant(base).jitter(0.25), 1, draw) == pytest.approx([expected])


def exponential(base: float, cap: float) -> Backoff:
    return Backoff.exponential(base).maximum(cap)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        pytest.param(exponential(2, 20), [2, 4, 8, 16, 20, 20], id="jitter.smithy_python.none-2"),
        pytest.param(exponential(4, 2), [2, 2, 2], id="jitter.smithy_python.none-4"),
        pytest.param(exponential(23.4, 76.5), [23.4, 46.8, 76.5, 76.5], id="jitter.smithy_python.none-23.4"),
        pytest.param(
            exponential(2, 20).equal_jitter(), [1.5, 3, 6, 12, 15, 15], id="jitter.smithy_python.equal-2"
        ),
        pytest.param(
            exponential(23.4, 76.5).equal_jitter(),
            [17.55, 35.1, 57.375, 57.375],
            id="jitter.smithy_python.equal-23.4",
        ),
        pytest.param(
            Backoff.decorrelated(2, 20),
            [4, 7, 11.5, 18.25, 20],
            id="jitter.smithy_python.decorrelated-deviates",
        ),
        pytest.param(Backoff.exponential(1), [1, 2, 4], id="backoff.exponential_edges.exp_no_jitter"),
        pytest.param(
            exponential(0.01, 100), [0.01, 0.02, 0.04, 0.08, 0.16, 0.32], id="backoff.smithy_kotlin.plain"
        ),
        pytest.param(exponential(10, 100), [10, 20, 40, 80, 100, 100], id="backoff.smithy_kotlin.capped"),
        pytest.param(exponential(1000, 100000), [1000, 2000, 4000], id="backoff.smithy_kotlin.throttled"),
        pytest.param(
            Backoff.linear(9, 30).maximum(99),
            [9, 39, 69, 99, 99],
            id="backoff.finagle_combinators.linear_capped",
        ),
        pytest.param(
            Backoff.of([1, 1, 1, 2, 3, 7, 7, 7]),
            [1, 1, 1, 2, 3, 7, 7, 7],
            id="backoff.finagle_combinators.concat",
        ),
        pytest.param(CASCADE, [500, 1000, 2000, 4000] + [5000] * 6, id="backoff.cenkalti.intervals"),
    ],
)
def test_the_delays_of_each_series(backoff: Backoff, delays: list[float]) -> None:
    """In order; the random source returns 0.5."""
    assert series(backoff, len(delays), 0.5) == pytest.approx(delays)


def test_backoff_exponential_edges() -> None:
    """backoff.exponential_edges: after many attempts delays are finite, within the cap, not negative."""
    day = series(Backoff.exponential(DAY), 1001)
    assert 0 < day[1000] < float("inf")
    assert series(exponential(DAY, 2 * DAY), 1001)[1000] == 2 * DAY
    assert all(0 <= delay <= 30 for delay in series(exponential(2, 30), 100_001))
    assert set(series(Backoff.exponential(0), 1001)) == {0}


def test_backoff_resilience4j_interval_exponential_cap() -> None:
    """backoff.resilience4j_interval.exponential_cap: at attempts 1, 2, 10, 11, 12 and 1000."""
    delays = series(exponential(100, 100000), 1000)
    assert [delays[n - 1] for n in (1, 2, 10, 11, 12, 1000)] == [100, 200, 51200, 100000, 100000, 100000]


def test_backoff_smithy_kotlin_jitter() -> None:
    """backoff.smithy_kotlin with jitter 0.6, [0.4 x, x]: a backoff with jitter around the middle, 0.7 x."""
    backoff = Backoff.exponential(7).jitter(3 / 7)
    assert series(backoff, 6, 0) == pytest.approx([4, 8, 16, 32, 64, 128])
    assert series(backoff, 6, 1) == pytest.approx([10, 20, 40, 80, 160, 320])


def test_backoff_cenkalti_randomized() -> None:
    """backoff.cenkalti: each interval varies by 10 % up or down."""
    assert series(CASCADE.jitter(0.1), 5, 0) == pytest.approx([450, 900, 1800, 3600, 4500])
    assert series(CASCADE.jitter(0.1), 5, 1) == pytest.approx([550, 1100, 2200, 4400, 5500])


@pytest.mark.parametrize(
    ("base", "cap", "numbers", "expected"),
    [
        (25, 250, [190, 190, 190, 190], [15, 40, 90, 190]),
        (100, 1000, [149, 350, 751, 2999, 2999], [49, 150, 351, 599, 999]),
    ],
)
def test_backoff_envoy_full_jitter(base: int, cap: int, numbers: list[int], expected: list[int]) -> None:
    """backoff.envoy_full_jitter: Envoy takes a random integer modulo the interval, which is full jitter."""
    intervals = [min(base * 2**n, cap) for n in range(len(numbers))]
    draws = [number % interval / interval for number, interval in zip(numbers, intervals, strict=True)]
    assert series(exponential(base, cap).full_jitter(), len(numbers), *draws) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "number", "delay"), [(500, 22, 522), (2000, 190, 2190), (5000, 2190, 7190)]
)
def test_backoff_envoy_lower_bound(asked: int, number: int, delay: int) -> None:
    """backoff.envoy_lower_bound: a hint is lengthened by up to half of itself."""
    draw = number % (asked // 2) / (asked / 2)
    rules, hints = [answers({"*": asked})], Hints(spread=0.5)
    row = flow("", fail(), ok(), rules=rules, hints=hints, random=(draw,), expected={"sleeps": [delay]})
    check("sync", row)


def test_backoff_failsafe_random() -> None:
    """backoff.failsafe_random: a range (there in whole numbers) and a factor (there only downwards)."""
    draws = (0, 0.25, 0.5, 0.75, 1)
    assert [int(delay) for delay in series(Backoff.random(10, 100), 5, *draws)] == [10, 32, 55, 77, 100]
    mirrored = [1 - draw for draw in draws[:4]]
    assert series(Backoff.constant(100).jitter(0.5), 4, *mirrored) == [150, 125, 100, 75]


GRPC = Backoff.exponential(100).maximum(700).jitter(0.2)

FLOWS = [
    flow(
        "pushback.grpc.plain",
        fail(),
        attempts=6,
        backoff=GRPC,
        random=(0.5,),
        expected={"sleeps": [100, 200, 400, 700, 700], "calls": 6, "reason": Reason.attempts},
    ),
    # gRPC restarts its backoff after a pushback; here the delays continue with the attempts.
    flow(
        "pushback.grpc.pushback_resets_backoff-deviates",
        fail("first"),
        fail("second"),
        fail("plain"),
        attempts=6,
        backoff=GRPC,
        random=(0.5,),
        rules=[answers({"first": 0.123, "second": 4567})],
        hints=INSTEAD,
        expected={"sleeps": [0.123, 4567, 400, 700, 700], "calls": 6, "reason": Reason.attempts},
    ),
    flow(
        "retry.deadline_aware.delay",
        fail("real", takes=7),
        total=10,
        backoff=Backoff.constant(5),
        expected={"sleeps": [], "raises": "real", "same": True, "reason": Reason.timeout, "now": 7},
    ),
    flow(
        "retry.deadline_aware.hint",
        fail("real", takes=7),
        total=10,
        rules=[answers({"*": 60})],
        expected={"sleeps": [], "raises": "real", "same": True, "reason": Reason.timeout, "now": 7},
    ),
    flow(
        "retry.deadline_aware.fits",
        fail("real", takes=7),
        ok(),
        total=10,
        backoff=Backoff.constant(1),
        expected={"sleeps": [1], "ok": "ok"},
    ),
    # Finagle's take_until(9) allows 1+2+3+4; a time limit does not allow the fourth.
    flow(
        "backoff.finagle_combinators.take_until_total-deviates",
        fail(),
        attempts=None,
        give_up_after=9,
        backoff=Backoff.linear(1, 1),
        expected={"sleeps": [1, 2, 3], "reason": Reason.timeout},
    ),
    flow(
        "backoff.finagle_combinators.take_until_zero",
        fail(),
        backoff=Backoff.constant(1).take(0),
        expected={"sleeps": [], "calls": 1, "reason": Reason.backoff_ended},
    ),
]


@in_every_colour(FLOWS)
def test_delays_and_refused_retries(colour: str, row: Flow) -> None:
    """A retry is refused if its delay does not fit the time limit."""
    check(colour, row)
