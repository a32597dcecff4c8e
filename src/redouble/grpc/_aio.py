"""The interceptors of channels of `grpc.aio`: one for each shape of calls, because gRPC wants it so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from redouble._layers.layer import Layer
from redouble.grpc._aio_call import AioPermit, Answering, run
from redouble.grpc._aio_reading import Reading, ReadingAndWriting
from redouble.grpc._attempt import aanswered, aopened
from redouble.grpc._details import name_of
from redouble.grpc._requests import Replayable, requests_of
from redouble.grpc._terms import Shape, Terms, terms_of

__all__ = ["aio_shapes"]


class OfOneShape:
    """What the four have in common: the terms, of which there is one for a channel."""

    def __init__(self, terms: Callable[[], Terms]) -> None:
        self._terms = terms

    def __repr__(self) -> str:
        return "<redouble.grpc.aio_interceptors() for grpc.aio, not grpc>"

    def _permit(
        self, continuation: Callable[..., Any], said: Any, requests: Replayable, shape: Shape
    ) -> AioPermit:
        plan = self._terms().plan(name_of(said.method), shape)
        return AioPermit(plan, continuation, said, requests)


class UnaryUnary(OfOneShape, grpc.aio.UnaryUnaryClientInterceptor):
    """Makes the attempts of calls with one request and one response."""

    async def intercept_unary_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Make attempts."""
        permit = self._permit(continuation, client_call_details, Replayable(request), "unary")
        response = await run(permit)
        same = response is permit.response and permit.current is not None
        return permit.current if same else response


class UnaryStream(OfOneShape, grpc.aio.UnaryStreamClientInterceptor):
    """Makes the attempts of calls with one request, until their first response."""

    async def intercept_unary_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request: Any
    ) -> Any:
        """Begin to make attempts."""
        return Reading(self._permit(continuation, client_call_details, Replayable(request), "stream"))


class StreamUnary(OfOneShape, grpc.aio.StreamUnaryClientInterceptor):
    """Makes the attempts of calls with one response, as long as their requests can be sent."""

    async def intercept_stream_unary(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Begin to make attempts."""
        requests = requests_of(request_iterator, aio=True)
        return Answering(self._permit(continuation, client_call_details, requests, "unary"))


class StreamStream(OfOneShape, grpc.aio.StreamStreamClientInterceptor):
    """Makes the attempts of calls, until their first response, as long as their requests can be sent."""

    async def intercept_stream_stream(
        self, continuation: Callable[..., Any], client_call_details: Any, request_iterator: Any
    ) -> Any:
        """Begin to make attempts."""
        requests = requests_of(request_iterator, aio=True)
        return ReadingAndWriting(self._permit(continuation, client_call_details, requests, "stream"))


def aio_shapes(policy: Layer | None) -> list[grpc.aio.ClientInterceptor]:
    """Make all four for one channel."""
    terms = terms_of(policy, {"unary": aanswered, "stream": aopened}, aio=True)
    return [UnaryUnary(terms), UnaryStream(terms), StreamUnary(terms), StreamStream(terms)]
