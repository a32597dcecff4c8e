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
    "Seen",
    "achannel_of",
    "attempts",
    "base",
    "channel_of",
    "dial",
    "report_of",
    "request_of",
    "retry",
    "seen_of",
    "stub_of",
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
MOST_LOOKS = 20_000


@dataclass
class Seen:
    """The result of a call, and the attempts that the server received."""

    got: list[bytes]  # the messages received
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
    said: dict[str, Any] = {"backoff": [0] * 9, **options}
    return Retry(**said)


def report_of(error: object) -> Report:
    """Return the report of an error."""
    report = redouble.report(error)
    assert report is not None
    return report


def request_of(shape: str, *requests: bytes) -> Any:
    """Return the argument for a method of this shape."""
    return list(requests or [b"one"]) if shape in ("up", "both") else b"one"


def until(happened: Callable[[], object]) -> None:
    """Wait until ``happened()`` is true, which another thread causes."""
    never = Event()
    for _ in range(MOST_LOOKS):
        if happened():
            return
        never.wait(0.001)
    raise AssertionError("it has not happened")


@cache
def base(target: str) -> grpc.Channel:
    """Return a channel without interceptors. All tests share it, because connecting takes time."""
    return grpc.insecure_channel(target, options=OPTIONS)


def stub_of(channel: Any, shape: str) -> Any:
    """Return the stub of the method with this shape."""
    stream = {"unary": "unary_unary", "down": "unary_stream", "up": "stream_unary", "both": "stream_stream"}
    return getattr(channel, stream[shape])(f"/test.Echo/{METHODS[shape]}")


def attempts(seen: Seen) -> list[str | bytes | None]:
    """Return the number of earlier attempts that each attempt sent in its metadata."""
    return [attempt.earlier for attempt in seen.attempts]


def dial(
    server: Server,
    colour: str,
    shape: str,
    script: str,
    policy: Layer | None = None,
    *,
    requests: Iterable[bytes] = REQUESTS,
    metadata: tuple[tuple[str, str], ...] = (),
    **options: Any,
) -> Seen:
    """Make a call, read it to its end, and return the result."""
    call, marked = server.script(script)
    request = requests if shape in ("up", "both") else b"one"
    said = {"metadata": (*metadata, *marked), **options}
    seen = Seen([], None, call.attempts)
    if colour == "aio":
        asyncio.run(_aio(seen, server, shape, policy, request, said))
    elif colour == "thread":
        with ThreadPoolExecutor(1) as pool:
            pool.submit(_sync, seen, server, shape, policy, request, said).result()
    elif colour == "future":
        _future(seen, server, shape, policy, request, said)
    else:
        _sync(seen, server, shape, policy, request, said)
    return seen


def channel_of(server: Server, policy: Layer | None = None) -> grpc.Channel:
    """Return a channel that retries."""
    return grpc.intercept_channel(base(server.target), *redouble.grpc.interceptors(policy))


def achannel_of(server: Server, policy: Layer | None = None, *, before: Any = (), behind: Any = ()) -> Any:
    """Return an async channel that retries, with other interceptors around redouble's."""
    interceptors = [*before, *redouble.grpc.aio_interceptors(policy), *behind]
    return grpc.aio.insecure_channel(server.target, options=OPTIONS, interceptors=interceptors)


def _sync(seen: Seen, server: Server, shape: str, policy: Any, request: Any, said: dict[str, Any]) -> None:
    stub = stub_of(channel_of(server, policy), shape)
    try:
        if shape in ONE:
            seen.got.append(stub(request, **said))
        else:
            seen.got.extend(_each(stub(request, **said), seen))
    except Exception as error:
        seen.error = error


def _each(call: Iterable[bytes], seen: Seen) -> Iterable[bytes]:
    for message in call:
        seen.got.append(message)
    return ()


def _future(seen: Seen, server: Server, shape: str, policy: Any, request: Any, said: dict[str, Any]) -> None:
    future = stub_of(channel_of(server, policy), shape).future(request, **said)
    try:
        seen.got.append(future.result())
    except Exception as error:
        seen.error = error


async def _aio(
    seen: Seen, server: Server, shape: str, policy: Any, request: Any, said: dict[str, Any]
) -> None:
    async with achannel_of(server, policy) as channel:
        stub = stub_of(channel, shape)
        try:
            if shape in ONE:
                seen.got.append(await stub(request, **said))
            else:
                async for message in stub(request, **said):
                    seen.got.append(message)
        except Exception as error:
            seen.error = error


def seen_of(seen: Seen) -> tuple[bytes, str, int, str | None]:
    """Return the messages, the status code, the number of attempts, and the reason of giving up."""
    return b" ".join(seen.got), seen.code, len(seen.attempts), seen.reason
