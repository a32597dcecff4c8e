"""Invalid use of the interceptors: the error messages."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

import redouble.grpc
from redouble import Retry
from tests.support.grpc.calls import achannel_of, channel_of, retry, shared_channel, stub_of
from tests.support.grpc.server import Server

ONE_MESSAGE = pytest.mark.parametrize("message", [b"12", bytearray(b"12"), "12"])
UP = pytest.mark.parametrize("shape", ["up", "both"])


def words(message: Any) -> str:
    return f"requests={message!r} is one message: write [{message!r}]"


@ONE_MESSAGE
@UP
def test_a_single_message_instead_of_a_request_stream_raises(
    remote: Server, shape: str, message: Any
) -> None:
    stub = stub_of(channel_of(remote, retry()), shape)
    with pytest.raises(TypeError) as caught:  # gRPC itself would raise only when the stream is read
        stub(message) if shape == "up" else next(iter(stub(message)))
    assert str(caught.value) == words(message)


@ONE_MESSAGE
def test_a_single_message_for_a_future_raises(remote: Server, message: Any) -> None:
    with pytest.raises(TypeError) as caught:
        stub_of(channel_of(remote, retry()), "up").future(message).result()
    assert str(caught.value) == words(message)


@ONE_MESSAGE
@UP
def test_a_single_message_in_async_code_raises(remote: Server, shape: str, message: Any) -> None:
    async def main() -> None:
        async with achannel_of(remote, retry()) as channel:
            call = stub_of(channel, shape)(message)
            with pytest.raises(TypeError) as caught:
                await (call if shape == "up" else call.read())
            assert str(caught.value) == words(message)

    asyncio.run(main())


def test_a_long_message_is_shortened(remote: Server) -> None:
    with pytest.raises(TypeError) as caught:
        stub_of(channel_of(remote, retry()), "up")(b"x" * 10_000)
    assert len(str(caught.value)) < 150


@redouble.retry
def decorated() -> None:
    """Do nothing."""


@pytest.mark.parametrize("make", [redouble.grpc.interceptors, redouble.grpc.aio_interceptors])
@pytest.mark.parametrize("policy", [redouble.retry, decorated, print, int, lambda: None])
def test_a_wrong_policy_raises(make: Any, policy: Any) -> None:
    with pytest.raises(TypeError) as caught:
        make(policy)
    assert str(caught.value).startswith(f"policy={policy!r} is no layer: write ")
    assert str(caught.value).endswith(", or None for the default")


def test_interceptors_of_the_other_colour_raise(remote: Server) -> None:
    """With gRPC's own message, which the documentation quotes."""
    blocking: Any = redouble.grpc.interceptors(Retry())
    other: Any = redouble.grpc.aio_interceptors()
    for wrong in ([blocking], other):
        with pytest.raises(TypeError, match=r"^interceptor must be grpc\.UnaryUnaryClientInterceptor or"):
            grpc.intercept_channel(shared_channel(remote.target), *wrong)
    says = r"^Interceptor <redouble\.grpc\.interceptors\(\) for grpc, not grpc\.aio> must be UnaryUnary"
    with pytest.raises(ValueError, match=says):
        asyncio.run(opened(remote, blocking))
    assert {repr(each) for each in other} == {"<redouble.grpc.aio_interceptors() for grpc.aio, not grpc>"}


async def opened(remote: Server, interceptors: Any) -> None:
    async with grpc.aio.insecure_channel(remote.target, interceptors=interceptors):
        pass
