"""Adaptive limits: AWS's rate, and the concurrency limits of Netflix, Envoy and failsafe-go."""

from __future__ import annotations

from contextlib import suppress

import pytest
from trio.testing import MockClock

from redouble import SYSTEM, AdaptiveConcurrency, AdaptiveRate
from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Sample, Vegas
from redouble._layers.limits.limit_window import By
from redouble._layers.limits.rate.cubic import AdaptiveTokenBucket, CubicCurve
from redouble.testing import virtual_time
from tests.conformance.flows import EVERY, in_colour
from tests.support.scripted import ScriptedError

CLOSE = 5e-7
THROTTLED = ScriptedError

SUCCESSES = [
    *(7.0, 9.64893600966, 10.000030849917364, 10.453284520772092),
    *(13.408697022224185, 21.26626835427364, 36.425998516920465),
]
MIXED = [
    *(7.0, 9.64893600966, 6.754255206761999, 4.727978644733399),
    *(6.606547753887045, 6.763279816944947, 7.598174833907107, 11.511232804773524),
]


@pytest.mark.parametrize(
    ("throttled", "rates"),
    [
        pytest.param((), SUCCESSES, id="aws.cubic.success_only"),
        pytest.param((), SUCCESSES, id="KT-RL-05"),
        pytest.param((7, 8), MIXED, id="aws.cubic.mixed"),
        pytest.param((7, 8), MIXED, id="KT-RL-06"),
    ],
)
def test_the_cubic_curve(throttled: tuple[int, ...], rates: list[float]) -> None:
    """The rate at 5, 6, 7 and so on, after throttling at a rate of 10 at 5."""
    cubic, rate, seen = CubicCurve(10, 5), 10.0, list[float]()
    for t in range(5, 5 + len(rates)):
        rate = cubic.cut(rate, t) if t in throttled else cubic.rate_at(t)
        seen.append(rate)
    assert seen == pytest.approx(rates, abs=CLOSE)


def test_aws_cubic_botocore_units() -> None:
    """aws.cubic.botocore_units: when the curve reaches its maximum again, and the rate after throttling."""
    cubic = CubicCurve(10, 0)
    assert cubic.plateau == pytest.approx(1.9574338205844317)
    assert cubic.cut(8, 0) == pytest.approx(5.6)
    assert cubic.plateau == pytest.approx(1.8171205928321397)
    assert CubicCurve(10, 0, beta=0.6).cut(10, 0) == 6


# There is a response every 0.2 s; the tenth and the sixteenth are throttled.
THROTTLED_AT = (2.0, 3.2)
MEASURED = [
    *(0, 0, 4.8, 4.8, 4.16, 4.16, 4.16, 5.632, 5.632, 4.3264, 4.3264, 4.3264),
    *(5.66528, 5.66528, 4.333056, 4.333056, 4.333056),
]
RATES = [
    *(0.5, 0.5, 0.5, 0.5, 0.5, 0.6912, 1.0976, 1.6384, 2.3328, 3.02848, 3.486639, 3.821874),
    *(4.053386, 4.200373, 4.282037, 2.997426, 3.452226),
]


@pytest.mark.parametrize("fact", ["aws.adaptive.end_to_end", "KT-RL-07"])
def test_the_rate_after_each_response(fact: str) -> None:
    """The snapshot has no rate before the first throttling."""
    with virtual_time() as clock:
        bucket, gate = AdaptiveTokenBucket(0.0), AdaptiveRate(on=THROTTLED)
        for n, (measured, rate) in enumerate(zip(MEASURED, RATES, strict=True), 1):
            t = n / 5
            clock.advance(t - clock.now())
            bucket.record(t in THROTTLED_AT, t)
            assert (bucket.meter.rate, bucket.rate) == pytest.approx((measured, rate), abs=CLOSE)
            assert bucket.capacity == max(bucket.rate, 1)
            gate.ended(None, THROTTLED() if t in THROTTLED_AT else None, t)
            said = gate.snapshot()
            assert said["measured"] == pytest.approx(measured, abs=CLOSE)
            assert said["rate"] == (pytest.approx(rate, abs=CLOSE) if t >= THROTTLED_AT[0] else None)


def test_aws_adaptive_clamps_min_rate() -> None:
    """aws.adaptive.clamps.min_rate: a lower rate is raised to it, and the bucket holds at least one token."""
    bucket = AdaptiveTokenBucket(0.0, least=0.2)
    bucket.set_rate(0.1, 0.0)
    assert (bucket.rate, bucket.capacity) == (0.2, 1)


# --------------------------------------------------------------------------------------- concurrency

Samples = list[tuple[float, int]]  # latencies, and calls in flight

