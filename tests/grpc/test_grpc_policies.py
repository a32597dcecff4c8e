"""The policy of a gRPC channel: any layer or pipeline, by value or by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pytest

import redouble.grpc
from redouble import (
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Hedge,
    Layer,
    Retry,
    RetryBudget,
    Timeout,
    TokenBucket,
    config,
    policies,
)
from redouble.config import _reload as _live
from redouble.errors import BulkheadFull, CircuitOpen, ConfigError
from redouble.grpc._channel_policy import CANCELLABLE
from redouble.testing import attempts, no_retries
from tests.support.grpc.calls import (
    ALL,
    ONE,
    SHAPES,
    STREAMS,
    achannel_of,
    channel_of,
    make_call,
    request_of,
    retry,
    stub_of,
    summary_of,
)
from tests.support.grpc.server import Server

MAKE = pytest.mark.parametrize("make", [redouble.grpc.interceptors, redouble.grpc.aio_interceptors])


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live, "LIVE", _live.ConfigStore())


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(retry(attempts=2), id="alone"),
        pytest.param(Bulkhead(9) | retry(attempts=2) | CircuitBreaker(failures=9), id="gates"),
        pytest.param(Timeout(60) | retry(attempts=2) | Timeout(50), id="limits"),
        pytest.param(retry(attempts=2) | retry(attempts=1, nested="allow"), id="nested"),
        pytest.param(Fallback(value=b"x", on=ValueError) | retry(attempts=2), id="a fallback for others"),
    ],
)
@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_any_layer_or_pipeline_is_accepted(remote: Server, colour: str, shape: str, policy: Layer) -> None:
    assert summary_of(make_call(remote, colour, shape, "UNAVAILABLE, a OK", policy))[:3] == (b"a", "OK", 2)
    seen = make_call(remote, colour, shape, "UNAVAILABLE", policy)
    assert (seen.code, len(seen.attempts), seen.error.details()) == ("UNAVAILABLE", 2, "as the script says")


@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[1] in ONE])
def test_a_gate_counts_statuses_and_refused_responses(remote: Server, colour: str, shape: str) -> None:
    """A status but OK is an error without more, and ``until`` judges the message."""
    breaker = CircuitBreaker(until=b"a".__eq__, failures=3)
    for script, code, state in (
        ("a OK", "OK", "closed"),
        ("b OK", "OK", "closed"),
        ("UNAVAILABLE", "UNAVAILABLE", "closed"),
        ("b OK", "OK", "open"),
    ):
        assert make_call(remote, colour, shape, script, retry(attempts=1) | breaker).code == code
        assert breaker.state == state


@pytest.mark.parametrize(("colour", "shape"), STREAMS)
def test_a_gate_that_judges_results_is_refused_for_streams(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "a OK", retry() | CircuitBreaker(until=bool))
    assert "until= judges one response" in str(seen.error)
    assert seen.attempts == []


@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[1] in ONE])
def test_the_value_of_a_fallback_is_the_response(remote: Server, colour: str, shape: str) -> None:
    policy = Fallback(value=b"x", on=grpc.RpcError) | retry(attempts=2)
    assert summary_of(make_call(remote, colour, shape, "UNAVAILABLE", policy)) == (b"x", "OK", 2, None)


@pytest.mark.parametrize("shape", ONE)
def test_the_call_object_of_a_fallback(remote: Server, shape: str) -> None:
    policy = Fallback(value=b"x", on=grpc.RpcError) | retry(attempts=1)
    _, metadata = remote.script("UNAVAILABLE")
    response, call = stub_of(channel_of(remote, policy), shape).with_call(
        request_of(shape), metadata=metadata
    )
    assert (response, call.code(), call.details()) == (b"x", grpc.StatusCode.OK, "")
    assert (call.initial_metadata(), call.trailing_metadata(), call.time_remaining()) == ((), (), None)
    assert (call.done(), call.running(), call.cancelled(), call.is_active()) == (True, False, False, False)
    assert (call.cancel(), call.exception(), call.traceback(), call.add_callback(print)) == (
        False,
        None,
        None,
        False,
    )
    called: list[object] = []
    call.add_done_callback(called.append)
    assert called == [call]


@pytest.mark.parametrize("shape", ONE)
def test_the_call_object_is_that_of_the_last_attempt(remote: Server, shape: str) -> None:
    _, metadata = remote.script("UNAVAILABLE, head a @7 OK")
    response, call = stub_of(channel_of(remote, retry()), shape).with_call(
        request_of(shape), metadata=metadata
    )
    assert (response, call.code()) == (b"a", grpc.StatusCode.OK)
    assert call.initial_metadata() == (("head", "1"),)
    assert call.trailing_metadata() == (("grpc-retry-pushback-ms", "7"),)


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_an_open_breaker_rejects_before_anything_is_sent(remote: Server, colour: str, shape: str) -> None:
    breaker = CircuitBreaker(failures=2)
    policy = breaker | retry(attempts=1)
    assert make_call(remote, colour, shape, "UNAVAILABLE", policy).code == "UNAVAILABLE"
    assert make_call(remote, colour, shape, "UNAVAILABLE", policy).code == "UNAVAILABLE"
    seen = make_call(remote, colour, shape, "a OK", policy)
    assert (type(seen.error), seen.attempts) == (CircuitOpen, [])


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_breaker_inside_admits_each_attempt(remote: Server, colour: str, shape: str) -> None:
    breaker = CircuitBreaker(failures=2)
    seen = make_call(remote, colour, shape, "UNAVAILABLE", retry(attempts=3) | breaker)
    assert (type(seen.error), len(seen.attempts)) == (CircuitOpen, 2)


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_bulkhead_gets_its_slot_back_after_each_call(remote: Server, colour: str, shape: str) -> None:
    bulkhead = Bulkhead(1, wait=0)
    for script in ("a OK", "NOT_FOUND", "a OK"):
        make_call(remote, colour, shape, script, bulkhead | retry())
    with bulkhead:
        assert type(make_call(remote, colour, shape, "a OK", bulkhead | retry()).error) is BulkheadFull


# -------------------------------------------------------------------------- throttling


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_tokens_are_shared_by_all_calls_of_a_policy(remote: Server, colour: str, shape: str) -> None:
    bucket = TokenBucket.grpc(4, 0.5)
    policy = retry(budget=bucket)
    assert summary_of(make_call(remote, colour, shape, "UNAVAILABLE, a OK", policy)) == (b"a", "OK", 2, None)
    assert bucket.snapshot()["tokens"] == 3.5
    assert summary_of(make_call(remote, colour, shape, "NOT_FOUND", policy))[1:] == (
        "NOT_FOUND",
        1,
        "stopped",
    )
    assert bucket.snapshot()["tokens"] == 3.5
    assert summary_of(make_call(remote, colour, shape, "UNAVAILABLE", policy))[1:] == (
        "UNAVAILABLE",
        2,
        "budget",
    )
    assert bucket.snapshot()["tokens"] == 1.5


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_budget_counts_calls_and_retries_in_flight(remote: Server, colour: str, shape: str) -> None:
    """One attempt at a time, and nothing when the call is over."""
    budget, seen = RetryBudget(None, max_in_flight=0.5, minimum=1), list[object]()

    def look(_: object) -> None:
        counts = budget.snapshot()
        seen.append((counts["calls_in_flight"], counts["retries_in_flight"]))

    policy = retry(budget=budget, before_attempt=look)
    assert make_call(remote, colour, shape, "UNAVAILABLE, UNAVAILABLE, a OK", policy).code == "OK"
    assert make_call(remote, colour, shape, "NOT_FOUND", policy).code == "NOT_FOUND"
    look(None)
    assert seen == [(1, 0), (1, 1), (1, 1), (1, 0), (0, 0)]


@MAKE
def test_each_channel_has_its_own_tokens(make: Callable[[], Sequence[Any]]) -> None:
    """Each call of `interceptors` without a policy creates a policy."""
    first, second = make()[0]._binding.current, make()[0]._binding.current
    assert first._layers[0].budget is not second._layers[0].budget
    assert len({id(interceptor._binding.current) for interceptor in make()}) == 1


# ------------------------------------------------------------------------------- by name


def load(**options: object) -> None:
    config.load({"policies": {"orders": {"backoff": ["0s"] * 9, **options}}}, environ=None)


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_policy_may_be_given_by_name(remote: Server, colour: str, shape: str) -> None:
    load(attempts=2)
    seen = make_call(remote, colour, shape, "UNAVAILABLE", policies("orders"))
    assert (seen.code, len(seen.attempts), seen.report.name) == ("UNAVAILABLE", 2, "orders")


def test_a_channel_follows_reloads_of_its_named_policy(remote: Server) -> None:
    stub = stub_of(channel_of(remote, policies("orders")), "unary")
    with pytest.raises(ConfigError, match="no configuration is loaded yet"):
        stub(b"one")
    for most in (2, 3):
        load(attempts=most)
        known, metadata = remote.script("UNAVAILABLE")
        with pytest.raises(grpc.RpcError):
            stub(b"one", metadata=metadata)
        assert len(known.attempts) == most


def test_an_async_channel_follows_reloads_of_its_named_policy(remote: Server) -> None:
    async def main() -> None:
        async with achannel_of(remote, policies("orders")) as channel:
            for shape in SHAPES:
                with pytest.raises(ConfigError, match="no configuration is loaded yet"):
                    call = stub_of(channel, shape)(request_of(shape))
                    await (call if shape in ONE else call.read())
            load(attempts=2)
            known, metadata = remote.script("UNAVAILABLE")
            with pytest.raises(grpc.RpcError):
                await stub_of(channel, "unary")(b"one", metadata=metadata)
            assert len(known.attempts) == 2

    asyncio.run(main())


@MAKE
def test_a_configuration_that_a_channel_cannot_use_is_invalid(make: Any) -> None:
    load(attempts=2)
    ours = make(policies("orders"))
    hedged = {"pipelines": {"orders": {"layers": [{"type": "hedge", "delay": 1}]}}}
    with pytest.raises(ConfigError, match=r"cannot be applied to redouble\.grpc, which uses it"):
        config.load(hedged, environ=None)
    assert ours  # still referenced: a configuration is not validated for a channel that was freed


# ------------------------------------------------------------------------------ mistakes


@MAKE
def test_a_name_inside_a_pipeline_is_refused(make: Any) -> None:
    with pytest.raises(TypeError, match="name the whole pipeline"):
        make(Timeout(1) | policies("orders"))


@MAKE
@pytest.mark.parametrize(
    ("policy", "error", "words"),
    [
        (Hedge(0.1), TypeError, "has a Hedge, and the attempts of a client share one request"),
        (retry() | Hedge(0.1), TypeError, r"hedge the call instead, as in Hedge\(0.1\)\("),
        (Retry, TypeError, r"is no layer: write Retry\(\)"),
        (5, TypeError, "write a redouble.Retry or a pipeline"),
    ],
)
def test_a_wrong_policy_raises_at_once(make: Any, policy: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make(policy)


@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] in ("sync", "aio")])
def test_no_retries_and_attempts_of_the_testing_module_apply(remote: Server, colour: str, shape: str) -> None:
    with no_retries():
        assert len(make_call(remote, colour, shape, "UNAVAILABLE", retry()).attempts) == 1
    with attempts(2):
        assert len(make_call(remote, colour, shape, "UNAVAILABLE", retry()).attempts) == 2


def test_the_cancellable_clock_is_the_system_clock() -> None:
    assert repr(CANCELLABLE) == repr(redouble.SYSTEM)
    assert CANCELLABLE.now() <= redouble.SYSTEM.now() <= CANCELLABLE.now()
