"""Streams of `grpc.aio` that broke, failed or were cancelled: every further read raises again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from redouble import Bulkhead, CircuitBreaker, Fallback, Layer
from redouble.errors import CircuitOpen
from tests.support.grpc.calls import achannel_of, request_of, retry, stub_of, until
from tests.support.grpc.interceptors import delegating_interceptors
from tests.support.grpc.server import Call, Server

STREAMS = pytest.mark.parametrize("shape", ["down", "both"])
HOW = pytest.mark.parametrize("how", ["read", "anext"])
Talk = Callable[[Any, Call], Awaitable[None]]


def handed(remote: Server, shape: str, script: str, talk: Talk, policy: Layer | None = None) -> None:
    """Make a call, and pass to ``talk`` the call object that an interceptor before redouble's receives."""

    async def main() -> None:
        kept: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def keeps(continuation: Any, said: Any, request: Any) -> Any:
            kept.set_result(await continuation(said, request))
            return kept.result()

        known, metadata = remote.script(script)
        async with achannel_of(remote, policy or retry(), before=delegating_interceptors(keeps)) as channel:
            call = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            await talk(await kept, known)
            del call

    asyncio.run(main())


def next_of(call: Any, how: str) -> Awaitable[Any]:
    return call.read() if how == "read" else anext(aiter(call))


async def raises_each_time(call: Any, how: str, kind: type[BaseException]) -> list[Any]:
    """Read three times, and return the errors."""
    errors: list[Any] = []
    for _ in range(3):
        with pytest.raises(kind) as caught:
            await next_of(call, how)
        errors.append(caught.value)
    return errors


@HOW
@STREAMS
def test_a_broken_stream_raises_at_every_read(remote: Server, shape: str, how: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        assert await next_of(call, how) == b"a"
        errors = await raises_each_time(call, how, grpc.aio.AioRpcError)
        assert {error.code() for error in errors} == {grpc.StatusCode.UNAVAILABLE}

    handed(remote, shape, "a UNAVAILABLE", talk)


@HOW
@STREAMS
def test_a_failed_stream_raises_at_every_read(remote: Server, shape: str, how: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        errors = await raises_each_time(call, how, grpc.aio.AioRpcError)
        assert {error.code() for error in errors} == {grpc.StatusCode.NOT_FOUND}
        assert len(known.attempts) == 2

    handed(remote, shape, "UNAVAILABLE, NOT_FOUND", talk)


@HOW
@STREAMS
@pytest.mark.parametrize("first", [True, False])
def test_a_cancelled_stream_raises_at_every_read(remote: Server, shape: str, how: str, first: bool) -> None:
    async def talk(call: Any, known: Call) -> None:
        if first:
            assert await next_of(call, how) == b"a"
        assert call.cancel()
        await raises_each_time(call, how, asyncio.CancelledError)

    handed(remote, shape, "a hang OK" if first else "hang OK", talk)


@HOW
@STREAMS
@pytest.mark.parametrize("script", ["a hang OK", "hang OK"])
def test_cancelling_a_reader_cancels_the_stream(remote: Server, shape: str, how: str, script: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        if script != "hang OK":
            assert await next_of(call, how) == b"a"
        reader = asyncio.ensure_future(next_of(call, how))
        await asyncio.to_thread(until, lambda: known.attempts)
        await asyncio.sleep(0)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        await raises_each_time(call, how, asyncio.CancelledError)
        assert await call.code() is grpc.StatusCode.CANCELLED

    handed(remote, shape, script, talk)


@STREAMS
@pytest.mark.parametrize("script", ["a OK", "OK"])
def test_an_ended_stream_stays_at_its_end(remote: Server, shape: str, script: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        assert [message async for message in call] == ([b"a"] if script == "a OK" else [])
        for _ in range(3):
            assert await call.read() is grpc.aio.EOF
            assert [message async for message in call] == []

    handed(remote, shape, script, talk)


@STREAMS
def test_the_stream_of_a_fallback_ends(remote: Server, shape: str) -> None:
    """There is no call of gRPC for it."""

    async def items() -> AsyncIterator[bytes]:
        yield b"x"

    async def talk(call: Any, known: Call) -> None:
        assert await call.read() == b"x"
        assert await call.read() is grpc.aio.EOF

    policy = Fallback(value=items(), on=grpc.RpcError) | retry(attempts=1)
    handed(remote, shape, "UNAVAILABLE", talk, policy)


@STREAMS
def test_missing_metadata_are_empty(remote: Server, shape: str) -> None:
    """Not None, for calls that were cancelled, rejected, or replaced by a fallback."""
    breaker = CircuitBreaker(failures=1)
    breaker.isolate()
    policies = {
        "cancelled": retry(),
        "refused": breaker | retry(),
        "replaced": Fallback(value=[b"x"]) | Bulkhead(1) | retry(attempts=1),
    }

    async def talk(call: Any, known: Call) -> None:
        if name == "cancelled":
            assert call.cancel()
        elif name == "refused":
            with pytest.raises(CircuitOpen):
                await call.read()
        for said in (await call.initial_metadata(), await call.trailing_metadata()):
            assert isinstance(said, grpc.aio.Metadata)
            assert dict(said) == {}

    for name, policy in policies.items():
        handed(remote, shape, "hang OK" if name == "cancelled" else "UNAVAILABLE", talk, policy)