TWICE: Samples = [(1, 10), (2, 10), (2, 10)]
A_LITTLE: Samples = [(1, 10), (1.3, 10), (1.3, 10)]
LARGE: Samples = [(10, 5000), (10, 6000)]


@pytest.mark.parametrize(
    ("algorithm", "initial", "samples", "expected"),
    [
        pytest.param(Vegas(), 10, [(10, 10), (10, 11)], [10, 16], id="limit.vegas.increase"),
        pytest.param(Vegas(), 10, [(10, 10), (50, 11)], [10, 9], id="limit.vegas.decrease"),
        pytest.param(Vegas(), 10, [(10, 10), (14, 14)], [10, 10], id="limit.vegas.hold"),
        pytest.param(Vegas(), 10000, LARGE, [10000, 10024], id="limit.vegas.large_limit"),
        pytest.param(Vegas(), 20, TWICE, [20, 19, 18], id="limit.failsafe_go_step.less"),
        pytest.param(Vegas(), 20, A_LITTLE, [20, 20, 20], id="limit.failsafe_go_step.hold"),
        pytest.param(Aimd(5.0), 21, [(1, 10)], [21], id="limit.aimd.hold"),
        pytest.param(Aimd(5.0), 30, [(6, 0)], [27], id="limit.aimd.slow"),
        pytest.param(Gradient(), 100, [(10, 1), (100, 100)], [100, 57], id="limit.envoy_gradient.less"),
    ],
)
def test_the_next_limit(
    algorithm: LimitAlgorithm, initial: float, samples: Samples, expected: list[int]
) -> None:
    """From the latency and the calls in flight; the first sample is the baseline latency."""
    limit, seen = initial, list[int]()
    for rtt, in_flight in samples:
        limit = algorithm.next(limit, Sample(rtt, in_flight))
        seen.append(int(limit))
    assert seen == expected


@pytest.mark.parametrize(
    ("by", "least", "initial", "most", "samples", "expected"),
    [
        pytest.param("vegas", 1, 10, 20, [(1, 10), (1, 10)], [10, 16], id="limit.vegas.increase"),
        pytest.param("vegas", 1, 10, 20, [(1, 10), (5, 10)], [10, 9], id="limit.vegas.decrease"),
        pytest.param("vegas", 1, 10000, 20000, LARGE, [10000, 10024], id="limit.vegas.large_limit"),
        pytest.param("vegas", 1, 20, 200, TWICE, [20, 19, 18], id="limit.failsafe_go_step.less"),
        pytest.param("aimd", 1, 21, 21, [(1, 10), (1, 21)], [21, 21], id="limit.aimd.most"),
        pytest.param("gradient", 3, 100, 1000, [(1, 40), (10, 100)], [100, 57], id="limit.envoy_gradient"),
        pytest.param(
            "gradient", 30, 30, 1000, [(1, 10), (10, 30)], [30, 30], id="limit.envoy_gradient.least"
        ),
    ],
)
def test_the_limit_after_concurrent_calls(
    by: By, least: int, initial: int, most: int, samples: Samples, expected: list[int]
) -> None:
    """The same samples as concurrent calls, which end at the end of a window."""
    with virtual_time():
        gate, seen = AdaptiveConcurrency(initial, least, most, by, window=20, relearn=1e6), list[int]()
        for end, (rtt, calls) in enumerate(samples, 1):
            early = [gate.admit(20 * end - rtt - 1) for _ in range(calls - 1)]
            last = gate.admit(20 * end - rtt)
            for ticket in early:
                gate.ended(ticket, None, 20 * end - 1)
            gate.ended(last, None, 20 * end)
            seen.append(gate.limit)
        assert seen == expected


@pytest.mark.parametrize("colour", EVERY)
def test_limit_aimd_a_dropped_call_reduces_the_limit(colour: str) -> None:
    """limit.aimd: by 10 %, regardless of the calls in flight."""

    def fetch() -> None:
        raise TimeoutError

    async def afetch() -> None:
        raise TimeoutError

    def blocking() -> int:
        with virtual_time():
            gate = AdaptiveConcurrency(30, least=20, most=200, by="aimd", window=1)
            SYSTEM.sleep(1)
            with suppress(TimeoutError):
                gate.call(fetch)
            return gate.limit

    async def waiting() -> int:
        with virtual_time():
            gate = AdaptiveConcurrency(30, least=20, most=200, by="aimd", window=1)
            await SYSTEM.asleep(1)
            with suppress(TimeoutError):
                await gate.call(afetch)
            return gate.limit

    assert in_colour(colour, blocking, waiting, MockClock(autojump_threshold=0)) == 27
