"""The interceptors: one for all call shapes of a blocking channel, and one per call shape for `grpc.aio`.

`grpc.aio` registers an interceptor for one shape only, by its class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from redouble._layers.layer import Layer
from redouble.grpc._aio_call import DuplexCall, StreamResponseCall, UnaryResponseCall
from redouble.grpc._attempt import (
    aattempt_stream,
    aattempt_unary,
    arun_policy,
    attempt_stream,
    attempt_unary,
    rpc_of,
)
from redouble.grpc._blocking_call import FutureCall, ResponseStream, call_unary
from redouble.grpc._channel_policy import ChannelPolicy, Shape, channel_policy_of
from redouble.grpc._request_stream import RequestSource, requests_of
from redouble.grpc._resend_guard import RpcResendGuard

__all__ = ["Interceptor", "make_aio_interceptors"]


def name_of(method: str | bytes) -> str:
    """Return the name of a method for events: without the leading slash."""
    text = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
    return text.removeprefix("/")


def _method(start: Callable[..., Any], requests: Callable[[Any], RequestSource]) -> Any:
    """Return the method of an interceptor for one shape of calls."""

    def intercept(
        self: object, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        return start(self, continuation, client_call_details, requests(request))

    return intercept


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """The interceptor of one blocking channel: runs the policy of each call."""

    def __init__(self, policy: Layer | None) -> None:
        self._channel_policy = channel_policy_of(
            policy, {"unary": attempt_unary, "future": attempt_unary, "stream": attempt_stream}, aio=False
        )

    def __repr__(self) -> str:
        return "<redouble.grpc.interceptors() for grpc, not grpc.aio>"

    def _unary(self, continuation: Callable[..., Any], call_details: Any, requests: RequestSource) -> Any:
        # gRPC intercepts a call and a ``.future()`` alike; only the name of its continuation differs.
        is_future = ".future." in getattr(continuation, "__qualname__", "")
        plan = self._channel_policy().plan(name_of(call_details.method), "future" if is_future else "unary")
        guard = RpcResendGuard(plan, continuation, call_details, requests)
        return FutureCall(guard) if is_future else call_unary(guard)

    def _stream(self, continuation: Callable[..., Any], call_details: Any, requests: RequestSource) -> Any:
        channel_policy = self._channel_policy()
        plan = channel_policy.plan(name_of(call_details.method), "stream")
        guard = RpcResendGuard(plan, continuation, call_details, requests)
        return ResponseStream(guard, eager=channel_policy.eager)

    intercept_unary_unary = _method(_unary, RequestSource)
    intercept_unary_stream = _method(_stream, RequestSource)
    intercept_stream_unary = _method(_unary, partial(requests_of, aio=False))
    intercept_stream_stream = _method(_stream, partial(requests_of, aio=False))


class AioInterceptor:
    """The base of the four `grpc.aio` interceptors: they share the policy of one channel."""

    def __init__(self, channel_policy: Callable[[], ChannelPolicy]) -> None:
        self._channel_policy = channel_policy

    def __repr__(self) -> str:
        return "<redouble.grpc.aio_interceptors() for grpc.aio, not grpc>"

    def _guard(
        self, shape: Shape, continuation: Callable[..., Any], call_details: Any, requests: RequestSource
    ) -> RpcResendGuard:
        plan = self._channel_policy().plan(name_of(call_details.method), shape)
        return RpcResendGuard(plan, continuation, call_details, requests)

    async def _unary(self, *call: Any) -> Any:
        """Run the policy of the call; return the call that succeeded, or the response of another layer."""
        guard = self._guard("unary", *call)
        response = await arun_policy(guard)
        rpc = rpc_of(guard, response)
        return response if rpc is None else rpc

    async def _client_stream(self, *call: Any) -> Any:
        """Start the policy of the call in a task; return the call at once."""
        return UnaryResponseCall(self._guard("unary", *call))

    async def _server_stream(self, *call: Any) -> Any:
        """Start the policy of the call in a task; return the call at once."""
        return StreamResponseCall(self._guard("stream", *call))

    async def _duplex(self, *call: Any) -> Any:
        """Start the policy of the call in a task; return the call at once."""
        return DuplexCall(self._guard("stream", *call))


class UnaryUnary(AioInterceptor, grpc.aio.UnaryUnaryClientInterceptor):
    """The interceptor of calls with one request and one response."""

    intercept_unary_unary = _method(AioInterceptor._unary, RequestSource)


class UnaryStream(AioInterceptor, grpc.aio.UnaryStreamClientInterceptor):
    """The interceptor of calls with one request and a stream of responses."""

    intercept_unary_stream = _method(AioInterceptor._server_stream, RequestSource)


class StreamUnary(AioInterceptor, grpc.aio.StreamUnaryClientInterceptor):
    """The interceptor of calls with a stream of requests and one response."""

    intercept_stream_unary = _method(AioInterceptor._client_stream, partial(requests_of, aio=True))


class StreamStream(AioInterceptor, grpc.aio.StreamStreamClientInterceptor):
    """The interceptor of calls with a stream of requests and a stream of responses."""

    intercept_stream_stream = _method(AioInterceptor._duplex, partial(requests_of, aio=True))


def make_aio_interceptors(policy: Layer | None) -> list[grpc.aio.ClientInterceptor]:
    """Return the four interceptors of one channel of `grpc.aio`."""
    channel_policy = channel_policy_of(policy, {"unary": aattempt_unary, "stream": aattempt_stream}, aio=True)
    return [kind(channel_policy) for kind in (UnaryUnary, UnaryStream, StreamUnary, StreamStream)]
