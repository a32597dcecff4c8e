"""Reconfiguring what many calls share: the settings change while calls run, and the state stays."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from redouble import SYSTEM, Bulkhead, CircuitBreaker, Grant, RateLimit, RetryBudget, TokenBucket, errors
from redouble._engine.budgets.retry_budget import HostBudgets
from redouble.testing import virtual_time
from tests.support.bulkhead_callers import A_MINUTE, callers, until
from tests.support.fakes import COLOURS, Boom, in_colour, nothing


def spent(budget: Any, times: int) -> int:
    """Spend this many times; return how often a retry was granted."""
    return sum(budget.spend() is not None for _ in range(times))


ROWS: list[tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = [
    (RetryBudget, {}, {"ratio": 0.5, "per_second": 1, "window": 60}),
    (RetryBudget, {"window": 60}, {"credit": "request"}),
    (HostBudgets, {}, {"ratio": 0.5, "window": 20}),
    (TokenBucket, {}, {"capacity": 10, "costs": {None: 1}, "success_increment": 2}),
    (TokenBucket, {"capacity": 10}, {"refill_per_second": 5, "when_empty": "wait"}),
    (TokenBucket.grpc, {}, {"tokens": 100, "ratio": 1}),
    (CircuitBreaker, {}, {"failures": 2, "cooldown": 3}),
    (CircuitBreaker, {"failures": 2}, {"ratio": 0.5, "window": 3, "minimum": 1, "slow": 2}),
    (Bulkhead, {"limit": 2}, {"limit": 3, "wait": None, "queue": 7}),
    (RateLimit, {"rate": 2}, {"rate": 3, "per": 60, "burst": 4, "wait": 1}),
    (RateLimit, {"rate": 2, "following": True}, {"rate": 2}),
]
THINGS = pytest.mark.parametrize(("make", "before", "after"), ROWS, ids=lambda x: getattr(x, "__name__", ""))


def described(thing: Any) -> object:
    """Return the repr, and the settings if there are any."""
    return repr(thing), getattr(thing, "settings", None)


@THINGS
def test_all_settings_are_replaced(
    make: Callable[..., Any], before: dict[str, Any], after: dict[str, Any]
) -> None:
    thing, other = make(**before), make(**after)
    assert described(thing) != described(other)
    thing.reconfigure(other)
    assert described(thing) == described(other)
    thing.reconfigure(other)
    assert described(thing) == described(other)


@THINGS
def test_its_name_stays(make: Callable[..., Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    thing = make(**before, name="shared")
    assert "name='shared'" in repr(thing)
    thing.reconfigure(make(**after, name="another"))
    assert thing.name == getattr(thing, "settings", thing).name == "shared"
    assert "name='shared'" in repr(thing)


@pytest.mark.parametrize("make", [RetryBudget, TokenBucket, TokenBucket.grpc])
def test_a_name_that_is_not_a_string_is_reported(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"name=5: write a text, or None"):
        make(name=5)
    assert make().name is None


# -------------------------------------------------------------------------------- buckets


def test_tokens_stay() -> None:
    bucket = TokenBucket(100)
    assert spent(bucket, 4) == 4
    bucket.reconfigure(TokenBucket(50, {None: 1}))
    assert bucket.snapshot() == {"tokens": 50, "owed": 0, "capacity": 50}
    assert spent(bucket, 50) == 50
    bucket.reconfigure(TokenBucket(500, {None: 1}))
    assert spent(bucket, 1) == 0, "the capacity grows, and brings no tokens"
    bucket.credit(Grant(30))
    assert bucket.snapshot()["tokens"] == 30


def test_tokens_refilled_so_far_stay() -> None:
    with virtual_time() as clock:
        bucket = TokenBucket(100, {None: 100}, refill_per_second=10)
        assert spent(bucket, 1) == 1
        clock.advance(4)
        bucket.reconfigure(TokenBucket(100, {None: 60}, refill_per_second=1))
        assert bucket.snapshot()["tokens"] == 40
        clock.advance(20)
        assert spent(bucket, 2) == 1
        bucket.reconfigure(TokenBucket(100, {None: 1}))
        clock.advance(100)
        assert spent(bucket, 1) == 0
        bucket.reconfigure(TokenBucket(100, {None: 5}, refill_per_second=2, when_empty="wait"))
        clock.advance(2)
        assert bucket.spend() == Grant(5, 0.5)


def test_a_grpc_bucket_keeps_its_share_of_tokens() -> None:
    """As in gRPC, when a service config changes."""
    bucket = TokenBucket.grpc(10, 0.1)
    for _ in range(4):
        bucket.failed()
    bucket.reconfigure(TokenBucket.grpc(100, 1))
    assert bucket.snapshot() == {"tokens": 60, "capacity": 100, "above": 50}


# ------------------------------------------------------------------------------ bulkheads


def test_a_bulkhead_that_grows_admits_its_waiters() -> None:
    with callers(Bulkhead(1, None)) as group:
        all_callers = [group.start(colour) for colour in COLOURS]
        group.gate.reconfigure(Bulkhead(3, None))
        until(lambda: len(group.admitted) == 3)
        assert set(group.admitted) == {caller.name for caller in all_callers[:3]}
        assert group.used() == (3, 2)


def test_a_bulkhead_that_shrinks_admits_no_call_until_enough_have_ended() -> None:
    with callers(Bulkhead(3, None)) as group:
        first, second, third, _ = [group.start(colour) for colour in COLOURS[:4]]
        group.gate.reconfigure(Bulkhead(1, 0))
        for caller in (first, second):
            caller.finish()
            assert len(group.admitted) == 3
        assert isinstance(group.start("sync").error, errors.BulkheadFull)
        third.finish()
        until(lambda: len(group.admitted) == 4)
        assert group.used() == (1, 0)


def test_functions_decorated_before_use_the_new_limit() -> None:
    gate = Bulkhead(1, 0)

    @gate
    def deep(levels: int) -> int:
        return levels if levels == 1 else deep(levels - 1)

    for limit in (1, 3, 2):
        gate.reconfigure(Bulkhead(limit, 0))
        assert deep(limit) == 1
        with pytest.raises(errors.BulkheadFull, match=f"{limit} calls? (is|are) in flight") as raised:
            deep(limit + 1)
        assert raised.value.limit == limit
    assert gate.snapshot() == {"limit": 2, "in_use": 0, "queued": 0}


def test_a_bulkhead_that_did_not_wait_waits_now() -> None:
    gate = Bulkhead(1, 0)

    @gate
    def waits() -> str:
        return "in"

    gate.reconfigure(Bulkhead(1, 5, 1))
    ticket = gate.admit(0)
    with virtual_time() as clock:
        with pytest.raises(errors.BulkheadFull, match=r"no slot came free within 5 s"):
            waits()
        assert clock.now() >= 5
    gate.ended(ticket, None, 0)
    assert (gate.wait, gate.queue, waits()) == (5, 1, "in")


# ---------------------------------------------------------------------------- rate limits


@pytest.mark.parametrize(
    ("before", "used", "after", "passed"),
    [
        ({"rate": 1, "per": 3600}, 1, {"rate": 10}, [0.1, 0.2, 0.3]),
        ({"rate": 10}, 1, {"rate": 1, "per": 60}, [60, 120]),
        ({"rate": 1, "burst": 4}, 3, {"rate": 1, "burst": 4}, [0, 1, 2]),
        ({"rate": 1, "burst": 4}, 3, {"rate": 2, "burst": 5}, [0, 0, 0.5, 1]),
        ({"rate": 1, "burst": 4}, 3, {"rate": 2, "burst": 2}, [0.5, 1]),
        ({"rate": 1, "burst": 4}, 0, {"rate": 2, "burst": 2}, [0, 0, 0.5, 1]),
        ({"rate": 1}, 0, {"rate": 2, "burst": 3}, [0, 0, 0, 0.5, 1]),
    ],
)
def test_the_used_part_of_a_burst_stays_used(
    before: dict[str, Any], used: int, after: dict[str, Any], passed: list[float]
) -> None:
    gate = RateLimit(**before)
    times: list[float] = []
    with virtual_time() as clock:

        @gate
        def take() -> None:
            times.append(clock.now())

        for _ in range(used):
            take()
        began = clock.now()
        gate.reconfigure(RateLimit(**after))
        for _ in passed:
            take()
        assert [round(time - began, 6) for time in times[used:]] == passed


def test_a_requested_pause_stays() -> None:
    gate = RateLimit(1, wait=0)
    with virtual_time() as clock:
        gate.follow({"Retry-After": "30"})
        gate.reconfigure(RateLimit(100, burst=10))
        gate.call(Boom)
        assert clock.now() >= 30


def test_waiters_use_the_new_rate() -> None:
    """The head of the queue checks again; the others when they become the head."""
    gate, passed = RateLimit(1, per=10_000), list[str]()
    gate.admit(SYSTEM.now())

    def make_call(colour: str) -> None:
        async def waiting() -> None:
            await gate.call(nothing)

        in_colour(colour, lambda: gate.call(Boom), waiting)
        passed.append(colour)

    threads = [Thread(target=make_call, args=[colour], daemon=True) for colour in COLOURS]
    for thread in threads:
        thread.start()
    until(lambda: gate.snapshot()["queued"] == len(COLOURS))
    gate.reconfigure(RateLimit(1000))
    for thread in threads:
        thread.join(A_MINUTE)
    assert sorted(passed) == sorted(COLOURS)
