"""Requests written to a call of `grpc.aio` one by one: each goes to one attempt, and none is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest

from tests.support.grpc.calls import achannel_of, report_of, retry, stub_of, until
from tests.support.grpc.server import Call, Server

Talk = Callable[[Any, Call], Coroutine[Any, Any, None]]


def called(remote: Server, shape: str, script: str, talk: Talk, **options: Any) -> None:
    """Make a call without requests, and pass it to ``talk``."""

    async def main() -> None:
        known, metadata = remote.script(script)
        async with achannel_of(remote, retry(**options)) as channel:
            await talk(stub_of(channel, shape)(metadata=metadata), known)

    asyncio.run(main())


def test_requests_and_responses_may_alternate(remote: Server) -> None:
    async def talk(call: Any, known: Call) -> None:
        for word in (b"x", b"y", b"z"):
            await call.write(word)
            assert await call.read() == word
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"late")
        assert (known.attempts[0].requests, len(known.attempts)) == ([b"x", b"y", b"z"], 1)

    called(remote, "both", "deaf echo OK", talk)


def test_a_stream_of_written_requests_gets_one_response(remote: Server) -> None:
    async def talk(call: Any, known: Call) -> None:
        await call.write(b"x")
        await call.write(b"y")
        await call.done_writing()
        assert await call == b"a"
        assert known.attempts[0].requests == [b"x", b"y"]

    called(remote, "up", "a OK", talk)


@pytest.mark.parametrize("shape", ["up", "both"])
def test_a_request_written_after_a_failure_goes_to_the_next_attempt(remote: Server, shape: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        await asyncio.to_thread(until, lambda: retries)
        await call.write(b"x")
        await call.done_writing()
        assert await (call if shape == "up" else call.read()) == b"a"
        assert [attempt.requests for attempt in known.attempts] == [[], [b"x"]]

    retries: list[object] = []
    called(remote, shape, "deaf UNAVAILABLE, a OK", talk, on_retry=retries.append)


@pytest.mark.parametrize("shape", ["up", "both"])
def test_after_a_written_request_a_failure_is_not_retried(remote: Server, shape: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        await call.write(b"x")
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call if shape == "up" else call.read())
        assert report_of(caught.value).reason == "not_replayable"
        assert len(known.attempts) == 1
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"late")

    called(remote, shape, "UNAVAILABLE, a OK", talk)


def test_closing_the_channel_cancels_the_call(remote: Server) -> None:
    async def main() -> None:
        known, metadata = remote.script("deaf echo OK")
        async with achannel_of(remote, retry(on=Exception)) as channel:
            call = stub_of(channel, "both")(metadata=metadata)
            await call.write(b"x")
            assert await call.read() == b"x"
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert call.done()
        with pytest.raises(asyncio.CancelledError):
            await call.read()
        assert len(known.attempts) == 1

    asyncio.run(main())


@pytest.mark.parametrize("shape", ["up", "both"])
def test_no_task_waits_for_requests_after_the_call(remote: Server, shape: str) -> None:
    async def talk(call: Any, known: Call) -> None:
        assert await call.code() is grpc.StatusCode.NOT_FOUND
        for _ in range(10):
            await asyncio.sleep(0)
        waiting = [str(task.get_coro()) for task in asyncio.all_tasks()]
        assert [name for name in waiting if "Requests" in name] == []

    called(remote, shape, "deaf NOT_FOUND", talk)


@pytest.mark.parametrize("shape", ["up", "both"])
def test_a_call_that_the_server_ends_early_is_retried(remote: Server, shape: str) -> None:
    """`grpc.aio` often replaces its status by INTERNAL, because it could not send a request any more."""

    async def main() -> None:
        async with achannel_of(remote, retry(attempts=10)) as channel:
            for _ in range(50):
                _, metadata = remote.script("deaf UNAVAILABLE, a OK")
                call: Any = stub_of(channel, shape)([b"x"] * 3, metadata=metadata)
                assert (await call if shape == "up" else await call.read()) == b"a"

    asyncio.run(main())
