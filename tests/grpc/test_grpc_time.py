"""Time limits of calls over gRPC: those of the caller and of the policy apply to each attempt."""

from __future__ import annotations

from threading import Event, Timer
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

import redouble
import redouble.grpc
from redouble import Hints, Layer, Pipeline, Retry, Timeout, Verdict, Worker, presets
from redouble.grpc._attempt import attempt_unary, expired
from redouble.grpc._finished_call import AioFailedCall, FailedCall
from redouble.grpc._request_stream import RequestSource
from redouble.testing import virtual_time
from redouble.types import Ended, On
from tests.support.grpc.calls import (
    ALL,
    ONE,
    SHAPES,
    STREAMS,
    RpcResult,
    channel_of,
    make_call,
    report_of,
    request_of,
    retry,
    shared_channel,
    stub_of,
    summary_of,
    until,
)
from tests.support.grpc.interceptors import DelegatingInterceptor
from tests.support.grpc.server import Server

SHORT = 0.15  # seconds
LONG = 60.0


LIMITS: dict[str, tuple[Layer, dict[str, Any]]] = {
    "timeout=": (retry(), {"timeout": SHORT}),
    "Retry(timeout=)": (retry(timeout=SHORT), {}),
    "Timeout around": (Timeout(SHORT) | retry(), {}),
    "attempt_timeout": (retry(attempt_timeout=SHORT, attempts=1), {}),
    "Timeout inside": (retry(attempts=1) | Timeout(SHORT), {}),
    "a Retry inside": (retry(attempts=1) | retry(timeout=SHORT, nested="allow"), {}),
}


@pytest.mark.quiet
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] != "thread"])
def test_a_limit_ends_an_attempt_that_hangs(remote: Server, colour: str, shape: str, limit: str) -> None:
    policy, options = LIMITS[limit]
    seen = make_call(remote, colour, shape, "hang OK", policy, **options)
    assert isinstance(seen.error, grpc.RpcError)
    assert (seen.messages, seen.code, seen.report.attempts) == ([], "DEADLINE_EXCEEDED", 1)
    assert all(attempt.ended.wait(LONG) for attempt in seen.attempts)  # the server sees the cancellation


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_each_attempt_gets_the_time_left(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "UNAVAILABLE, UNAVAILABLE, a OK", retry(), timeout=LONG)
    assert seen.code == "OK"
    assert all(LONG / 2 < attempt.time_remaining < LONG + 1 for attempt in seen.attempts)


@pytest.mark.parametrize("shape", SHAPES)
def test_delays_count_for_the_timeout_of_the_call(remote: Server, shape: str) -> None:
    """In blocking code: an event loop in virtual time would not wait for a real server."""
    with virtual_time():
        policy = retry(backoff=[10, 20, 15], give_up_after=None)
        seen = make_call(remote, "sync", shape, "UNAVAILABLE", policy, timeout=40)
        assert (seen.code, seen.reason, seen.report.limit) == ("UNAVAILABLE", "timeout", "deadline")
    assert [attempt.time_remaining for attempt in seen.attempts] == pytest.approx([40, 30, 10], abs=5)


@pytest.mark.quiet
@pytest.mark.parametrize("shape", SHAPES)
def test_a_delay_shortens_the_next_async_attempt(remote: Server, shape: str) -> None:
    """In async code, in real time; gRPC sends such timeouts in tenths of a second, rounded up."""
    seen = make_call(remote, "aio", shape, "UNAVAILABLE, a OK", retry(backoff=[0.3]), timeout=9)
    first, second = (attempt.time_remaining for attempt in seen.attempts)
    assert first - second > 0.1  # even on a busy machine


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_limits_of_a_policy_are_limits_of_each_attempt(remote: Server, colour: str, shape: str) -> None:
    policy = Timeout(50) | retry(attempt_timeout=20)
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", policy)
    assert seen.code == "OK"
    # The limit of a stream ends at its first message, so it is not passed to gRPC.
    assert all((attempt.time_remaining < 21) is (shape in ONE) for attempt in seen.attempts)


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_delay_that_does_not_fit_ends_the_call(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", retry(backoff=[LONG]), timeout=LONG / 4)
    assert summary_of(seen) == (b"", "UNAVAILABLE", 1, "timeout")
    assert seen.report.limit == "deadline"


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_an_outer_deadline_applies_to_each_attempt(remote: Server, colour: str, shape: str) -> None:
    with redouble.deadline(LONG):
        seen = make_call(remote, colour, shape, "UNAVAILABLE, a OK", retry())
    within = [attempt.time_remaining < LONG + 1 for attempt in seen.attempts]
    assert within == [colour != "thread"] * 2  # a thread has its own context


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_no_attempt_is_made_after_the_deadline(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "a OK", retry(), timeout=0)
    assert isinstance(seen.error, grpc.RpcError)
    assert isinstance(seen.error, redouble.errors.DeadlineExceeded)
    assert (seen.messages, seen.code, seen.attempts, seen.reason) == ([], "DEADLINE_EXCEEDED", [], "timeout")


@pytest.mark.quiet
@pytest.mark.parametrize(("colour", "shape"), STREAMS)
def test_an_attempt_without_a_message_in_time_is_retried(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "hang OK, a OK", retry(attempt_timeout=SHORT, attempts=9))
    assert (seen.messages, seen.code) == ([b"a"], "OK")
    assert all(attempt.ended.wait(LONG) for attempt in seen.attempts)


def test_limits_of_a_policy_end_at_the_first_message(remote: Server) -> None:
    call, metadata = remote.script("deaf a hang b OK")
    policy = retry(attempt_timeout=LONG / 2, timeout=LONG)
    stream = stub_of(channel_of(remote, policy), "down")(b"one", metadata=metadata)
    assert next(stream) == b"a"
    assert call.attempts[0].time_remaining > LONG * 2  # no limit was passed to gRPC
    until(lambda: not any(isinstance(thread, Timer) for thread in enumerate_threads()))
    call.attempts[0].ended.set()
    assert list(stream) == [b"b"]


@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] != "thread"])
def test_the_delay_is_exactly_the_pushback(remote: Server, colour: str, shape: str) -> None:
    with virtual_time() as clock:
        seen = make_call(remote, colour, shape, "@123 UNAVAILABLE, @4567000 ABORTED, a OK", presets.grpc())
        assert summary_of(seen) == (b"a", "OK", 3, None)
        assert clock.delays == [0.123, 4567.0]


