"""The interceptors: one for all call shapes of a blocking channel, and one per call shape for `grpc.aio`.

`grpc.aio` registers an interceptor for one shape only, by its class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from redouble._clients.plan import Send
from redouble._layers.layer import Layer
from redouble.grpc._aio_call import AioResendGuard, DuplexCall, StreamResponseCall, UnaryResponseCall, run
from redouble.grpc._attempt import (
    aattempt_stream,
    aattempt_unary,
    attempt_stream,
    attempt_unary,
    finish_unary,
    name_of,
)
from redouble.grpc._channel_policy import ChannelPolicy, Shape, channel_policy_of
from redouble.grpc._future import FutureCall
from redouble.grpc._request_stream import RequestSource, requests_of
from redouble.grpc._resend_guard import RpcResendGuard
from redouble.grpc._response_stream import ResponseStream

__all__ = ["Interceptor", "make_aio_interceptors"]


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """The interceptor of one blocking channel: runs the policy of each call."""

    def __init__(self, policy: Layer | None) -> None:
        sends: dict[Shape, Send] = {"unary": attempt_unary, "future": attempt_unary, "stream": attempt_stream}
        self._channel_policy = channel_policy_of(policy, sends, aio=False)

    def __repr__(self) -> str:
        return "<redouble.grpc.interceptors() for grpc, not grpc.aio>"

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.ClientCallDetails, request: Any
    ) -> Any:
        """Retry a call with one request and one response."""
        return self._unary(continuation, client_call_details, RequestSource(request))

    def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.ClientCallDetails, request: Any
    ) -> Any:
        """Retry a call with one request and a stream of responses, until its first response."""
        return self._stream(continuation, client_call_details, RequestSource(request))

    def intercept_stream_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        """Retry a call with a stream of requests and one response, as long as its requests can be resent."""
        return self._unary(continuation, client_call_details, requests_of(request_iterator, aio=False))

    def intercept_stream_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        """Retry a call with two streams, until its first response, as long as its requests can be resent."""
        return self._stream(continuation, client_call_details, requests_of(request_iterator, aio=False))

    def _unary(self, continuation: Callable[..., Any], call_details: Any, requests: RequestSource) -> Any:
        # gRPC intercepts a call and a ``.future()`` alike; only the name of its continuation differs.
        is_future = ".future." in getattr(continuation, "__qualname__", "")
        plan = self._channel_policy().plan(name_of(call_details.method), "future" if is_future else "unary")
        guard = RpcResendGuard(plan, continuation, call_details, requests)
        return FutureCall(guard) if is_future else finish_unary(guard)

    def _stream(
        self, continuation: Callable[..., Any], call_details: Any, requests: RequestSource
    ) -> ResponseStream:
        channel_policy = self._channel_policy()
        plan = channel_policy.plan(name_of(call_details.method), "stream")
        return ResponseStream(
            RpcResendGuard(plan, continuation, call_details, requests), eager=channel_policy.eager
        )


class AioInterceptor:
    """The base of the four `grpc.aio` interceptors: they share the policy of one channel."""

    def __init__(self, channel_policy: Callable[[], ChannelPolicy]) -> None:
        self._channel_policy = channel_policy

    def __repr__(self) -> str:
        return "<redouble.grpc.aio_interceptors() for grpc.aio, not grpc>"

    def _guard(
        self, continuation: Callable[..., Any], call_details: Any, requests: RequestSource, shape: Shape
    ) -> AioResendGuard:
        plan = self._channel_policy().plan(name_of(call_details.method), shape)
        return AioResendGuard(plan, continuation, call_details, requests)


class UnaryUnary(AioInterceptor, grpc.aio.UnaryUnaryClientInterceptor):
    """The interceptor of calls with one request and one response."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Run the policy of the call; return the call that succeeded, or the response of another layer."""
        guard = self._guard(continuation, client_call_details, RequestSource(request), "unary")
        response = await run(guard)
        same = response is guard.response and guard.current is not None
        return guard.current if same else response


class UnaryStream(AioInterceptor, grpc.aio.UnaryStreamClientInterceptor):
    """The interceptor of calls with one request and a stream of responses."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Start the policy of the call in a task; return the call at once."""
        return StreamResponseCall(
            self._guard(continuation, client_call_details, RequestSource(request), "stream")
        )


class StreamUnary(AioInterceptor, grpc.aio.StreamUnaryClientInterceptor):
    """The interceptor of calls with a stream of requests and one response."""

    async def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Start the policy of the call in a task; return the call at once."""
        requests = requests_of(request_iterator, aio=True)
        return UnaryResponseCall(self._guard(continuation, client_call_details, requests, "unary"))


class StreamStream(AioInterceptor, grpc.aio.StreamStreamClientInterceptor):
    """The interceptor of calls with a stream of requests and a stream of responses."""

    async def intercept_stream_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Start the policy of the call in a task; return the call at once."""
        requests = requests_of(request_iterator, aio=True)
        return DuplexCall(self._guard(continuation, client_call_details, requests, "stream"))


def make_aio_interceptors(policy: Layer | None) -> list[grpc.aio.ClientInterceptor]:
    """Return the four interceptors of one channel of `grpc.aio`."""
    channel_policy = channel_policy_of(policy, {"unary": aattempt_unary, "stream": aattempt_stream}, aio=True)
    return [
        UnaryUnary(channel_policy),
        UnaryStream(channel_policy),
        StreamUnary(channel_policy),
        StreamStream(channel_policy),
    ]
