"""Third-party interceptors for all shapes of calls: each delegates to a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

__all__ = ["Bystander", "bystanders"]

Does = Callable[[Any, Any, Any], Any]
DoesLater = Callable[[Any, Any, Any], Awaitable[Any]]


class Bystander(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """An interceptor for blocking code that delegates to a function."""

    def __init__(self, does: Does) -> None:
        self._does = does

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return self._does(continuation, client_call_details, request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return self._does(continuation, client_call_details, request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return self._does(continuation, client_call_details, request_iterator)

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return self._does(continuation, client_call_details, request_iterator)


class UnaryUnary(grpc.aio.UnaryUnaryClientInterceptor):
    def __init__(self, does: DoesLater) -> None:
        self._does = does

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._does(continuation, client_call_details, request)


class UnaryStream(grpc.aio.UnaryStreamClientInterceptor):
    def __init__(self, does: DoesLater) -> None:
        self._does = does

    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await self._does(continuation, client_call_details, request)


class StreamUnary(grpc.aio.StreamUnaryClientInterceptor):
    def __init__(self, does: DoesLater) -> None:
        self._does = does

    async def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await self._does(continuation, client_call_details, request_iterator)


class StreamStream(grpc.aio.StreamStreamClientInterceptor):
    def __init__(self, does: DoesLater) -> None:
        self._does = does

    async def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return await self._does(continuation, client_call_details, request_iterator)


def bystanders(does: DoesLater) -> list[grpc.aio.ClientInterceptor]:
    """Return interceptors for async code, one for each shape, that delegate to a coroutine function."""
    return [UnaryUnary(does), UnaryStream(does), StreamUnary(does), StreamStream(does)]
