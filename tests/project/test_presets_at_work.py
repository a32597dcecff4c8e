"""Calls with `redouble.presets`: the delays until each gives up, in every colour and in virtual time."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from redouble import (
    AdaptiveRate,
    Kind,
    Pipeline,
    Retry,
    RetryBudget,
    TokenBucket,
    Verdict,
    presets,
    report,
)
from redouble.errors import BulkheadFull
from redouble.testing import Script, VirtualClock, ok, virtual_time
from tests.support.failures.library_errors import error_named
from tests.support.fakes import always
from tests.support.presets import ALL, first
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


def delays(place: str, policy: Retry | Pipeline, *steps: Any) -> tuple[object, list[float]]:
    """Make a call in virtual time, and return the reason of giving up and the delays."""
    script = Script(*steps)

    def reason(error: Exception) -> object:
        found = report(error)
        return found and found.reason

    def blocking(clock: VirtualClock) -> tuple[object, list[float]]:
        try:
            policy.call(script)
        except Exception as error:
            return reason(error), clock.delays
        return None, clock.delays

    async def waiting(clock: VirtualClock) -> tuple[object, list[float]]:
        try:
            await policy.call(script.aio)
        except Exception as error:
            return reason(error), clock.delays
        return None, clock.delays

    why, waits = at(place, blocking, waiting)
    return why, [round(wait, 3) for wait in waits if wait]


class Half:
    """A random source that always returns 0.5."""

    def random(self) -> float:
        return 0.5


THROTTLED = Verdict.retry(kind=Kind.throttled)
UNSENT = Verdict.retry(sent=False)

CALLS: dict[str, tuple[str, dict[str, Any], int, tuple[object, list[float]]]] = {
    # a preset, options, the number of failures, the reason of giving up, and the delays (random source: 0.5)
    "http": ("http", {}, 9, ("attempts", [0.05, 0.1])),
    "http, hinted": ("http", {"on": always(29.0)}, 1, (None, [29.5])),
    "http, asked too much": ("http", {"on": always(31.0)}, 1, ("timeout", [])),
    "aws": ("aws_standard", {}, 9, ("attempts", [0.025, 0.05])),
    "aws, throttled": ("aws_standard", {"on": always(THROTTLED)}, 9, ("attempts", [0.5, 1.0])),
    "aws, hinted": ("aws_standard", {"on": always(60.0)}, 9, ("attempts", [5.025, 5.05])),
    "aws, adaptive": ("aws_adaptive", {}, 9, ("attempts", [0.025, 0.05])),
    "grpc": ("grpc", {}, 9, ("attempts", [0.1, 0.2, 0.4])),
    "grpc, longer": ("grpc", {"attempts": 6, "budget": None}, 9, ("attempts", [0.1, 0.2, 0.4, 0.8, 1.0])),
    "grpc, throttled": ("grpc", {"attempts": 9}, 9, ("budget", [0.1, 0.2, 0.4, 0.8])),
    "grpc, pushed back": ("grpc", {"on": always(7.0)}, 1, (None, [7.0])),
    "httpware": ("httpware", {}, 9, ("attempts", [0.05, 0.1])),
    "httpware, hinted": ("httpware", {"on": always(5.0)}, 9, ("attempts", [5.0, 5.0])),
    "httpware, asked too much": ("httpware", {"on": always(5.5)}, 9, ("hint_too_long", [])),
    "finagle": ("finagle", {}, 9, ("stopped", [])),
    "finagle, unsent": ("finagle", {"on": always(UNSENT)}, 99, ("attempts", [])),
    "finagle, unsent, soon": ("finagle", {"on": always(UNSENT)}, 20, (None, [])),
    "database": ("database", {}, 9, ("attempts", [0.025, 0.05, 0.1])),
    "polling": ("polling", {}, 3, (None, [0.75, 1.5, 3.0])),
    "llm": ("llm", {}, 9, ("attempts", [0.1, 0.2, 0.4])),
    "llm, soon": ("llm", {}, 1, (None, [0.1])),
}


@pytest.mark.parametrize("row", CALLS)
@pytest.mark.parametrize("place", PLACES)
def test_delays_and_reason_of_each_preset(place: str, row: str) -> None:
    name, options, failures, expected = CALLS[row]
    policy = ALL[name](random=Half(), **options)
    assert delays(place, policy, *["fail"] * failures, ok(3)) == expected


def test_polling_ends_when_the_result_is_accepted_or_after_five_minutes() -> None:
    """With growing delays."""
    policy = presets.polling(until=lambda state: state == "done", random=Half())
    assert delays("sync", policy, ok("new"), ok("started"), ok("done")) == (None, [0.75, 1.5])
    reason, waits = delays("sync", policy, *[ok("new")] * 99)
    assert (reason, waits[-1]) == ("timeout", 22.5)
    assert 270 < sum(waits) < 300


def test_a_budget_is_shared_by_the_calls_of_a_policy() -> None:
    """One policy limits the retries of all its calls."""
    policy = presets.aws_standard(on=Exception, attempts=2)
    reasons: list[object] = []
    for _ in range(36):
        with pytest.raises(OSError, match="x") as caught, virtual_time():
            policy.call(Script(OSError("x"), OSError("x")))
        found = report(caught.value)
        reasons.append(found and found.reason)
    assert reasons == ["attempts"] * 35 + ["budget"]  # 500 tokens, 14 per retry


# ---------------------------------------------------------------------------------- finagle

REFUSED = ConnectionRefusedError

NOT_SENT: dict[str, Callable[[], Exception]] = {
    "a refused connection": ConnectionRefusedError,
    "httpx.ConnectTimeout": lambda: error_named("httpx.ConnectTimeout"),
    "a full pool": lambda: error_named("httpx.PoolTimeout"),
    "a full bulkhead": BulkheadFull,
}
MAY_BE_PROCESSED: dict[str, Callable[[], Exception]] = {
    "a reset": ConnectionResetError,
    "a timeout": TimeoutError,
    "a read timeout": lambda: error_named("httpx.ReadTimeout"),
    "an answer": lambda: error_named("openai.APIStatusError", status_code=503),
    "a bug": KeyError,
    "a reset among refusals": lambda: ExceptionGroup("", [ConnectionRefusedError(), ConnectionResetError()]),
}


def calls(policy: Retry | Pipeline, place: str = "sync", error: Callable[[], Exception] = REFUSED) -> int:
    """Call an operation that always fails, and return the number of attempts."""
    script = Script(*[error() for _ in range(200)])
    blocking, waiting = policy(script), policy(script.aio)

    def block(_: VirtualClock) -> None:
        with suppress(Exception):
            blocking()

    async def wait(_: VirtualClock) -> None:
        with suppress(Exception):
            await waiting()

    at(place, block, wait)
    return len(script.calls)


@pytest.mark.parametrize("name", MAY_BE_PROCESSED)
@pytest.mark.parametrize("place", PLACES)
def test_finagle_does_not_requeue_what_may_have_been_processed(place: str, name: str) -> None:
    assert calls(presets.finagle(), place, MAY_BE_PROCESSED[name]) == 1


@pytest.mark.parametrize("name", NOT_SENT)
@pytest.mark.parametrize("place", PLACES)
def test_finagle_requeues_what_was_not_sent(place: str, name: str) -> None:
    assert calls(presets.finagle(), place, NOT_SENT[name]) == 21


@pytest.mark.parametrize("place", PLACES)
def test_the_requeues_of_a_call_are_a_fifth_of_the_balance(place: str) -> None:
    """Which falls with every requeue: 100, 80, 64, ... until none is left."""
    policy = presets.finagle(budget=RetryBudget(0, 0.001, 100_000, "request"))
    expected, balance = list[int](), 100
    while balance:
        most = ceil(balance / 5)
        expected.append(1 + most)
        balance -= most
    assert [calls(policy, place) for _ in expected] == expected
    assert calls(policy, place) == 1


def test_the_requeues_of_a_call_grow_with_the_requests() -> None:
    """By a fifth of each: a busy client requeues more often."""
    policy = presets.finagle()
    with virtual_time():
        for _ in range(499):
            policy.call(int)
        assert calls(policy) == 1 + 200 / 5


def test_the_balance_comes_back_when_the_window_has_passed() -> None:
    policy = presets.finagle()
    with virtual_time() as clock:
        script = Script(*[REFUSED() for _ in range(200)])
        for advance, attempts in ((0, 21), (0, 38), (11, 59)):
            clock.advance(advance)
            with pytest.raises(ConnectionRefusedError):
                policy.call(script)
            assert len(script.calls) == attempts


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        pytest.param({"attempts": 3}, 3, id="attempts"),
        pytest.param({"attempts": 50}, 21, id="more attempts"),
        pytest.param({"backoff": [0.1] * 9}, 10, id="backoff"),
        pytest.param({"backoff": [0.1] * 99}, 21, id="more backoff"),
        pytest.param({"budget": None}, 21, id="no budget"),
        pytest.param({"budget": TokenBucket(1000)}, 21, id="tokens"),
        pytest.param({"budget": RetryBudget(0, 1, 10)}, 3, id="a small budget"),
        pytest.param({"budget": RetryBudget(0, 0, 10)}, 1, id="an empty budget"),
        pytest.param({"on": OSError}, 21, id="a rule"),
    ],
)
def test_other_options_do_not_lift_the_limit_of_finagle(options: dict[str, Any], attempts: int) -> None:
    assert calls(presets.finagle(**options)) == attempts
    assert calls(replace(presets.finagle(), **options)) == attempts


def test_finagle_limits_loops_and_pickled_policies_too() -> None:
    with virtual_time():
        made = 0
        with suppress(ConnectionRefusedError):
            for attempt in presets.finagle():
                with attempt:
                    made += 1
                    raise REFUSED
        assert made == 21
    assert calls(pickle.loads(pickle.dumps(presets.finagle(budget=None)))) == 21
    assert "a fifth of what is left" in presets.finagle().describe()


# ----------------------------------------------------------------------------- aws_adaptive

SLOW_DOWN = error_named("botocore.exceptions.ClientError", response={"Error": {"Code": "SlowDown"}})


def test_aws_adaptive_has_an_adaptive_rate_inside_the_retry() -> None:
    """So that every attempt counts; the options are those of the retry."""
    one, other = presets.aws_adaptive(), presets.aws_adaptive(attempts=7)
    assert [type(layer) for layer in one.layers] == [Retry, AdaptiveRate]
    assert one.layers[1] is not other.layers[1]
    assert first(other).attempts == 7


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("name", "slows"), [("aws_standard", False), ("aws_adaptive", True)])
def test_with_aws_adaptive_throttling_slows_down_other_calls(place: str, name: str, slows: bool) -> None:
    """They wait before their first attempt."""
    policy, script = ALL[name](random=Half()), Script(SLOW_DOWN, *[ok(3)] * 9)

    def blocking(clock: VirtualClock) -> float:
        policy.call(script)
        before = clock.now()
        for _ in range(5):
            policy.call(script)
        return clock.now() - before

    async def waiting(clock: VirtualClock) -> float:
        await policy.call(script.aio)
        before = clock.now()
        for _ in range(5):
            await policy.call(script.aio)
        return clock.now() - before

    assert (at(place, blocking, waiting) > 1) is slows
    assert len(script.calls) == 7
