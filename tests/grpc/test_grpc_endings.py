"""Calls over gRPC leave no thread, task, RPC or reference cycle behind, however they end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any
from weakref import ref

import grpc
import pytest

import redouble.grpc
from redouble import Bulkhead, Retry
from tests.support.grpc.calls import (
    ONE,
    OPTIONS,
    SHAPES,
    achannel_of,
    channel_of,
    make_call,
    report_of,
    request_of,
    retry,
    stub_of,
    until,
)
from tests.support.grpc.server import Server

FOREVER = 3600.0


@contextmanager
def without_gc() -> Generator[None]:
    """Disable the garbage collector: only objects outside of cycles are freed."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("script", ["NOT_FOUND", "UNAVAILABLE"])
@pytest.mark.parametrize("shape", ONE)
def test_no_reference_cycle_keeps_an_error_alive(remote: Server, shape: str, script: str) -> None:
    stub = stub_of(channel_of(remote, retry(attempts=3)), shape)

    def called() -> ref[BaseException]:
        _, metadata = remote.script(script)
        try:
            stub(request_of(shape), metadata=metadata)
        except grpc.RpcError as error:
            return ref(error)
        raise AssertionError

    called()
    with without_gc():
        error = called()
        assert error() is None


@pytest.mark.parametrize("shape", ["down", "both"])
@pytest.mark.parametrize("read", [0, 1])
def test_an_unreferenced_stream_is_cancelled(remote: Server, shape: str, read: int) -> None:
    known, metadata = remote.script("a hang OK")
    stream = stub_of(channel_of(remote, retry()), shape)(request_of(shape), metadata=metadata)
    until(lambda: known.attempts)
    for _ in range(read):
        next(stream)
    del stream
    gc.collect()
    assert known.attempts[0].ended.wait(FOREVER)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_task_is_left(remote: Server, shape: str) -> None:
    async def main() -> set[str]:
        async with achannel_of(remote, retry(attempts=2)) as channel:
            for script in ("a OK", "UNAVAILABLE", "NOT_FOUND", "hang OK"):
                known, metadata = remote.script(script)
                call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
                if script == "hang OK":
                    await asyncio.to_thread(until, partial(len, known.attempts))
                    call.cancel()
                await call.code()
                del call
            for _ in range(20):
                await asyncio.sleep(0)
            return {str(task.get_coro()) for task in asyncio.all_tasks()}

    assert [coro for coro in asyncio.run(main()) if "redouble" in coro or "Running" in coro] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_an_async_call_that_is_never_awaited_is_made_and_logs_nothing(remote: Server, shape: str) -> None:
    async def main() -> None:
        given_up: list[object] = []
        _, metadata = remote.script("NOT_FOUND")
        async with achannel_of(remote, retry(on_give_up=given_up.append)) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            await asyncio.to_thread(until, partial(len, given_up))
            for _ in range(20):
                await asyncio.sleep(0)
            del call

    assert never_retrieved(main) == []


@pytest.mark.parametrize("shape", ["up", "both"])
def test_requests_that_fail_after_the_call_log_nothing(remote: Server, shape: str) -> None:
    async def main() -> None:
        waits = asyncio.Event()

        async def failing() -> AsyncIterator[bytes]:
            await waits.wait()
            for request in [b"one"][:0]:
                yield request
            raise OSError("the disk")

        policy = Retry(backoff=[FOREVER], give_up_after=None, on_retry=lambda _: waits.set())
        _, metadata = remote.script("deaf UNAVAILABLE")
        async with achannel_of(remote, policy) as channel:
            call = stub_of(channel, shape)(failing(), metadata=metadata)
            await waits.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            assert call.cancel()
            await call.code()
            del call

    assert never_retrieved(main) == []


def never_retrieved(main: Callable[[], Coroutine[Any, Any, None]]) -> list[Any]:
    """Run ``main``, and return asyncio's messages about errors that were never retrieved."""
    trouble: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: trouble.append(context))
        runner.run(main())
        gc.collect()
    return [context for context in trouble if "never retrieved" in context["message"]]


# ------------------------------------------------------------------ closed channels


@pytest.mark.parametrize(("colour", "shape"), [("future", "unary"), ("future", "up"), ("stream", "down")])
def test_closing_the_channel_during_a_delay_fails_the_next_attempt(
    remote: Server, colour: str, shape: str
) -> None:
    """With the error that a new call would raise."""
    waits, closed = Event(), Event()

    def closing(_: object) -> None:
        waits.set()
        closed.wait()

    plain = grpc.insecure_channel(remote.target, options=OPTIONS)
    channel = grpc.intercept_channel(plain, *redouble.grpc.interceptors(retry(on_retry=closing)))
    known, metadata = remote.script("UNAVAILABLE")
    stub = stub_of(channel, shape)
    call = (stub.future if colour == "future" else stub)(request_of(shape), metadata=metadata)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(call.result if colour == "future" else lambda: next(call))
        assert waits.wait(FOREVER)
        plain.close()
        closed.set()
        with pytest.raises(ValueError, match="hannel closed") as caught:
            reading.result()
    assert (report_of(caught.value).reason, report_of(caught.value).attempts) == ("stopped", 2)
    assert len(known.attempts) == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_closing_an_async_channel_during_a_delay_cancels_the_call(remote: Server, shape: str) -> None:
    """As gRPC itself does."""

    async def main() -> None:
        waits = Event()
        policy = Retry(backoff=[FOREVER], give_up_after=None, on_retry=lambda _: waits.set())
        known, metadata = remote.script("UNAVAILABLE")
        async with achannel_of(remote, policy) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            await asyncio.to_thread(waits.wait, FOREVER)
        with pytest.raises(asyncio.CancelledError):
            await (call if shape in ONE else call.read())
        assert (await call.code(), len(known.attempts)) == (grpc.StatusCode.CANCELLED, 1)

    asyncio.run(main())


# ------------------------------------------------------------------------------ threads and loops


@pytest.mark.parametrize("shape", SHAPES)
def test_blocking_code_inside_a_running_loop(remote: Server, shape: str) -> None:
    async def main() -> None:
        seen = make_call(remote, "sync", shape, "UNAVAILABLE, a OK", retry())
        assert (seen.messages, len(seen.attempts)) == ([b"a"], 2)

    asyncio.run(main())


def test_no_thread_is_left_behind_by_streams(remote: Server) -> None:
    policy = Bulkhead(4) | retry(attempt_timeout=FOREVER, attempts=2)
    for script in ("a b OK", "UNAVAILABLE", "NOT_FOUND"):
        make_call(remote, "sync", "down", script, policy)
    until(lambda: not [thread for thread in enumerate_threads() if type(thread).__name__ == "Timer"])
