"""A gRPC echo server in its own process."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

METHOD = "/bench.Echo/Say"


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
