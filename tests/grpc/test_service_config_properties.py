"""Properties of exports: they never fail, gRPC accepts the document, and `lost` names the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Backoff, Hints, Kind, Retry, RetryBudget, Timeout, TokenBucket
from redouble.grpc._service_config_export import CODES, MAX_DURATION, service_config
from tests.support.grpc.policies import native

pytestmark = pytest.mark.one_python

SECONDS = st.one_of(
    st.floats(0, 10), st.floats(0, allow_infinity=False), st.sampled_from([0.0, 1e-9, 0.002, 1e308])
)
FACTORS = st.one_of(st.floats(1, 10), st.floats(1, allow_infinity=False))
STAGES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["minimum", "maximum"]), SECONDS),
        st.tuples(st.just("jitter"), st.floats(0, 1)),
        st.tuples(st.just("take"), st.integers(0, 7)),
        st.sampled_from([("full_jitter",), ("equal_jitter",)]),
    ),
    max_size=3,
)


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    low, high = sorted((draw(SECONDS), draw(SECONDS)))
    backoff = draw(
        st.sampled_from(
            [
                Backoff.constant(high),
                Backoff.linear(low, high),
                Backoff.exponential(low, draw(FACTORS)),
                Backoff.random(low, high),
                Backoff.decorrelated(low, high),
                Backoff.fibonacci(low),
                Backoff.of([high, low]),
                Backoff.of(draw(st.lists(SECONDS, max_size=6))),
            ]
        )
    )
    for stage, *bounds in draw(STAGES):
        backoff = getattr(backoff, stage)(*bounds)
    return backoff


def broken(error: Exception) -> bool:
    raise LookupError(error)


LIMITS = st.none() | SECONDS
POLICIES = st.builds(
    Retry,
    attempts=st.integers(1, 12),
    backoff=backoffs() | st.fixed_dictionaries({None: backoffs(), Kind.throttled: backoffs()}),
    give_up_after=LIMITS,
    timeout=LIMITS,
    work_timeout=LIMITS,
    attempt_timeout=st.none() | st.floats(0.001, 1e9),
    hints=st.builds(
        Hints, st.sampled_from(["at_least", "instead", "ignore"]), LIMITS, LIMITS, st.floats(0, 1)
    ),
    budget=st.none()
    | st.builds(RetryBudget)
    | st.builds(TokenBucket.grpc, st.floats(1, 1000), st.floats(0.001, 1000)),
    on=st.sampled_from([OSError, Exception, broken]),
)


def in_seconds(duration: str) -> float:
    assert re.fullmatch(r"[0-9]+(\.[0-9]{1,9})?s", duration)
    return float(duration[:-1])


def checked(method: Mapping[str, Any]) -> None:
    """Check a method config against the documented rules of gRPC's clients."""
    if "timeout" in method:
        assert 0.001 <= in_seconds(method["timeout"]) <= MAX_DURATION
    if "retryPolicy" in method:
        policy = method["retryPolicy"]
        assert 2 <= policy["maxAttempts"] <= 5
        assert (
            0.002 <= in_seconds(policy["initialBackoff"]) <= in_seconds(policy["maxBackoff"]) <= MAX_DURATION
        )
        assert 0 < policy["backoffMultiplier"] < 1e15
        assert policy["retryableStatusCodes"]
        assert set(policy["retryableStatusCodes"]) <= set(CODES)


@settings(max_examples=50)
@given(policy=POLICIES, outer=st.none() | st.floats(0.001, 1e9))
def test_an_export_is_always_a_document_that_grpc_accepts(policy: Retry, outer: float | None) -> None:
    config = service_config(policy if outer is None else Timeout(outer) | policy)
    (method,) = config.mapping["methodConfig"]
    checked(method)
    throttling = config.mapping.get("retryThrottling")
    if throttling is not None:
        assert isinstance(throttling["maxTokens"], int)
        assert 1 <= throttling["maxTokens"] <= 1000
        assert 0.001 <= throttling["tokenRatio"] <= 1000
    assert all("\n" not in sentence and sentence[-1] not in ".," for sentence in config.lost)


class Middle:
    """A random source that always returns 0.5."""

    def random(self) -> float:
        return 0.5


@settings(max_examples=50)
@given(backoff=backoffs(), attempts=st.integers(2, 5))
def test_delays_that_are_not_lost_are_equal(backoff: Backoff, attempts: int) -> None:
    config = service_config(native(backoff=backoff, attempts=attempts))
    policy = config.mapping["methodConfig"][0].get("retryPolicy")
    if policy is None or config.lost:
        return
    delay, longest = in_seconds(policy["initialBackoff"]), in_seconds(policy["maxBackoff"])
    ours = list(islice(backoff.delays(Middle()), attempts - 1))
    assert len(ours) == policy["maxAttempts"] - 1
    for step, mine in enumerate(ours):
        theirs = min(delay * policy["backoffMultiplier"] ** step, longest)
        assert abs(theirs - mine) <= 1e-5 * max(mine, 1)
