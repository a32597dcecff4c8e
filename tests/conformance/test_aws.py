"""The AWS SDKs: standard mode, old and new, and their bucket of retry tokens."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from redouble import Backoff, Grant, Hints, Kind, Reason, Retry, TokenBucket, Verdict
from tests.conformance.flows import NONE, Flow, check, flow, in_every_colour
from tests.support.scripted import Operation, Step, Virtual, fail, ok, series

COSTS = {Kind.throttled: 5, None: 14}
SERVER = Verdict.retry(kind=Kind.server)
E, E200 = fail("500", verdict=SERVER), ok("200")


def legacy(case: str, *script: Step, attempts: int = 3, cap: float = 20, **expected: Any) -> Flow:
    backoff = Backoff.exponential(1).maximum(cap)
    return flow(
        f"aws.standard.legacy.{case}",
        *script,
        attempts=attempts,
        backoff=backoff,
        budget=TokenBucket,
        expected=expected,
    )


def v2_1(
    case: str,
    *script: Step,
    tokens: float = 500,
    attempts: int = 3,
    base: float = 0.05,
    cap: float = 20,
    **expected: Any,
) -> Flow:
    return flow(
        f"aws.standard.v2_1.{case}",
        *script,
        attempts=attempts,
        backoff={
            Kind.throttled: Backoff.exponential(1).maximum(cap),
            None: Backoff.exponential(base).maximum(cap),
        },
        budget=lambda: TokenBucket(tokens, COSTS),
        hints=Hints(over=5, spread=0),
        expected=expected,
    )


def used(tokens: float) -> TokenBucket:
    bucket = TokenBucket(500, COSTS)
    assert bucket.spend(Kind.server) == Grant(tokens)
    return bucket


ATTEMPTS, BUDGET = Reason.attempts, Reason.budget
AFTER_10 = fail("500", verdict=Verdict.retry(kind=Kind.server, after=10))
THROTTLED = fail("400", verdict=Verdict.retry(kind=Kind.throttled))
E404 = fail("404", verdict=Verdict.stop())

FLOWS = [
    legacy("retry_eventually_succeeds", E, E, E200, ok="200", quota=[495, 490, 495], sleeps=[1, 2]),
    legacy("fail_due_to_max_attempts", E, reason=ATTEMPTS, quota=[495, 490, 490], sleeps=[1, 2]),
    legacy(
        "exponential_timing",
        E,
        attempts=5,
        reason=ATTEMPTS,
        quota=[495, 490, 485, 480, 480],
        sleeps=[1, 2, 4, 8],
    ),
    legacy(
        "max_backoff_time",
        E,
        attempts=5,
        cap=3,
        reason=ATTEMPTS,
        quota=[495, 490, 485, 480, 480],
        sleeps=[1, 2, 3, 3],
    ),
    v2_1("quota_reached_after_single_retry", E, tokens=14, reason=BUDGET, quota=[0, 0], sleeps=[0.05]),
    v2_1(
        "exponential_timing",
        E,
        attempts=5,
        reason=ATTEMPTS,
        quota=[486, 472, 458, 444, 444],
        sleeps=[0.05, 0.1, 0.2, 0.4],
    ),
    v2_1(
        "max_backoff_time",
        E,
        attempts=5,
        cap=0.2,
        reason=ATTEMPTS,
        quota=[486, 472, 458, 444, 444],
        sleeps=[0.05, 0.1, 0.2, 0.2],
    ),
    v2_1("quota_left_but_not_enough", E, tokens=20, attempts=5, reason=BUDGET, quota=[6, 6], sleeps=[0.05]),
    v2_1("retry_after_clamped_to_backoff_plus_5s", AFTER_10, E200, ok="200", quota=[486, 500], sleeps=[5.05]),
    v2_1("retry_after_invalid_falls_back", E, E200, ok="200", quota=[486, 500], sleeps=[0.05]),
    v2_1("retry_after_negative_falls_back", E, E200, ok="200", quota=[486, 500], sleeps=[0.05]),
    # AWS sleeps before it raises, for long polling; here a refused retry causes no delay.
    v2_1(
        "long_polling_sleeps_before_quota_failure-deviates", E, tokens=0, reason=BUDGET, quota=[0], sleeps=[]
    ),
    v2_1(
        "long_polling_throttled_sleeps_throttle_base-deviates",
        THROTTLED,
        tokens=0,
        reason=BUDGET,
        quota=[0],
        sleeps=[],
    ),
    v2_1(
        "long_polling_max_attempts_has_no_extra_delay",
        E,
        attempts=2,
        reason=ATTEMPTS,
        quota=[486, 486],
        sleeps=[0.05],
    ),
    v2_1("long_polling_non_retryable", E404, reason=Reason.stopped, quota=[500], sleeps=[]),
    v2_1(
        "dynamodb_tuning",
        E,
        attempts=4,
        base=0.025,
        reason=ATTEMPTS,
        quota=[486, 472, 458, 458],
        sleeps=[0.025, 0.05, 0.1],
    ),
    flow(
        "aws.standard.v2_1.first_try_success_adds_one",
        E200,
        budget=lambda: used(14),
        expected={"ok": "200", "quota": [487], "tokens": 487, "sleeps": []},
    ),
]


@in_every_colour(FLOWS)
def test_tokens_and_delays_of_standard_mode(colour: str, row: Flow) -> None:
    """After every attempt."""
    check(colour, row)


def test_aws_standard_v2_1_several_invocations_share_the_quota() -> None:
    """aws.standard.v2_1.several_invocations_share_the_quota: the second call starts with 16 tokens."""
    bucket, clock, quota = TokenBucket(30, COSTS), Virtual(), list[float]()

    def note(event: object) -> None:
        quota.append(bucket.snapshot()["tokens"])

    policy = Retry(
        on=lambda _: SERVER,
        attempts=5,
        backoff=Backoff.exponential(0.05),
        budget=bucket,
        on_retry=note,
        on_success=note,
        clock=clock,
    )
    assert policy.call(Operation([E, E, E200], clock)) == "200"
    assert policy.call(Operation([E, E200], clock)) == "200"
    assert quota == [16, 2, 16, 2, 16]
    assert clock.waits == [0.05, 0.1, 0.05]


def test_aws_standard_v2_1_two_threads() -> None:
    """aws.standard.v2_1.two_threads: in every interleaving 486 tokens are left."""
    for _ in range(20):
        bucket, clock = TokenBucket(500, COSTS), Virtual()
        policy = Retry(on=lambda _: SERVER, attempts=3, backoff=NONE, budget=bucket, clock=clock)
        with ThreadPoolExecutor(2) as pool:
            scripts = [[E, E, E200], [E, E200]]
            for future in [pool.submit(policy.call, Operation(script, clock)) for script in scripts]:
                assert future.result() == "200"
        assert bucket.snapshot()["tokens"] == 486


def test_aws_backoff_series_legacy_base1() -> None:
    """aws.backoff_series.legacy_base1: the cap applies before the jitter, drawn at its highest here."""
    delays = series(Backoff.exponential(1).maximum(20).full_jitter(), 9, 1.0)
    assert delays == [1, 2, 4, 8, 16, 20, 20, 20, 20]
