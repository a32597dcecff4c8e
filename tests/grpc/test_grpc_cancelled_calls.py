"""Blocking calls that their caller cancels: no layer counts them, and all waiting threads are woken."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event, Semaphore, Thread
from typing import Any

import grpc
import pytest

import redouble
from redouble import Bulkhead, CircuitBreaker, Fallback, Layer, Retry, TokenBucket
from tests.support.grpc.calls import channel_of, request_of, retry, stub_of, until
from tests.support.grpc.server import Call, Server

FOREVER = 3600.0
BLOCKING = pytest.mark.parametrize(
    ("colour", "shape"), [("future", "unary"), ("future", "up"), ("stream", "down"), ("stream", "both")]
)
STREAMS = pytest.mark.parametrize("shape", ["down", "both"])


def begun(
    remote: Server, colour: str, shape: str, script: str, policy: Layer, **options: Any
) -> tuple[Any, Call]:
    call, metadata = remote.script(script)
    stub = stub_of(channel_of(remote, policy), shape)
    make = stub.future if colour == "future" else stub
    return make(request_of(shape), metadata=metadata, **options), call


def read(colour: str, call: Any) -> None:
    """Read a call that is being cancelled."""
    kind: type[Exception] = grpc.FutureCancelledError if colour == "future" else grpc.RpcError
    with pytest.raises(kind) as caught:
        call.result() if colour == "future" else next(call)
    error: Any = caught.value
    assert colour == "future" or error.cancelled()


def cancelled(colour: str, call: Any, when: Callable[[], object]) -> None:
    """Cancel a call that a thread waits for, and wait for its end."""
    over = Event()
    assert call.add_callback(over.set)
    reader = Thread(target=partial(read, colour, call))
    reader.start()
    assert when() is not False
    assert call.cancel()
    reader.join()
    assert over.wait(FOREVER)
    assert call.code() is grpc.StatusCode.CANCELLED


GATES: dict[str, Callable[[CircuitBreaker, Retry], Layer]] = {
    "around": lambda breaker, policy: breaker | policy,
    "inside": lambda breaker, policy: policy | breaker,
}


@BLOCKING
@pytest.mark.parametrize("gate", GATES)
def test_a_breaker_does_not_count_a_call_that_was_cancelled(
    remote: Server, colour: str, shape: str, gate: str
) -> None:
    events: list[object] = []
    breaker = CircuitBreaker(failures=1)
    policy = GATES[gate](breaker, retry(on=Exception, on_failure=events.append, on_give_up=events.append))
    call, known = begun(remote, colour, shape, "hang OK", policy)
    cancelled(colour, call, partial(until, lambda: known.attempts))
    assert (breaker.state, events, len(known.attempts)) == ("closed", [], 1)


@BLOCKING
def test_cancelling_during_a_delay_counts_nowhere(remote: Server, colour: str, shape: str) -> None:
    """The grant of the retry is refunded."""
    waits, bucket, breaker = Event(), TokenBucket(20), CircuitBreaker(failures=1)
    policy = Retry(
        backoff=[FOREVER], give_up_after=None, on_retry=lambda _: waits.set(), budget=bucket, attempts=9
    )
    before = bucket.snapshot()
    call, known = begun(remote, colour, shape, "UNAVAILABLE", breaker | policy)
    cancelled(colour, call, partial(waits.wait, FOREVER))
    assert (breaker.state, bucket.snapshot(), len(known.attempts)) == ("closed", before, 1)


@BLOCKING
def test_no_attempt_starts_after_cancel(remote: Server, colour: str, shape: str) -> None:
    calls: list[Any] = []

    def cancels(_: object) -> None:
        until(lambda: calls)
        assert calls[0].cancel()

    breaker = CircuitBreaker(failures=1)
    call, known = begun(remote, colour, shape, "a OK", breaker | retry(before_attempt=cancels))
    calls.append(call)
    read(colour, call)
    assert call.code() is grpc.StatusCode.CANCELLED
    assert (breaker.state, known.attempts) == ("closed", [])


@BLOCKING
def test_a_fallback_does_not_replace_a_cancellation(remote: Server, colour: str, shape: str) -> None:
    policy = Fallback(value=[b"x"]) | retry(on=Exception)
    call, known = begun(remote, colour, shape, "hang OK", policy)
    cancelled(colour, call, partial(until, lambda: known.attempts))


@pytest.mark.parametrize("shape", ["unary", "up"])
def test_a_future_is_done_as_soon_as_cancel_returns(remote: Server, shape: str) -> None:
    """Although its thread is still running."""
    goes, waits = Event(), Event()

    def holds(_: object) -> None:
        waits.set()
        assert goes.wait(FOREVER)

    future, _ = begun(remote, "future", shape, "UNAVAILABLE", retry(on_failure=holds))
    assert waits.wait(FOREVER)
    assert future.cancel()
    assert (future.cancelled(), future.done(), future.running(), future.is_active()) == (
        True,
        True,
        False,
        False,
    )
    for ask in (future.result, future.exception, future.traceback):
        with pytest.raises(grpc.FutureCancelledError):
            ask()
    assert not future.cancel()
    goes.set()
    assert future.code() is grpc.StatusCode.CANCELLED
    assert future.debug_error_string() == "Locally cancelled by application!"


# ------------------------------------------------------------------------------- streams


@STREAMS
@pytest.mark.parametrize("eager", [True, False])
def test_cancelling_an_unread_stream_runs_the_callbacks(remote: Server, shape: str, eager: bool) -> None:
    bulkhead = Bulkhead(1)
    call, known = begun(remote, "stream", shape, "hang OK", retry() if eager else bulkhead | retry())
    called: list[object] = []
    call.add_done_callback(called.append)
    assert call.add_callback(lambda: called.append((call.code(), call.cancel())))
    assert (call.done(), call.running(), call.cancelled()) == (False, True, False)
    assert call.cancel()
    assert called == [call, (grpc.StatusCode.CANCELLED, False)]
    assert (call.done(), call.running(), call.cancelled(), call.cancel()) == (True, False, True, False)
    call.add_done_callback(called.append)
    assert called[2:] == [call]
    for ask in (call.result, call.exception, call.traceback):
        with pytest.raises(grpc.FutureCancelledError):
            ask()
    assert len(known.attempts) <= eager


@STREAMS
def test_a_callback_runs_at_the_end_of_a_stream(remote: Server, shape: str) -> None:
    call, known = begun(remote, "stream", shape, "a hang OK", retry())
    over = Event()
    assert call.add_callback(over.set)
    assert next(call) == b"a"
    assert not over.is_set()
    known.attempts[0].ended.set()
    assert list(call) == []
    assert over.wait(FOREVER)


@STREAMS
def test_a_stream_is_a_future_too(remote: Server, shape: str) -> None:
    """Like the streams of gRPC itself: interceptors before redouble's may use it as one."""
    call, _ = begun(remote, "stream", shape, "UNAVAILABLE, a OK", retry())
    assert list(call) == [b"a"]
    assert (call.result(), call.exception(), call.traceback()) == (None, None, None)
    assert (call.done(), call.running(), call.cancelled()) == (True, False, False)
    assert call.debug_error_string() == ""
    call, _ = begun(remote, "stream", shape, "NOT_FOUND", retry())
    with pytest.raises(grpc.RpcError) as caught:
        call.result()
    assert call.exception() is caught.value
    assert call.traceback() is caught.value.__traceback__
    assert "as the script says" in call.debug_error_string()
    assert not call.cancelled()


