"""Token buckets without calls: those of botocore, smithy-kotlin and smithy-python.

A script uses the words of the facts. In smithy a first attempt takes tokens; here first attempts are free,
and a retry takes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from redouble import Backoff, Grant, Kind, TokenBucket, presets
from redouble.testing import virtual_time
from tests.conformance.flows import EVERY, check, flow
from tests.support.scripted import fail, ok

BY_SIZE = {Kind.server: 49.0, Kind.client: 10.0, None: 5.0}
Y2026 = {Kind.throttled: 5, None: 14}


@dataclass
class Acquire:
    """A retry requests its tokens; the expected wait (None if it is refused) and the tokens left."""

    waits: float | None
    left: float
    kind: Kind = Kind.unknown


@dataclass
class Release:
    """A success, after a retry of this cost or after none; the tokens left."""

    cost: float | None
    left: float


@dataclass
class Failed:
    """A failed attempt without a retry; the tokens left."""

    left: float


@dataclass
class Advance:
    """Time that passes."""

    seconds: float


Step: TypeAlias = Acquire | Release | Failed | Advance


def smithy(cost: float, *, success: float = 1, refill: float = 10) -> TokenBucket:
    return TokenBucket(10, {None: cost}, success, refill, when_empty="wait")


def run(bucket: TokenBucket, script: Sequence[Step]) -> None:
    """Run a script and compare the tokens left; a retry with a wait waits first."""
    now = 100.0
    for step in script:
        match step:
            case Acquire(waits):
                grant = bucket.spend(step.kind, now)
                assert (None if grant is None else grant.wait) == waits
                now += waits or 0
            case Release(cost):
                bucket.credit(None if cost is None else Grant(cost), now)
            case Failed():
                bucket.failed(Kind.unknown, now)
            case Advance(seconds):
                now += seconds
                continue
        assert bucket.snapshot(now)["tokens"] == step.left


@pytest.mark.parametrize(
    ("make", "script"),
    [
        pytest.param(
            lambda: TokenBucket(50, BY_SIZE),
            [Acquire(0, 45), Release(10, 50)],
            id="aws.quota_unit.release_capped_at_max",
        ),
        pytest.param(
            lambda: TokenBucket(50, BY_SIZE),
            [Acquire(0, 1, Kind.server), Acquire(None, 1, Kind.client)],
            id="aws.quota_unit.acquire_fails_without_partial_take",
        ),
        pytest.param(
            lambda: TokenBucket(27.5, Y2026),
            [Acquire(0, 13.5), Acquire(None, 13.5)],
            id="aws.quota_unit.half_a_token_short",
        ),
        pytest.param(lambda: smithy(10), [Acquire(0, 0), Acquire(1, 0)], id="KT-BKT-02"),
        pytest.param(
            lambda: smithy(10),
            [Acquire(0, 0), Acquire(1, 0)],
            id="ratelimit.smithy_token_bucket.wait_until_refilled",
        ),
        pytest.param(lambda: smithy(5, success=3), [Acquire(0, 5), Release(None, 8)], id="KT-BKT-03"),
        pytest.param(lambda: smithy(1), [Acquire(0, 9), Failed(9)], id="KT-BKT-04"),
        # smithy counts whole tokens, and waits for whole seconds.
        pytest.param(
            lambda: smithy(5), [Acquire(0, 5), Advance(0.25), Acquire(0, 2.5)], id="KT-BKT-05-deviates"
        ),
        pytest.param(lambda: smithy(10, refill=4), [Acquire(0, 0), Acquire(2.5, 0)], id="KT-BKT-07-deviates"),
        pytest.param(
            lambda: TokenBucket(28, Y2026),
            [
                Acquire(0, 14),
                Release(None, 15),
                Release(50, 28),
                Acquire(0, 23, Kind.throttled),
                Release(5, 28),
                Acquire(0, 14),
                Acquire(0, 0),
                Acquire(None, 0),
            ],
            id="PY-Q-01",
        ),
    ],
)
def test_tokens_and_waits_of_a_bucket(make: Callable[[], TokenBucket], script: Sequence[Step]) -> None:
    """For retries, successes and failures."""
    run(make(), script)


@pytest.mark.parametrize(
    ("make", "kind", "cost"),
    [
        pytest.param(TokenBucket, Kind.throttled, 10, id="KT-BKT-01.legacy-throttling"),
        pytest.param(TokenBucket, Kind.timeout, 10, id="KT-BKT-01.legacy-transient"),
        # smithy also counts a lost connection as transient; in botocore only a timeout costs 10.
        pytest.param(TokenBucket, Kind.network, 5, id="KT-BKT-01.legacy-transient-deviates"),
        pytest.param(TokenBucket, Kind.server, 5, id="KT-BKT-01.legacy-server"),
        pytest.param(TokenBucket, Kind.client, 5, id="KT-BKT-01.legacy-client"),
        pytest.param(
            lambda: presets.aws_standard().budget, Kind.throttled, 5, id="KT-BKT-01.2026-throttling"
        ),
        pytest.param(lambda: presets.aws_standard().budget, Kind.timeout, 14, id="KT-BKT-01.2026-transient"),
        pytest.param(lambda: presets.aws_standard().budget, Kind.server, 14, id="KT-BKT-01.2026-server"),
        pytest.param(lambda: presets.aws_standard().budget, Kind.client, 14, id="KT-BKT-01.2026-client"),
    ],
)
def test_kt_bkt_01_the_cost_of_a_retry(make: Callable[[], object], kind: Kind, cost: float) -> None:
    """KT-BKT-01: 500 tokens, a cost by kind of failure, no cost for a call, and one token for a success."""
    budget = make()
    assert isinstance(budget, TokenBucket)
    assert (budget.capacity, budget.success_increment, budget.refill_per_second) == (500, 1, 0)
    budget.start(0.0)
    assert budget.spend(kind, 0.0) == Grant(cost)
    assert budget.snapshot()["tokens"] == 500 - cost


def test_kt_bkt_08_waiting_without_a_refill_deviates() -> None:
    """KT-BKT-08: smithy refuses instead, depending on the order of the two options; here it raises."""
    with pytest.raises(ValueError, match="would wait for ever"):
        TokenBucket(refill_per_second=0, when_empty="wait")


@pytest.mark.parametrize("colour", EVERY)
def test_ratelimit_smithy_token_bucket_in_a_call(colour: str) -> None:
    """ratelimit.smithy_token_bucket: the second retry is granted at once, with a delay of one second."""
    row = flow(
        "",
        fail(),
        fail(),
        ok(),
        backoff=Backoff.constant(0),
        budget=lambda: smithy(10),
        expected={"ok": "ok", "sleeps": [1], "tokens": 10},
    )
    check(colour, row)


def test_ratelimit_smithy_token_bucket_never_sleeps_itself() -> None:
    """ratelimit.smithy_token_bucket: a grant contains its wait, and others are granted meanwhile."""
    with virtual_time() as clock:
        bucket = smithy(10)
        waits = [grant and grant.wait for grant in [bucket.spend() for _ in range(3)]]
        assert waits == [0, 1, 2]
        assert (clock.now(), clock.delays) == (0, [])
