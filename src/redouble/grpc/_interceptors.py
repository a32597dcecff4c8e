"""The interceptor of blocking channels, for all shapes of calls. Whether to retry is up to its policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from redouble._clients.plan import Send
from redouble._layers.layer import Layer
from redouble.grpc._attempt import answered, concluded, opened
from redouble.grpc._details import name_of
from redouble.grpc._future import Future
from redouble.grpc._permit import Permit
from redouble.grpc._requests import Replayable, requests_of
from redouble.grpc._stream import Stream
from redouble.grpc._terms import Shape, terms_of

__all__ = ["Interceptor"]


class Interceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Makes the attempts of the calls of one channel."""

    def __init__(self, policy: Layer | None) -> None:
        sends: dict[Shape, Send] = {"unary": answered, "future": answered, "stream": opened}
        self._terms = terms_of(policy, sends, aio=False)

    def __repr__(self) -> str:
        return "<redouble.grpc.interceptors() for grpc, not grpc.aio>"

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: grpc.ClientCallDetails, request: Any
    ) -> Any:
        """Make attempts at a call with one request and one response."""
        return self._unary(continuation, client_call_details, Replayable(request))

    def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: grpc.ClientCallDetails, request: Any
    ) -> Any:
        """Make attempts at a call with one request, until its first response."""
        return self._stream(continuation, client_call_details, Replayable(request))

    def intercept_stream_unary(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        """Make attempts at a call with one response, as long as its requests can be sent."""
        return self._unary(continuation, client_call_details, requests_of(request_iterator, aio=False))

    def intercept_stream_stream(
        self,
        continuation: Callable[..., Any],
        client_call_details: grpc.ClientCallDetails,
        request_iterator: Any,
    ) -> Any:
        """Make attempts, until the first response, as long as the requests can be sent."""
        return self._stream(continuation, client_call_details, requests_of(request_iterator, aio=False))

    def _unary(self, continuation: Callable[..., Any], said: Any, requests: Replayable) -> Any:
        # gRPC asks in the same way for a response and for a future, and only its own function knows which.
        ahead = ".future." in getattr(continuation, "__qualname__", "")
        plan = self._terms().plan(name_of(said.method), "future" if ahead else "unary")
        permit = Permit(plan, continuation, said, requests)
        return Future(permit) if ahead else concluded(permit)

    def _stream(self, continuation: Callable[..., Any], said: Any, requests: Replayable) -> Stream:
        terms = self._terms()
        plan = terms.plan(name_of(said.method), "stream")
        return Stream(Permit(plan, continuation, said, requests), eager=terms.eager)