@STREAMS
def test_a_timed_out_stream_is_not_active(remote: Server, shape: str) -> None:
    call, _ = begun(remote, "stream", shape, "hang OK", retry(), timeout=0.05)
    until(lambda: not call.is_active())
    assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert not call.is_active()


@STREAMS
def test_reading_after_the_deadline_cancels_the_running_attempt(remote: Server, shape: str) -> None:
    call, known = begun(remote, "stream", shape, "hang OK", retry())
    until(lambda: known.attempts)
    with redouble.deadline(0), pytest.raises(redouble.errors.DeadlineExceeded):
        next(call)
    assert known.attempts[0].ended.wait(FOREVER)


class Watched:
    """A lock with a semaphore that is released when a thread tries to acquire the lock."""

    def __init__(self, lock: Any) -> None:
        self._lock, self.wanted = lock, Semaphore(0)

    def acquire(self, blocking: bool = True) -> bool:
        self.wanted.release()
        return bool(self._lock.acquire(blocking))

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


@STREAMS
def test_cancel_wakes_both_threads_that_read_a_stream(remote: Server, shape: str) -> None:
    call, known = begun(remote, "stream", shape, "hang OK", retry())
    call._opening = watched = Watched(call._opening)
    readers = [Thread(target=partial(read, "stream", call)) for _ in range(2)]
    for reader in readers:
        reader.start()
        watched.wanted.acquire()
    until(lambda: known.attempts)
    assert call.cancel()
    for reader in readers:
        reader.join()
    assert len(known.attempts) == 1
