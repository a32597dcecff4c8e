"""Calls over gRPC that their caller cancels: during an attempt, and during a delay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from threading import Event, Thread
from typing import Any

import grpc
import pytest

from redouble import Bulkhead, Retry
from tests.support.grpc.calls import (
    ONE,
    SHAPES,
    achannel_of,
    channel_of,
    report_of,
    request_of,
    retry,
    stub_of,
    until,
)
from tests.support.grpc.server import Call, Server

FOREVER = 3600.0  # seconds: a test that waits for it fails
BLOCKING = [("future", "unary"), ("future", "up"), ("stream", "down"), ("stream", "both")]


class Waiting:
    """A policy with an endless delay before its second attempt, and an event that is set before that."""

    def __init__(self, **options: Any) -> None:
        self.waits = Event()
        self.policy = Retry(
            backoff=[FOREVER] * 9, give_up_after=None, on_retry=lambda _: self.waits.set(), **options
        )


def begun(remote: Server, colour: str, shape: str, script: str, policy: Retry) -> tuple[Any, Call]:
    """Start a call, and return its call object and what the server knows of it."""
    call, metadata = remote.script(script)
    stub = stub_of(channel_of(remote, policy), shape)
    make = stub.future if colour == "future" else stub
    return make(request_of(shape), metadata=metadata), call


class Reader(Thread):
    """A thread that waits for the result of a call."""

    def __init__(self, wait: Callable[[], object]) -> None:
        super().__init__()
        self._wait = wait
        self.error: Any = None
        self.start()

    def run(self) -> None:
        try:
            self._wait()
        except Exception as error:
            self.error = error


def reading(colour: str, call: Any) -> Reader:
    return Reader(call.exception if colour == "future" else partial(next, call))


@pytest.mark.parametrize(("colour", "shape"), BLOCKING)
def test_cancelling_during_an_attempt_ends_it(remote: Server, colour: str, shape: str) -> None:
    call, known = begun(remote, colour, shape, "hang OK", retry(on=Exception))
    reader = reading(colour, call)
    until(lambda: known.attempts)
    assert call.cancel()
    reader.join()
    assert known.attempts[0].ended.wait(FOREVER)
    assert_cancelled(colour, call, reader.error)
    assert len(known.attempts) == 1


@pytest.mark.parametrize(("colour", "shape"), BLOCKING)
def test_cancelling_during_a_delay_ends_the_delay(remote: Server, colour: str, shape: str) -> None:
    waiting = Waiting()
    call, known = begun(remote, colour, shape, "UNAVAILABLE", waiting.policy)
    reader = reading(colour, call)
    assert waiting.waits.wait(FOREVER)
    assert call.is_active()
    assert call.cancel()
    reader.join()
    assert_cancelled(colour, call, reader.error)
    assert call.details() == "Locally cancelled by application!"
    assert len(known.attempts) == 1


@pytest.mark.parametrize(("colour", "shape"), BLOCKING)
def test_cancelling_while_an_attempt_fails_counts_as_cancelled(
    remote: Server, colour: str, shape: str
) -> None:
    """If `cancel` returned True, the call is cancelled."""
    calls: list[Any] = []

    def cancels(_: object) -> None:
        until(lambda: calls)
        assert calls[0].cancel()

    call, known = begun(remote, colour, shape, "UNAVAILABLE", retry(on=Exception, on_failure=cancels))
    calls.append(call)
    reader = reading(colour, call)
    reader.join()
    assert_cancelled(colour, call, reader.error)
    assert len(known.attempts) == 1
    if colour == "stream":
        assert reader.error.__cause__.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("shape", ONE)
def test_cancelling_a_future_while_it_succeeds_counts_as_cancelled(remote: Server, shape: str) -> None:
    calls: list[Any] = []

    def cancels(_: object) -> None:
        until(lambda: calls)
        assert calls[0].cancel()

    call, _ = begun(remote, "future", shape, "a OK", retry(on_success=cancels))
    calls.append(call)
    reader = reading("future", call)
    reader.join()
    assert_cancelled("future", call, reader.error)


def assert_cancelled(colour: str, call: Any, error: Any) -> None:
    """Assert that the call behaves like a cancelled call of gRPC itself."""
    assert call.code() is grpc.StatusCode.CANCELLED
    assert not call.is_active()
    assert not call.cancel()
    assert (call.cancelled(), call.done()) == (True, True)
    if colour == "future":
        assert type(error) is grpc.FutureCancelledError
        for ask in (call.result, call.exception, call.traceback):
            with pytest.raises(grpc.FutureCancelledError):
                ask()
    else:
        assert isinstance(error, grpc.RpcError)
        assert report_of(error).attempts == 1
        with pytest.raises(grpc.RpcError) as caught:
            next(call)
        assert caught.value is error


@pytest.mark.parametrize("shape", ["down", "both"])
@pytest.mark.parametrize("eager", [True, False])
def test_cancelling_a_stream_before_it_is_read(remote: Server, shape: str, eager: bool) -> None:
    policy: Any = retry(on=Exception) if eager else Bulkhead(1) | retry(on=Exception)
    known, metadata = remote.script("hang OK")
    call = stub_of(channel_of(remote, policy), shape)(request_of(shape), metadata=metadata)
    assert call.cancel()
    assert not call.is_active()
    with pytest.raises(grpc.RpcError):
        next(call)
    assert call.code() is grpc.StatusCode.CANCELLED
    assert len(known.attempts) <= eager


@pytest.mark.parametrize("shape", ["down", "both"])
def test_cancelling_a_stream_after_its_first_message(remote: Server, shape: str) -> None:
    call, known = begun(remote, "stream", shape, "a hang OK", retry(on=Exception))
    assert next(call) == b"a"
    assert call.cancel()
    with pytest.raises(grpc.RpcError) as caught:
        next(call)
    assert call.code() is grpc.StatusCode.CANCELLED
    assert report_of(caught.value).reason == "committed"
    assert known.attempts[0].ended.wait(FOREVER)


@pytest.mark.parametrize("when", ["during an attempt", "during a delay"])
@pytest.mark.parametrize("how", ["the call", "the task"])
@pytest.mark.parametrize("shape", SHAPES)
def test_cancelling_an_async_call_or_its_task(remote: Server, shape: str, how: str, when: str) -> None:
    async def main() -> None:
        waiting = Waiting(on=Exception)
        known, metadata = remote.script("hang OK" if when == "during an attempt" else "UNAVAILABLE")
        async with achannel_of(remote, waiting.policy) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)

            async def reads() -> object:
                return await (call if shape in ONE else call.read())

            reader = asyncio.create_task(reads())
            await asyncio.to_thread(until, lambda: known.attempts)
            if when == "during a delay":
                await asyncio.to_thread(waiting.waits.wait, FOREVER)
            assert not call.done()
            assert not call.cancelled()
            assert call.cancel() if how == "the call" else reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
            assert await call.code() is grpc.StatusCode.CANCELLED
            assert await call.details() == "Locally cancelled by application!"
            assert (call.cancelled(), call.done(), call.cancel()) == (True, True, False)
            await asyncio.to_thread(known.attempts[0].ended.wait, FOREVER)
            assert len(known.attempts) == 1

    asyncio.run(main())


@pytest.mark.parametrize("shape", ["down", "both"])
def test_cancelling_an_async_stream_after_its_first_message(remote: Server, shape: str) -> None:
    async def main() -> None:
        known, metadata = remote.script("a hang OK")
        async with achannel_of(remote, retry(on=Exception)) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            assert await call.read() == b"a"
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call.read()
            assert await call.code() is grpc.StatusCode.CANCELLED
            assert call.cancelled()
            await asyncio.to_thread(known.attempts[0].ended.wait, FOREVER)

    asyncio.run(main())


@pytest.mark.parametrize("shape", SHAPES)
def test_an_async_call_cancelled_at_once_makes_no_attempt(remote: Server, shape: str) -> None:
    async def main() -> None:
        known, metadata = remote.script("hang OK")
        async with achannel_of(remote, retry(on=Exception)) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            assert call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await (call if shape in ONE else call.read())
            assert await call.code() is grpc.StatusCode.CANCELLED
            assert known.attempts == []

    asyncio.run(main())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_time_limit_of_the_caller_ends_an_async_call(remote: Server, shape: str) -> None:
    async def main() -> None:
        waiting = Waiting()
        known, metadata = remote.script("UNAVAILABLE")
        async with achannel_of(remote, waiting.policy) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    reader = asyncio.ensure_future(call if shape in ONE else call.read())
                    await asyncio.to_thread(waiting.waits.wait, FOREVER)
                    limit.reschedule(0)
                    await reader
            assert len(known.attempts) == 1

    asyncio.run(main())
