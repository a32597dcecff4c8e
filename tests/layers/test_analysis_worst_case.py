"""The worst case of a call, in numbers."""

from __future__ import annotations

from math import inf
from typing import Literal

import pytest

from redouble import (
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Hedge,
    Hints,
    Keyed,
    Kind,
    Layer,
    Pipeline,
    RetryBudget,
    Timeout,
    TokenBucket,
    Worker,
    presets,
)
from redouble._layers.analysis import BlockingWorstCase, WorstCase
from redouble.httpx2 import Transport
from tests.support.fakes import Ledger
from tests.support.layers.analysis import plain, worst_case_of

OPEN = "for as long as your function takes"
ENDLESS = f"calls until time is up, {OPEN}"
SOFT = "without a worker no limit interrupts an attempt"


def bucket(when_empty: Literal["refuse", "wait"]) -> TokenBucket:
    return TokenBucket(refill_per_second=1, when_empty=when_empty)


class Forgetful(Layer):
    """A layer whose hook returns a new `WorstCase`."""

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return WorstCase(inner.calls, inner.seconds, inner.waiting)


class Halving(Layer):
    """A layer that calls a blocking function less often."""

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner._replace(calls=inner.calls / 2) if isinstance(inner, BlockingWorstCase) else inner


ROWS: list[tuple[Layer, str]] = [
    (Pipeline(), f"1 call, {OPEN}"),
    (Timeout(2), "1 call, 2 s"),
    (Timeout(2, worker=Worker(grace=0.5)), "1 call, 2.5 s"),
    (Timeout(2, worker=Worker(grace=0.5, limit=1, wait=3)), "1 call, 2.5 s"),
    (Timeout(2, worker=Worker("process", grace=0.5, limit=1, wait=3)), "1 call, 5.5 s"),
    (Bulkhead(1, wait=3), f"1 call, {OPEN} and 3 s of waiting"),
    (Bulkhead(1, wait=0), f"1 call, {OPEN}"),
    (Bulkhead(1, wait=None), f"1 call, {OPEN} and any amount of waiting"),
    (Bulkhead(1, wait=3) | Timeout(2), "1 call, 5 s"),
    (Timeout(2) | Bulkhead(1, wait=3), "1 call, 2 s"),
    (Timeout(2) | Bulkhead(1, wait=None), "1 call, 2 s"),
    (CircuitBreaker() | Timeout(2), "1 call, 2 s"),
    (Fallback(value=1) | Timeout(2), "1 call, 2 s"),
    # attempts and delays
    (plain(), f"3 calls, {OPEN} and 3 s of waiting"),
    (plain(attempts=1), f"1 call, {OPEN}"),
    (plain(backoff=[0, 0]), f"3 calls, {OPEN}"),
    (plain() | Timeout(2), "3 calls, 9 s"),
    (plain(attempt_timeout=2), "3 calls, 9 s"),
    (plain(attempt_timeout=2) | Timeout(1), "3 calls, 6 s"),
    (plain(attempt_timeout=2, worker=Worker(grace=1)), "3 calls, 12 s"),
    (plain(attempt_timeout=2, worker=Worker(grace=1, limit=1, wait=9)), "3 calls, 12 s"),
    (plain(attempt_timeout=2, worker=Worker("process", grace=1, limit=1, wait=9)), "3 calls, 39 s"),
    (plain(timeout=20, worker=Worker(grace=1, limit=1, wait=None)), "3 calls, 21 s"),
    (
        plain(worker=Worker(limit=1, wait=9)),
        "3 calls, for as long as your function takes and 30 s of waiting",
    ),
    (plain(timeout=2, worker=Worker(grace=1)), "3 calls, 3 s"),
    (plain(attempts=2, backoff=[2000], attempt_timeout=1000), "2 calls, 4000 s"),
    (plain() | Bulkhead(1, wait=4), f"3 calls, {OPEN} and 15 s of waiting"),
    (Bulkhead(1, wait=4) | plain(), f"3 calls, {OPEN} and 7 s of waiting"),
    (plain() | plain() | Timeout(2), "9 calls, 30 s"),
    (plain(backoff=[1]) | Timeout(2), "2 calls, 5 s"),  # a finite backoff limits the attempts
    (plain(backoff=[]) | Timeout(2), "1 call, 2 s"),
    (plain(attempts=5000, backoff=Backoff.constant(1)) | Timeout(1), "5000 calls, 9999 s"),
    # the longest random delays
    (plain(backoff=Backoff.exponential(1).full_jitter()) | Timeout(2), "3 calls, 9 s"),
    (plain(backoff=Backoff.constant(1).jitter(0.5)) | Timeout(2), "3 calls, 9 s"),
    (plain(backoff=Backoff.random(1, 3)) | Timeout(2), "3 calls, 12 s"),
    (plain(backoff=Backoff.decorrelated(1, 5)) | Timeout(2), "3 calls, 14 s"),
    # each kind has its own delays, which a call may meet in any order
    (plain(backoff={Kind.throttled: [9, 0], None: [5, 0]}) | Timeout(2), "3 calls, 20 s"),
    # limits
    (plain(give_up_after=2) | Timeout(2), "3 calls, 4 s"),
    (plain(give_up_after=2), f"3 calls, {OPEN} and 2 s of waiting"),
    (
        plain(give_up_after=2) | Bulkhead(1, wait=4),  # which waits for no longer than the call may
        f"3 calls, {OPEN} and 2 s of waiting",
    ),
    (
        plain(work_timeout=2) | Bulkhead(1, wait=4),
        f"3 calls, 5 s in async code; in blocking code {OPEN} and 5 s of waiting: {SOFT}",
    ),
    (
        plain(work_timeout=2, give_up_after=1) | Bulkhead(1, wait=None),
        f"3 calls, 3 s in async code; in blocking code {OPEN} and 1 s of waiting: {SOFT}",
    ),
    (plain(give_up_after=100) | Timeout(2), "3 calls, 9 s"),
    (plain(timeout=2), f"3 calls, 2 s in async code; in blocking code {OPEN} and 2 s of waiting: {SOFT}"),
    (plain(timeout=2, worker=Worker(grace=0)), "3 calls, 2 s"),
    (plain(timeout=2, attempt_timeout=1), "3 calls, 2 s"),  # no blocking function without a worker
    (Timeout(9) | plain(timeout=2), "3 calls, 2 s"),  # the same
    (plain(timeout=2) | Timeout(1), "3 calls, 2 s"),
    (plain(timeout=2) | Hedge(1), "6 calls, 2 s"),
    (
        Timeout(9, worker=Worker(grace=0)) | plain(timeout=2),
        f"3 calls, 2 s in async code; in blocking code 9 s: {SOFT}",
    ),
    (
        plain(timeout=4) | Timeout(2, worker=Worker(grace=0)),
        f"3 calls, 4 s in async code; in blocking code 6 s: {SOFT}",
    ),
    (
        plain(timeout=4) | plain(attempts=1, attempt_timeout=2, worker=Worker(grace=0)),
        f"3 calls, 4 s in async code; in blocking code 6 s: {SOFT}",
    ),
    (
        plain(timeout=20, give_up_after=4) | Timeout(2, worker=Worker(grace=0)),
        "3 calls, 6 s",
    ),
    (
        plain(work_timeout=3) | Timeout(2, worker=Worker(grace=0)),
        f"3 calls, 6 s in async code; in blocking code 8 s: {SOFT}",
    ),
    (
        plain(timeout=2) | Bulkhead(1, wait=4),
        f"3 calls, 2 s in async code; in blocking code {OPEN} and 2 s of waiting: {SOFT}",
    ),
    (
        Keyed(abs, lambda: plain(timeout=2)),
        f"3 calls, 2 s in async code; in blocking code {OPEN} and 2 s of waiting: {SOFT}",
    ),
    (
        plain(timeout=2) | Forgetful(),
        f"3 calls, 2 s in async code; in blocking code {OPEN} and 2 s of waiting: {SOFT}",
    ),
    (
        Halving() | plain(timeout=2),
        f"3 calls, 2 s in async code; in blocking code 1.5 calls, {OPEN} and 2 s of waiting: {SOFT}",
    ),
    (plain(timeout=100) | Timeout(2), "3 calls, 9 s"),
    (plain(work_timeout=4) | Timeout(2), "3 calls, 7 s"),
    (
        plain(work_timeout=4),
        f"3 calls, 7 s in async code; in blocking code {OPEN} and 3 s of waiting: {SOFT}",
    ),
    (Timeout(5) | plain() | Timeout(2), "3 calls, 5 s"),
    (
        plain(attempts=None, give_up_after=9),
        f"{ENDLESS} and 9 s of waiting",
    ),
    (plain(attempts=None, give_up_after=9) | Timeout(2), "calls until time is up, 11 s"),
    (
        plain(attempts=None, timeout=9),
        f"calls until time is up, 9 s in async code; in blocking code {OPEN} and 9 s of waiting: {SOFT}",
    ),
    (
        plain() | plain(attempts=None, timeout=9),
        f"calls until time is up, 30 s in async code; in blocking code {OPEN} and 30 s of waiting: {SOFT}",
    ),
    # waits that the server, or a budget, may request
    (plain(hints=Hints()), f"3 calls, {OPEN} and any amount of waiting"),
    (plain(hints=Hints(), give_up_after=9) | Timeout(2), "3 calls, 11 s"),
    (plain(hints=Hints(longest=10, spread=0)) | Timeout(2), "3 calls, 26 s"),
    (plain(hints=Hints(longest=10, spread=0.1)) | Timeout(2), "3 calls, 28 s"),
    (plain(hints=Hints(longest=1.5, spread=0)) | Timeout(2), "3 calls, 9.5 s"),
    (plain(hints=Hints(over=5)) | Timeout(2), "3 calls, 19 s"),
    (plain(hints=Hints(mode="instead", longest=10, spread=0)) | Timeout(2), "3 calls, 26 s"),
    (plain(hints=Hints(mode="instead", longest=0)) | Timeout(2), "3 calls, 9 s"),
    (plain(budget=RetryBudget()) | Timeout(2), "3 calls, 9 s"),
    (plain(budget=bucket("refuse")) | Timeout(2), "3 calls, 9 s"),
    (
        plain(budget=bucket("wait"), timeout=50),
        f"3 calls, 50 s in async code; in blocking code {OPEN} and 50 s of waiting: {SOFT}",
    ),
    (
        plain(budget=bucket("wait")),
        f"3 calls, {OPEN} and any amount of waiting",
    ),
    (plain(budget=Ledger()), f"3 calls, {OPEN} and any amount of waiting"),
    (presets.aws_standard() | Timeout(2), "3 calls, 19 s"),
    (presets.httpware() | Timeout(2), "3 calls, 16 s"),
    (
        presets.llm(),
        f"4 calls, 30 s in async code; in blocking code {OPEN} and 30 s of waiting: {SOFT}",
    ),
]


@pytest.mark.parametrize(("layer", "worst"), ROWS)
def test_the_summary_of_the_worst_case(layer: Layer, worst: str) -> None:
    assert Pipeline(layer).explain().splitlines()[-1] == f"at worst: {worst}"


def test_a_client_keeps_the_limits_of_its_policy_in_blocking_code_too() -> None:
    pipeline = Pipeline(plain(timeout=3, attempt_timeout=None))
    assert SOFT in pipeline.explain()
    Transport(pipeline)
    assert pipeline.explain().splitlines()[-1] == "at worst: 3 calls, 3 s"


def test_the_worst_case_as_numbers() -> None:
    """A user's own budget may ask for any wait."""
    assert worst_case_of(plain() | Bulkhead(1, wait=4) | Timeout(2)) == WorstCase(3, 21, 15)
    assert worst_case_of(Pipeline(plain(budget=Ledger(wait=99)))) == WorstCase(3, inf, inf)
    assert worst_case_of(Pipeline()) == WorstCase(1, inf, 0)
