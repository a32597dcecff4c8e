"""Ports that refuse connections, and ports on which connecting hangs."""

from __future__ import annotations

import atexit
import select
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache

HOST = "127.0.0.1"
MOST = 64  # connections that a queue of length 0 may hold, on any system


@cache
def refused_port() -> int:
    """Return a port that refuses connections; it stays bound, so that no other process can listen on it."""
    held = socket.socket()
    atexit.register(held.close)
    held.bind((HOST, 0))
    return int(held.getsockname()[1])


@contextmanager
def black_hole() -> Generator[int]:
    """Yield a port on which connecting hangs: it listens, its queue is full, and no connection is accepted.

    The kernel drops what it cannot queue (Linux does; where it refuses instead, this raises an `OSError`).
    """
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((HOST, 0))
        listener.listen(0)
        address = listener.getsockname()
        stack.enter_context(socket.create_connection(address))  # on Linux the queue is full with this one
        for _ in range(MOST):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
            if not select.select([], [filler], [], 0.02)[1]:
                yield int(address[1])
                return
            if refusal := filler.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(refusal, "a full queue refuses here")
        raise OSError(f"a queue of length 0 holds {MOST} connections here")
