"""The cost of retries for a successful gRPC call, beside the bare channel and gRPC's native retries.

The server is in another process. The samples alternate, as with HTTP. They are processor time of the whole
process, because much of a call runs on gRPC's own threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from time import process_time_ns
from typing import Any

import grpc

import redouble.grpc
from benchmarks import grpc_server
from benchmarks.grpc_server import METHOD
from benchmarks.http import paired
from benchmarks.http_clients import BARE
from benchmarks.server_process import server_process
from benchmarks.table_row import Row
from benchmarks.timing import Effort, Sample

Options = Sequence[tuple[str, object]]

OFF: Options = [("grpc.enable_retries", 0)]
NATIVE, IDLE = "native retries", "an idle interceptor"

row = partial(Row, about="grpc")


class Idle(grpc.UnaryUnaryClientInterceptor):
    """An interceptor that only passes calls on: the cost of an interceptor in gRPC."""

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Pass the call on."""
        return continuation(client_call_details, request)


class AsyncIdle(grpc.aio.UnaryUnaryClientInterceptor):
    """The same for async channels."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Pass the call on."""
        return await continuation(client_call_details, request)


def grpc_calls(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    with server_process(grpc_server.__file__) as target, asyncio.Runner() as runner:
        channels = opened(target)
        variants = {name: blocking(channel.unary_unary(METHOD)) for name, channel in channels.items()}
        yield row("gRPC, blocking: a successful call", paired(variants, 5 * effort.rounds), 1.3, BARE)
        for channel in channels.values():
            channel.close()
        channels = runner.run(aopened(target))
        variants = {name: awaited(runner, channel.unary_unary(METHOD)) for name, channel in channels.items()}
        yield row("gRPC, async: a successful call", paired(variants, 5 * effort.rounds), 1.3, BARE)
        for channel in channels.values():
            runner.run(channel.close())


def opened(target: str) -> dict[str, Any]:
    """Open a channel for each competitor."""

    def channel(options: Options = OFF) -> grpc.Channel:
        return grpc.insecure_channel(target, options)

    return {
        BARE: channel(),
        IDLE: grpc.intercept_channel(channel(), Idle()),
        NATIVE: channel(redouble.grpc.service_config().options),
        "redouble": grpc.intercept_channel(channel(), *redouble.grpc.interceptors()),
    }


async def aopened(target: str) -> dict[str, Any]:
    """Open the channels in async code, because gRPC binds them to the running loop."""

    def channel(options: Options = OFF, **more: Any) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(target, options, **more)

    return {
        BARE: channel(),
        IDLE: channel(interceptors=[AsyncIdle()]),
        NATIVE: channel(redouble.grpc.service_config().options),
        "redouble": channel(interceptors=redouble.grpc.aio_interceptors()),
    }


def blocking(method: Callable[[bytes], Any]) -> Sample:
    """Sample calls one after the other."""

    def sample(times: int) -> float:
        started = process_time_ns()
        for _ in repeat(None, times):
            method(b"hello")
        return (process_time_ns() - started) / times

    return sample


def awaited(runner: asyncio.Runner, method: Callable[[bytes], Awaitable[Any]]) -> Sample:
    """Sample calls that are awaited one after the other."""

    async def sample(times: int) -> float:
        started = process_time_ns()
        for _ in repeat(None, times):
            await method(b"hello")
        return (process_time_ns() - started) / times

    return lambda times: runner.run(sample(times))