@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] != "thread"])
def test_a_retry_info_in_the_details_of_the_status_is_a_hint(remote: Server, colour: str, shape: str) -> None:
    """Of `grpc-status-details-bin`; it applies with any rule, as a pushback does."""
    script = "~700 UNAVAILABLE, ~123 RESOURCE_EXHAUSTED, a OK"
    for policy, delays in (
        (presets.grpc(), [0.7, 0.123]),
        (Retry(on=grpc.RpcError, backoff=[0.2, 0.2], hints=Hints(spread=0)), [0.7, 0.2]),
    ):
        with virtual_time() as clock:
            seen = make_call(remote, colour, shape, script, policy)
            assert summary_of(seen) == (b"a", "OK", 3, None)
            assert clock.delays == delays


@pytest.mark.parametrize(("colour", "shape"), ALL)
def test_a_retry_info_causes_no_retry(remote: Server, colour: str, shape: str) -> None:
    seen = make_call(remote, colour, shape, "~7 INVALID_ARGUMENT, a OK", retry())
    assert summary_of(seen) == (b"", "INVALID_ARGUMENT", 1, "stopped")


def internal(error: Exception) -> bool | None:
    return True if getattr(error, "code", str)() is grpc.StatusCode.INTERNAL else None


def always(_: Exception) -> bool:
    return True


def never(_: Exception) -> bool:
    return False


class Judges:
    """A rule that uses the number of the attempt."""

    def judge(self, ended: Ended) -> Verdict | None:
        return Verdict.retry(after=7 if ended.attempt == 2 else None)


@pytest.mark.parametrize(
    ("on", "hints", "delays"),
    [
        (grpc.RpcError, Hints("instead", spread=0), [0.4, 0.5]),
        (always, Hints("instead", spread=0), [0.4, 0.5]),
        ([redouble.transient, internal], Hints("instead", spread=0), [0.4, 0.5]),
        (Judges(), Hints("instead", spread=0), [0.4, 7]),  # the rule's own delay wins
        (grpc.RpcError, Hints("at_least", spread=0), [1, 1]),
        (grpc.RpcError, Hints("ignore"), [1, 1]),
    ],
)
@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] != "thread"])
def test_a_pushback_applies_with_any_rule(
    remote: Server, colour: str, shape: str, on: On, hints: Hints, delays: list[float]
) -> None:
    with virtual_time() as clock:
        policy = Retry(on=on, hints=hints, backoff=[1, 1, 1], give_up_after=None)
        seen = make_call(remote, colour, shape, "@400 INTERNAL, @500 INTERNAL, a OK", policy)
        assert summary_of(seen) == (b"a", "OK", 3, None)
        assert clock.delays == delays


@pytest.mark.parametrize(("colour", "shape"), ALL)
@pytest.mark.parametrize("on", [OSError, never])
def test_a_pushback_causes_no_retry(remote: Server, colour: str, shape: str, on: On) -> None:
    seen = make_call(remote, colour, shape, "@400 UNAVAILABLE, a OK", retry(on=on))
    assert summary_of(seen) == (b"", "UNAVAILABLE", 1, "stopped")


@pytest.mark.parametrize("policy", [retry(timeout=30), Timeout(30) | retry()])
@pytest.mark.parametrize("shape", ["down", "both"])
def test_the_limits_of_a_policy_start_when_a_stream_is_read(
    remote: Server, shape: str, policy: Layer
) -> None:
    with virtual_time() as clock:
        call, metadata = remote.script("UNAVAILABLE, a OK")
        stream = stub_of(channel_of(remote, policy), shape)(request_of(shape), metadata=metadata)
        clock.advance(100)
        assert list(stream) == [b"a"]
        assert len(call.attempts) == 2


