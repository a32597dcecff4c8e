"""Calls over gRPC inside a call with a limit: the server is told the time that is left."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import grpc
import pytest

from redouble import Layer, Pipeline, Retry, Timeout
from redouble.errors import AttemptTimeout, DeadlineExceeded
from tests.support.grpc.calls import ONE, SHAPES, achannel_of, channel_of, request_of, retry, stub_of
from tests.support.grpc.server import Server

LONG, SHORT = 60.0, 0.15  # seconds
STREAMED = [shape for shape in SHAPES if shape not in ONE]

POLICIES: dict[str, Layer] = {
    "none": Pipeline(),
    "a limit": Timeout(9 * LONG) | retry(attempt_timeout=8 * LONG),
}


def ask(server: Server, colour: str, shape: str, policy: Layer, around: Layer, script: str = "a OK") -> float:
    """Make a call inside the attempt of another policy; return the time that the server was told."""
    call, metadata = server.script(script)

    def attempt() -> Any:
        response = stub_of(channel_of(server, policy), shape)(request_of(shape), metadata=metadata)
        return response if shape in ONE else list(response)

    async def aattempt() -> Any:
        async with achannel_of(server, policy) as channel:
            response = stub_of(channel, shape)(request_of(shape), metadata=metadata)
            return await response if shape in ONE else [message async for message in response]

    if colour == "sync":
        around.call(attempt)
    else:
        asyncio.run(around.call(aattempt))
    return call.attempts[0].time_remaining


def told(seconds: float) -> object:
    """Return what the server is told: gRPC rounds up."""
    return pytest.approx(seconds, abs=10)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("around", [Retry(timeout=LONG), Retry(give_up_after=LONG), Timeout(LONG)], ids=repr)
@pytest.mark.parametrize(
    ("colour", "shape"), [*(("sync", shape) for shape in SHAPES), *(("aio", shape) for shape in ONE)]
)
def test_the_server_is_told_the_time_left(
    remote: Server, colour: str, shape: str, policy: Layer, around: Layer
) -> None:
    """By all limits around the call. The client's own limit is longer."""
    if colour == "aio" or isinstance(around, Retry):  # nothing interrupts blocking code
        assert ask(remote, colour, shape, policy, around) == told(LONG)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("shape", STREAMED)
def test_a_limit_that_interrupts_async_code_ends_a_stream(remote: Server, shape: str, policy: Layer) -> None:
    """It may end with the first message, so gRPC is not told."""
    assert ask(remote, "aio", shape, policy, Retry(give_up_after=LONG)) == told(LONG)
    assert ask(remote, "aio", shape, policy, Retry(timeout=LONG)) > 2 * LONG


@pytest.mark.quiet
@pytest.mark.parametrize("shape", ONE)
def test_a_limit_around_interrupts_the_call_before_grpc_does(remote: Server, shape: str) -> None:
    """So its error is the one of the limit."""
    with pytest.raises(DeadlineExceeded):
        ask(remote, "aio", shape, Pipeline(), Retry(timeout=SHORT), "hang OK")
    with pytest.raises(AttemptTimeout):
        ask(remote, "aio", shape, Pipeline(), Timeout(SHORT), "hang OK")


@pytest.mark.parametrize("shape", STREAMED)
@pytest.mark.parametrize("option", ["timeout", "give_up_after"])
@pytest.mark.parametrize("colour", ["sync", "aio"])
def test_the_limits_of_a_stream_around_end_at_its_first_message(
    remote: Server, colour: str, shape: str, option: str
) -> None:
    call, metadata = remote.script("a b OK")
    options: dict[str, Any] = {option: LONG}
    policy = Retry(**options)

    def open_stream(channel: Any) -> Any:
        return stub_of(channel, shape)(request_of(shape), metadata=metadata)

    async def aopen() -> list[object]:
        async with achannel_of(remote, Pipeline()) as channel:
            return [message async for message in policy.stream(partial(open_stream, channel))]

    if colour == "sync":
        received = list(policy.stream(partial(open_stream, channel_of(remote, Pipeline()))))
    else:
        received = asyncio.run(aopen())
    assert received == [b"a", b"b"]
    assert call.attempts[0].time_remaining > 2 * LONG


@pytest.mark.quiet
@pytest.mark.parametrize("shape", STREAMED)
def test_a_stream_without_a_first_message_ends_at_the_limit_around(remote: Server, shape: str) -> None:
    """Blocking code, which the limit cannot interrupt."""
    _, metadata = remote.script("hang OK")
    stub = stub_of(channel_of(remote, Pipeline()), shape)
    policy = Retry(timeout=SHORT, attempts=1)
    with pytest.raises(grpc.RpcError) as caught:
        list(policy.stream(partial(stub, request_of(shape), metadata=metadata)))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
