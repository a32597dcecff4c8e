"""A gRPC echo server in its own process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

METHOD = "/bench.Echo/Say"


@contextmanager
def server() -> Generator[str]:
    """Run the server; yield its address."""
    command = [sys.executable, "-P", str(Path(__file__))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018  for the types
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.stdin.close()  # ends the server


def echo(request: bytes, _: grpc.ServicerContext) -> bytes:
    """Return the request."""
    return request


def serve() -> None:
    """Serve until the other side of standard input is closed."""
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Say": grpc.unary_unary_rpc_method_handler(echo)
    }
    listening = grpc.server(ThreadPoolExecutor(4))
    listening.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", handlers),))
    print(listening.add_insecure_port("127.0.0.1:0"), flush=True)
    listening.start()
    sys.stdin.read()
    listening.stop(None)


if __name__ == "__main__":
    serve()
