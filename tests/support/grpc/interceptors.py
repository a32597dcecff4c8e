"""Third-party interceptors for all shapes of calls: each delegates to a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

__all__ = ["DelegatingInterceptor", "delegating_interceptors"]

Handler = Callable[[Any, Any, Any], Any]
AsyncHandler = Callable[[Any, Any, Any], Awaitable[Any]]


class DelegatingInterceptor(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """An interceptor for blocking code that delegates to a function."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return self._handler(continuation, client_call_details, request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return self._handler(continuation, client_call_details, request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return self._handler(continuation, client_call_details, request_iterator)

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return self._handler(continuation, client_call_details, request_iterator)


class UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, handler: AsyncHandler) -> None:
        self._handler = handler

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._handler(continuation, client_call_details, request)


class UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, handler: AsyncHandler) -> None:
        self._handler = handler

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._handler(continuation, client_call_details, request)


class StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, handler: AsyncHandler) -> None:
        self._handler = handler

    async def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await self._handler(continuation, client_call_details, request_iterator)


class StreamStream(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, handler: AsyncHandler) -> None:
        self._handler = handler

    async def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await self._handler(continuation, client_call_details, request_iterator)


def delegating_interceptors(handler: AsyncHandler) -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors for async code, one for each shape, that delegate to a coroutine function."""
    return [UnaryUnary(handler), UnaryStream(handler), StreamUnary(handler), StreamStream(handler)]
