"""Properties of every run, for any options and any attempts."""

from __future__ import annotations

import random
from itertools import islice
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Backoff, Hints, Retry, Verdict
from redouble._engine.run import Run
from tests.support.fakes import Boom, Ledger

pytestmark = pytest.mark.one_python

SECONDS = st.floats(0, 100)
LIMIT = st.none() | SECONDS
HINTS = st.builds(
    Hints,
    mode=st.sampled_from(["at_least", "instead", "ignore"]),
    longest=LIMIT,
    over=LIMIT,
    spread=st.floats(0, 1),
)
BACKOFFS = st.one_of(
    st.lists(SECONDS, max_size=8),
    SECONDS.map(Backoff.exponential).map(lambda backoff: backoff.maximum(50).full_jitter()),
    SECONDS.map(Backoff.constant).map(Backoff.equal_jitter),
)
OPTIONS = st.fixed_dictionaries(
    {
        "attempts": st.integers(1, 8),
        "backoff": BACKOFFS,
        "hints": HINTS,
        "give_up_after": LIMIT,
        "timeout": LIMIT,
        "work_timeout": LIMIT,
    }
)
# The duration of an attempt, the deviation of its delay from the requested one, and the hint.
ATTEMPTS = st.lists(st.tuples(SECONDS, st.floats(-5, 5), st.none() | SECONDS), min_size=1, max_size=9)


def limit_of(policy: Retry) -> float:
    """Return the time at which no attempt begins any more."""
    limits: list[Any] = [policy.give_up_after, policy.timeout]
    return min((limit for limit in limits if limit is not None), default=inf)


@given(options=OPTIONS, attempts=ATTEMPTS, wait=SECONDS, seed=st.integers())
def test_every_run_keeps_its_limits(
    options: dict[str, Any], attempts: list[tuple[float, float, float | None]], wait: float, seed: int
) -> None:
    """No delay exceeds the time left, no attempt is too late or too many, and unused grants are refunded."""
    asked: list[float | None] = []
    ledger = Ledger(wait=wait)
    policy = Retry(
        **options,
        on=lambda _: Verdict.retry(after=asked[-1]),
        budget=ledger,
        random=random.Random(seed),
    )
    most: Any = inf if policy.work_timeout is None else policy.work_timeout
    run, now, limit, work = Run(policy, 0.0, attempt=0), 0.0, limit_of(policy), 0.0
    for takes, drift, hint in attempts:
        asked.append(hint)
        refusal = run.start(now)
        if refusal is not None:
            break
        assert now < limit or drift
        now = max(now, run.attempt_started) + takes
        work += takes
        delay = run.failed(Boom(), now)
        if delay is None:
            break
        assert delay >= wait
        assert now + delay < limit
        assert work < most + 1e-6
        if hint is not None and policy.hints.mode != "ignore" and policy.hints.over is None:
            assert delay >= hint
        now += max(0.0, delay + drift)
    assert policy.attempts is not None
    assert run.attempt <= policy.attempts
    spent = sum(line.startswith("spend") for line in ledger.lines)
    refunded = sum(line.startswith("refund") for line in ledger.lines)
    run.refund()
    started = max(0, run.attempt - 1)
    assert sum(line.startswith("refund") for line in ledger.lines) == spent - started
    assert refunded <= 1
    report = run.report()
    assert len(report.history) == run.attempt
    assert [record.number for record in report.history] == list(range(1, run.attempt + 1))


@given(options=OPTIONS, seed=st.integers(), draws=st.integers(1, 6))
def test_the_same_seed_gives_the_same_delays(options: dict[str, Any], seed: int, draws: int) -> None:
    def delays() -> list[float | None]:
        policy = Retry(**options, on=lambda _: 1.5, random=random.Random(seed))
        run = Run(policy, 0.0)
        return list(islice(iter(lambda: run.failed(Boom(), 0.0), None), draws))

    assert delays() == delays()
