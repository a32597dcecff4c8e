"""Calls of `grpc.aio` under a policy: the methods of the call object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from threading import Event
from typing import Any

import grpc
import pytest

from redouble import Fallback, Layer, Retry
from tests.support.grpc.calls import ONE, SHAPES, achannel_of, report_of, request_of, retry, stub_of
from tests.support.grpc.server import Call, Server

FOREVER = 3600.0
Talk = Callable[[Any, Call], Coroutine[Any, Any, None]]


def called(remote: Server, shape: str, script: str, talk: Talk, policy: Layer | None = None) -> None:
    """Make a call, and pass it to ``talk``."""

    async def main() -> None:
        known, metadata = remote.script(script)
        async with achannel_of(remote, policy or retry()) as channel:
            await talk(stub_of(channel, shape)(request_of(shape), metadata=metadata), known)

    asyncio.run(main())


def read(call: Any, shape: str) -> Any:
    return call if shape in ONE else call.read()


@pytest.mark.parametrize("shape", SHAPES)
def test_the_call_object_of_a_success(remote: Server, shape: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        ended: list[object] = []
        call.add_done_callback(ended.append)
        assert dict(await call.initial_metadata()) in ({}, {"head": "1"})
        assert await read(call, shape) == b"a"
        if shape not in ONE:
            assert await call.read() is grpc.aio.EOF
        assert (await call.code(), await call.details()) == (grpc.StatusCode.OK, "")
        assert dict(await call.trailing_metadata()) == {"grpc-retry-pushback-ms": "7"}
        assert await call.debug_error_string() == ""
        assert dict(await call.initial_metadata()) == {"head": "1"}
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
        assert ended == [call]
        call.add_done_callback(ended.append)
        assert ended == [call, call]
        assert len(known.attempts) == 2

    called(remote, shape, "UNAVAILABLE, head a @7 OK", talk)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_call_object_of_a_failure(remote: Server, shape: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        ended: list[object] = []
        call.add_done_callback(ended.append)
        assert (await call.code(), await call.details()) == (grpc.StatusCode.NOT_FOUND, "as the script says")
        assert "as the script says" in await call.debug_error_string()
        assert dict(await call.trailing_metadata()) == {"grpc-retry-pushback-ms": "7"}
        # gRPC does not wait for the initial metadata of a call that has failed.
        assert dict(await call.initial_metadata()) in ({}, {"head": "1"})
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read(call, shape)
        assert (report_of(caught.value).attempts, len(known.attempts)) == (2, 2)
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)
        assert ended == [call]

    called(remote, shape, "UNAVAILABLE, head @7 NOT_FOUND", talk)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_call_object_after_the_server_cancelled(remote: Server, shape: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert call.cancelled()

    called(remote, shape, "CANCELLED", talk)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_call_object_of_a_fallback(remote: Server, shape: str) -> None:
    """There is no call of gRPC for its value."""

    async def talk(call: Any, known: Call) -> None:
        assert await read(call, shape) == b"x"
        assert (await call.code(), await call.details()) == (grpc.StatusCode.OK, "")
        assert not await call.debug_error_string()
        sent = [await call.initial_metadata(), await call.trailing_metadata()]
        # In the first of these gRPC wraps a plain response in a call of its own, which returns None.
        assert sent == [None if shape == "unary" else grpc.aio.Metadata()] * 2
        assert (call.done(), call.cancelled(), call.cancel()) == (True, False, False)

    value = b"x" if shape in ONE else [b"x"]
    called(remote, shape, "UNAVAILABLE", talk, Fallback(value=value, on=grpc.RpcError) | retry(attempts=2))


@pytest.mark.parametrize("shape", ["up", "down", "both"])
def test_the_call_object_after_an_error_in_a_rule(remote: Server, shape: str) -> None:
    """There is no error of gRPC with a status."""

    def rule(_: Exception) -> bool:
        raise ZeroDivisionError

    async def talk(call: Any, known: Call) -> None:
        with pytest.raises(ZeroDivisionError):
            await read(call, shape)
        inner = call._interceptors_task.result()
        assert (await inner.code(), await inner.details()) == (grpc.StatusCode.UNKNOWN, "")
        assert not inner.cancelled()

    called(remote, shape, "UNAVAILABLE", talk, retry(on=rule))


@pytest.mark.parametrize("shape", ["down", "both"])
def test_a_fallback_may_be_an_async_stream(remote: Server, shape: str) -> None:
    async def other(error: Exception) -> Any:
        async def items() -> Any:
            yield b"x"

        return items()

    async def talk(call: Any, known: Call) -> None:
        assert [message async for message in call] == [b"x"]

    called(remote, shape, "UNAVAILABLE", talk, Fallback(other, on=grpc.RpcError) | retry(attempts=1))


@pytest.mark.parametrize("script", ["a OK", "UNAVAILABLE, a OK"])
@pytest.mark.parametrize("shape", SHAPES)
def test_wait_for_connection_returns(remote: Server, shape: str, script: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        await call.wait_for_connection()
        assert await read(call, shape) == b"a"
        await call.wait_for_connection()

    called(remote, shape, script, talk)


@pytest.mark.parametrize("shape", ["up", "down", "both"])
def test_wait_for_connection_raises_the_last_error(remote: Server, shape: str) -> None:
    """Each attempt waits for a connection."""

    async def main() -> None:
        retries: list[object] = []
        policy = retry(attempts=3, on_retry=retries.append)
        async with achannel_of(Server("127.0.0.1:1"), policy) as channel:
            call = stub_of(channel, shape)(request_of(shape))
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call.wait_for_connection()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert len(retries) == 2

    asyncio.run(main())


@pytest.mark.parametrize("shape", ["up", "down", "both"])
def test_initial_metadata_sleeps_during_a_delay(remote: Server, shape: str) -> None:
    """It waits until the next attempt starts, without polling."""

    async def turns() -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def talk(call: Any, known: Call) -> None:
        await asyncio.to_thread(waits.wait, FOREVER)
        asking: Any = asyncio.create_task(call.initial_metadata())
        await turns()
        before = asking._fut_waiter
        await turns()
        assert asking._fut_waiter is before is not None
        call.cancel()
        assert await asking == grpc.aio.Metadata()

    waits = Event()
    policy = Retry(backoff=[FOREVER], give_up_after=None, on_retry=lambda _: waits.set())
    called(remote, shape, "UNAVAILABLE", talk, policy)


def test_until_may_reject_the_response_of_an_async_call(remote: Server) -> None:
    """The initial metadata are those of the next attempt."""

    async def talk(call: Any, known: Call) -> None:
        await asyncio.to_thread(waits.wait, FOREVER)
        assert dict(await call.initial_metadata()) == {"head": "1"}
        assert (await call, len(known.attempts)) == (b"b", 2)

    waits = Event()
    policy = Retry(backoff=[0], until=b"b".__eq__, on_retry=lambda _: waits.set())
    called(remote, "up", "a OK, head b OK", talk, policy)


@pytest.mark.parametrize("shape", ["up", "both"])
def test_the_inner_call_refuses_writes(remote: Server, shape: str) -> None:
    """The caller's writes reach the interceptors as an iterator."""

    async def talk(call: Any, known: Call) -> None:
        inner = await call._interceptors_task
        for refused in (inner.write(b"one"), inner.done_writing()):
            with pytest.raises(grpc.aio.UsageError):
                await refused
        assert inner.time_remaining() is None
        assert not inner._done_writing_flag
        assert await read(call, shape) == b"a"

    called(remote, shape, "a OK", talk)


@pytest.mark.parametrize("shape", ["down", "both"])
def test_an_interceptor_may_read_the_call_it_receives(remote: Server, shape: str) -> None:
    """One that is before redouble's."""

    async def talk(call: Any, known: Call) -> None:
        inner = await call._interceptors_task
        assert await inner.read() == b"a"
        assert aiter(inner) is aiter(inner)
        assert [message async for message in inner] == [b"b"]
        assert await inner.read() is grpc.aio.EOF

    called(remote, shape, "UNAVAILABLE, a b OK", talk)
