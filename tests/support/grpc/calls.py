"""gRPC calls in every shape and colour, with their results and attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from threading import Event
from typing import Any

import grpc

import redouble
import redouble.grpc
from redouble import Layer, Report, Retry
from tests.support.grpc.server import Attempt, Server

__all__ = [
    "ALL",
    "ONE",
    "OPTIONS",
    "SHAPES",
    "STREAMS",
    "RpcResult",
    "achannel_of",
    "channel_of",
    "make_call",
    "previous_attempts",
    "report_of",
    "request_of",
    "retry",
    "shared_channel",
    "stub_of",
    "summary_of",
    "until",
]

METHODS = {"unary": "Unary", "down": "Down", "up": "Up", "both": "Both"}
SHAPES = tuple(METHODS)
ONE = ("unary", "up")  # shapes with one response
ALL = [
    *((colour, shape) for colour in ("sync", "thread", "aio") for shape in METHODS),
    *(("future", shape) for shape in ONE),
]
STREAMS = [(colour, shape) for colour, shape in ALL if shape not in ONE]
OPTIONS = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
REQUESTS = (b"one", b"two")
MAX_POLLS = 20_000


@dataclass
class RpcResult:
    """The result of a call, and the attempts that the server received."""

    messages: list[bytes]  # the messages received
    error: Any
    attempts: list[Attempt]

    @property
    def code(self) -> str:
        """The name of the status code."""
        return "OK" if self.error is None else self.error.code().name

    @property
    def report(self) -> Report:
        """The report of the error."""
        return report_of(self.error)

    @property
    def reason(self) -> str | None:
        """The reason in the report of the error."""
        return None if self.error is None else str(self.report.reason)


def retry(**options: Any) -> Retry:
    """Return a policy without delays."""
    arguments: dict[str, Any] = {"backoff": [0] * 9, **options}
    return Retry(**arguments)


def report_of(error: object) -> Report:
    """Return the report of an error."""
    report = redouble.report(error)
    assert report is not None
    return report


def request_of(shape: str, *requests: bytes) -> Any:
    """Return the argument for a method of this shape."""
    return list(requests or [b"one"]) if shape in ("up", "both") else b"one"


def until(condition: Callable[[], object]) -> None:
    """Wait until ``condition()`` is true, which another thread causes."""
    never = Event()
    for _ in range(MAX_POLLS):
        if condition():
            return
        never.wait(0.001)
    raise AssertionError("it has not happened")


@cache
def shared_channel(target: str) -> grpc.Channel:
    """Return a channel without interceptors. All tests share it, because connecting takes time."""
    return grpc.insecure_channel(target, options=OPTIONS)


def stub_of(channel: Any, shape: str) -> Any:
    """Return the stub of the method with this shape."""
    stream = {"unary": "unary_unary", "down": "unary_stream", "up": "stream_unary", "both": "stream_stream"}
    return getattr(channel, stream[shape])(f"/test.Echo/{METHODS[shape]}")


def previous_attempts(result: RpcResult) -> list[str | bytes | None]:
    """Return the number of earlier attempts that each attempt sent in its metadata."""
    return [attempt.earlier for attempt in result.attempts]


def make_call(
    server: Server,
    colour: str,
    shape: str,
    script: str,
    policy: Layer | None = None,
    *,
    requests: Iterable[bytes] = REQUESTS,
    metadata: tuple[tuple[str, str], ...] = (),
    **options: Any,
) -> RpcResult:
    """Make a call, read it to its end, and return the result."""
    call, script_metadata = server.script(script)
    request = requests if shape in ("up", "both") else b"one"
    arguments = {"metadata": (*metadata, *script_metadata), **options}
    result = RpcResult([], None, call.attempts)
    if colour == "aio":
        asyncio.run(_aio(result, server, shape, policy, request, arguments))
    elif colour == "thread":
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_sync, result, server, shape, policy, request, arguments).result()
    elif colour == "future":
        _future(result, server, shape, policy, request, arguments)
    else:
        _sync(result, server, shape, policy, request, arguments)
    return result


def channel_of(server: Server, policy: Layer | None = None) -> grpc.Channel:
    """Return a channel that retries."""
    return grpc.intercept_channel(shared_channel(server.target), *redouble.grpc.interceptors(policy))


def achannel_of(server: Server, policy: Layer | None = None, *, before: Any = (), after: Any = ()) -> Any:
    """Return an async channel that retries, with other interceptors around redouble's."""
    interceptors = [*before, *redouble.grpc.aio_interceptors(policy), *after]
    return grpc.aio.insecure_channel(server.target, options=OPTIONS, interceptors=interceptors)


def _sync(
    result: RpcResult, server: Server, shape: str, policy: Any, request: Any, arguments: dict[str, Any]
) -> None:
    stub = stub_of(channel_of(server, policy), shape)
    try:
        if shape in ONE:
            result.messages.append(stub(request, **arguments))
        else:
            result.messages.extend(_each(stub(request, **arguments), result))
    except Exception as error:
        result.error = error


def _each(call: Iterable[bytes], result: RpcResult) -> Iterable[bytes]:
    for message in call:
        result.messages.append(message)
    return ()


def _future(
    result: RpcResult, server: Server, shape: str, policy: Any, request: Any, arguments: dict[str, Any]
) -> None:
    future = stub_of(channel_of(server, policy), shape).future(request, **arguments)
    try:
        result.messages.append(future.result())
    except Exception as error:
        result.error = error


async def _aio(
    result: RpcResult, server: Server, shape: str, policy: Any, request: Any, arguments: dict[str, Any]
) -> None:
    async with achannel_of(server, policy) as channel:
        stub = stub_of(channel, shape)
        try:
            if shape in ONE:
                result.messages.append(await stub(request, **arguments))
            else:
                async for message in stub(request, **arguments):
                    result.messages.append(message)
        except Exception as error:
            result.error = error


def summary_of(result: RpcResult) -> tuple[bytes, str, int, str | None]:
    """Return the messages, the status code, the number of attempts, and the reason of giving up."""
    return b" ".join(result.messages), result.code, len(result.attempts), result.reason
