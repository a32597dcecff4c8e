"""A gRPC server that follows a script, and records each attempt.

The metadata of a call name its script. A script has a step for each attempt, separated by commas. A step
consists of words: ``head`` sends initial metadata, ``@20`` requests a pushback of 20 ms, ``~20`` a
``RetryInfo`` of 20 ms, ``hang`` waits until the caller disconnects, ``deaf`` reads no requests, ``echo``
returns each request, a status code ends the attempt, and every other word is a message.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Event, Lock
from typing import Any

import grpc

from tests.support.grpc.statuses import after

__all__ = ["Attempt", "Server", "serving"]

_number = count(1)


@dataclass
class Attempt:
    """The server's record of one attempt."""

    metadata: dict[str, str | bytes]
    time_remaining: float
    requests: list[bytes] = field(default_factory=list[bytes])
    ended: Event = field(default_factory=Event)  # set when the attempt has ended for the server

    @property
    def earlier(self) -> str | bytes | None:
        """The number of earlier attempts, as sent in the metadata."""
        return self.metadata.get("grpc-previous-rpc-attempts")


@dataclass
class Call:
    """The server's record of one call: its script and its attempts."""

    steps: list[str]
    attempts: list[Attempt] = field(default_factory=list[Attempt])


class Server(grpc.GenericRpcHandler):
    """The scripted service of the server."""

    def __init__(self, target: str = "") -> None:
        self.calls: dict[str, Call] = {}
        self.target = target
        self._lock = Lock()

    def script(self, text: str) -> tuple[Call, tuple[tuple[str, str], ...]]:
        """Register a script; return the record of its call, and the metadata for that call."""
        name = f"script-{next(_number)}"
        call = self.calls[name] = Call([step.strip() for step in text.split(",")])
        return call, (("script", name),)

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a method."""
        handlers: dict[str, Any] = {
            "/test.Echo/Unary": grpc.unary_unary_rpc_method_handler(self._unary),
            "/test.Echo/Down": grpc.unary_stream_rpc_method_handler(self._unary_stream),
            "/test.Echo/Up": grpc.stream_unary_rpc_method_handler(self._stream_unary),
            "/test.Echo/Both": grpc.stream_stream_rpc_method_handler(self._stream_stream),
        }
        return handlers[handler_call_details.method]

    def _unary(self, request: bytes, context: Any) -> bytes:
        return b"+".join(self._messages(iter([request]), context)) or b"ok"

    def _unary_stream(self, request: bytes, context: Any) -> Iterator[bytes]:
        return self._messages(iter([request]), context)

    def _stream_unary(self, requests: Iterator[bytes], context: Any) -> bytes:
        return b"+".join(self._messages(requests, context)) or b"ok"

    def _stream_stream(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        return self._messages(requests, context)

    def _messages(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        metadata = dict(context.invocation_metadata())
        attempt = Attempt(metadata, context.time_remaining())
        with self._lock:
            call = self.calls[metadata["script"]]
            step = call.steps[min(len(call.attempts), len(call.steps) - 1)]
            call.attempts.append(attempt)
        if not context.add_callback(attempt.ended.set):
            attempt.ended.set()
        words = step.split()
        if "deaf" not in words:
            attempt.requests.extend(requests)
        for word in words:
            if word.isupper():
                if word != "OK":
                    context.abort(grpc.StatusCode[word], "as the script says")
            elif word == "head":
                context.send_initial_metadata((("head", "1"),))
            elif word == "hang":
                attempt.ended.wait()
            elif word.startswith("@"):
                context.set_trailing_metadata((("grpc-retry-pushback-ms", word[1:]),))
            elif word.startswith("~"):
                context.set_trailing_metadata((after(0, int(word[1:]) * 10**6),))
            elif word == "echo":
                for request in requests:
                    attempt.requests.append(request)
                    yield request
            elif word != "deaf":
                yield word.encode()


@contextmanager
def serving() -> Generator[Server]:
    """Run a server on a local port."""
    server = Server()
    pool = ThreadPoolExecutor(32)
    running = grpc.server(pool)
    running.add_generic_rpc_handlers((server,))
    server.target = f"127.0.0.1:{running.add_insecure_port('127.0.0.1:0')}"
    running.start()
    try:
        yield server
    finally:
        running.stop(None).wait()
        pool.shutdown()