@pytest.mark.parametrize("shape", ["down", "both"])
def test_a_stream_without_time_is_not_started(remote: Server, shape: str) -> None:
    call, metadata = remote.script("a OK")
    stream = stub_of(channel_of(remote, retry(timeout=0)), shape)(request_of(shape), metadata=metadata)
    with pytest.raises(redouble.errors.DeadlineExceeded):
        next(stream)
    assert call.attempts == []


class Late(grpc.RpcError):
    """The error with which gRPC ends a call at its deadline."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("shape", ["unary", "up"])
def test_no_attempt_follows_one_that_used_up_the_deadline(remote: Server, shape: str) -> None:
    calls: list[object] = []

    def late(*said: object) -> object:
        calls.append(said)
        clock.advance(LONG - 0.005)
        raise Late

    ours = redouble.grpc.interceptors(retry(on=Exception, give_up_after=None))
    stub = stub_of(
        grpc.intercept_channel(shared_channel(remote.target), *ours, DelegatingInterceptor(late)), shape
    )
    with virtual_time() as clock, pytest.raises(Late) as caught:
        stub(request_of(shape), timeout=LONG)
    assert (report_of(caught.value).reason, len(calls)) == ("timeout", 1)


@pytest.mark.parametrize("shape", ["unary", "up"])
def test_a_worker_that_exceeds_its_limit_advances_the_virtual_clock(remote: Server, shape: str) -> None:
    """By the limit and the grace period, as for any other function."""

    def hanging(*_: object) -> object:
        over.wait()
        raise Late

    over = Event()
    ours = redouble.grpc.interceptors(retry(attempt_timeout=0.02, worker=Worker(grace=0.01)))
    stub = stub_of(
        grpc.intercept_channel(shared_channel(remote.target), *ours, DelegatingInterceptor(hanging)), shape
    )
    with virtual_time() as clock, pytest.raises(redouble.errors.WorkerStillRunning):
        started = clock.now()
        try:
            stub(request_of(shape))
        finally:
            over.set()
            assert clock.now() - started == pytest.approx(0.03)


@pytest.mark.parametrize("base", [FailedCall, AioFailedCall])
@pytest.mark.parametrize(("seconds", "said"), [(0.149987654, "0.15"), (12.0, "12"), (-0.001, "0")])
def test_the_timeout_error_says_how_long_it_waited(base: Any, seconds: float, said: str) -> None:
    assert str(expired(seconds, base)) == f"no message within {said} s"


@pytest.mark.parametrize(("colour", "shape"), [case for case in ALL if case[0] != "thread"])
def test_delays_are_those_of_the_policy(remote: Server, colour: str, shape: str) -> None:
    with virtual_time() as clock:
        seen = make_call(remote, colour, shape, "UNAVAILABLE", Retry(backoff=[1, 2, 3], give_up_after=None))
        assert clock.delays == [1, 2, 3]
        assert [record.delay for record in seen.report.history] == [1, 2, 3, None]


@pytest.mark.quiet
def test_a_deadline_applies_to_a_policy_of_gates_alone(remote: Server) -> None:
    seen = make_call(remote, "sync", "unary", "hang OK", Pipeline(Timeout(SHORT)))
    report = report_of(seen.error)
    assert (seen.code, report.reason, report.attempts) == ("DEADLINE_EXCEEDED", "stopped", 1)


@pytest.mark.quiet
@pytest.mark.parametrize("nested", ["stop", "warn"])
def test_a_timeout_without_a_retry_is_retried_by_the_policy_around_the_call(
    remote: Server, nested: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[RpcResult] = []

    def called() -> None:
        seen.append(make_call(remote, "sync", "unary", "hang OK", Timeout(SHORT)))
        raise seen[-1].error

    outer = Retry(on=grpc.RpcError, attempts=2, backoff=[0], budget=None, nested=nested)
    with pytest.raises(grpc.RpcError) as caught:
        outer.call(called)
    assert (report_of(caught.value).reason, len(seen)) == ("attempts", 2)
    assert not [message for message in caplog.messages if "attempts multiply" in message]


@pytest.mark.parametrize(
    ("late", "left", "expected"),
    [(True, 0, "timeout"), (True, 0.005, "timeout"), (True, 60, None), (False, 0, None)],
)
def test_the_guard_vetoes_an_attempt_after_the_deadline(
    late: bool, left: float, expected: str | None
) -> None:
    """A few milliseconds may be left, because gRPC has another clock; they are too short for an attempt."""
    (ours,) = redouble.grpc.interceptors(retry())
    details = SimpleNamespace(method="/t.Service/Say")
    guard = ours._binding.current.begin_call(attempt_unary, print, details, RequestSource(b""))
    guard.now, guard.deadline, guard.deadline_exceeded = lambda: 100.0, 100.0 + left, late
    assert guard.veto(Verdict.retry()) == expected
