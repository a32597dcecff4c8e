"""The interceptors: one for all call shapes of a blocking channel, and one per call shape for `grpc.aio`.

`grpc.aio` registers an interceptor for one shape only, by its class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from redouble._clients.plan import Send
from redouble._clients.policy_binding import PolicyBinding
from redouble._layers.layer import Layer
from redouble.grpc._aio_call import DuplexCall, StreamResponseCall, TaskCall, UnaryResponseCall
from redouble.grpc._attempt import aattempt_stream, aattempt_unary, acall_unary, attempt_stream, attempt_unary
from redouble.grpc._blocking_call import ResponseStream, start_unary
from redouble.grpc._channel_policy import ChannelPolicy, bind_policy
from redouble.grpc._request_stream import RequestSource, requests_of
from redouble.grpc._resend_guard import RpcResendGuard


def _method(
    start: Callable[[RpcResendGuard], Any], send: Send, requests: Callable[[Any], RequestSource]
) -> Any:
    """Return the method of an interceptor for one shape of calls."""

    def intercept(self: Any, continuation: Callable[..., Any], client_call_details: Any, request: Any) -> Any:
        channel_policy: ChannelPolicy = self._binding.current
        return start(channel_policy.begin_call(send, continuation, client_call_details, requests(request)))

    return intercept


_streamed = partial(requests_of, aio=False)


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """The interceptor of one blocking channel: runs the policy of each call."""

    def __init__(self, policy: Layer | None) -> None:
        self._binding = bind_policy(policy, aio=False)

    def __repr__(self) -> str:
        return "<redouble.grpc.interceptors() for grpc, not grpc.aio>"

    intercept_unary_unary = _method(start_unary, attempt_unary, RequestSource)
    intercept_unary_stream = _method(ResponseStream, attempt_stream, RequestSource)
    intercept_stream_unary = _method(start_unary, attempt_unary, _streamed)
    intercept_stream_stream = _method(ResponseStream, attempt_stream, _streamed)


class AioInterceptor:
    """The base of the four `grpc.aio` interceptors: they share the policy of one channel."""

    def __init__(self, binding: PolicyBinding[ChannelPolicy]) -> None:
        self._binding = binding

    def __repr__(self) -> str:
        return "<redouble.grpc.aio_interceptors() for grpc.aio, not grpc>"


async def start_task(call: type[TaskCall], guard: RpcResendGuard) -> TaskCall:
    """Start the policy of a call in a task; return the call at once."""
    return call(guard)


_astreamed = partial(requests_of, aio=True)


class UnaryUnary(AioInterceptor, grpc.aio.UnaryUnaryClientInterceptor):
    """The interceptor of calls with one request and one response."""

    intercept_unary_unary = _method(acall_unary, aattempt_unary, RequestSource)


class UnaryStream(AioInterceptor, grpc.aio.UnaryStreamClientInterceptor):
    """The interceptor of calls with one request and a stream of responses."""

    intercept_unary_stream = _method(partial(start_task, StreamResponseCall), aattempt_stream, RequestSource)


class StreamUnary(AioInterceptor, grpc.aio.StreamUnaryClientInterceptor):
    """The interceptor of calls with a stream of requests and one response."""

    intercept_stream_unary = _method(partial(start_task, UnaryResponseCall), aattempt_unary, _astreamed)


class StreamStream(AioInterceptor, grpc.aio.StreamStreamClientInterceptor):
    """The interceptor of calls with a stream of requests and a stream of responses."""

    intercept_stream_stream = _method(partial(start_task, DuplexCall), aattempt_stream, _astreamed)


def make_aio_interceptors(policy: Layer | None) -> list[grpc.aio.ClientInterceptor]:
    """Return the four interceptors of one channel of `grpc.aio`."""
    binding = bind_policy(policy, aio=True)
    return [kind(binding) for kind in (UnaryUnary, UnaryStream, StreamUnary, StreamStream)]
