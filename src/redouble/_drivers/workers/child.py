"""The main loop of a worker process: receive a call, make it, send the reply.

`process_pool` has the other end of the connection.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from math import inf
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from redouble._drivers.workers.pickling import pack, unpack
from redouble._redaction.rendering import text_of
from redouble._runtime.deadline import InheritedCalls, deadline
from redouble._runtime.priority import inherit as inherit_priority
from redouble._telemetry.bound_fields import inherit

READY = b"ready"
LOAD = b"load:"
PARENT_POLL = 1.0  # seconds

# The functions that a worker process calls before it ends. `process_pool` adds one when it is imported, which
# happens only in a process that starts workers of its own.
before_exit: list[Callable[[], None]] = []

# The kind of reply, the pickled value or error, and a text in case the other side cannot unpickle it.
Reply: TypeAlias = tuple[str, bytes, str]


def main(wire: Connection) -> None:  # pragma: no cover  not measured in another process
    """Serve until the parent closes the connection. Only the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Read here, before the parent sends a job: the thread may start after the parent has died.
    start_new_thread(_die_with_parent, (os.getppid(),))
    serve(wire)
    for call in before_exit:
        call()


def _die_with_parent(parent_id: int) -> None:  # pragma: no cover  it ends the process
    """End at once when the parent does, also during a call: no process waits for the reply.

    The sentinel is a pipe, which another process may hold open; so the parent's id is polled too.
    """
    parent = parent_process()
    while parent is not None:
        if connection.wait([parent.sentinel], PARENT_POLL) or os.getppid() != parent_id:
            os._exit(1)


def serve(wire: Connection) -> None:
    """Serve one call after the other."""
    try:
        wire.send_bytes(READY)
        while True:
            work = wire.recv_bytes()
            reply = load_function(work) if work.startswith(LOAD) else pack(make_call(work))
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()  # so that printed text precedes the reply, and is not lost by a kill
            del work
            wire.send_bytes(reply)
            del reply
    except (EOFError, OSError):
        return


def load_function(work: bytes) -> bytes:
    """Unpickle a function, to import its module. The call itself will report errors."""
    with suppress(Exception):
        unpack(work.removeprefix(LOAD))
    return READY


def make_call(work: bytes) -> Reply:
    """Make one call; return the reply."""
    try:
        call, left, calls, bound, priority = unpack(work)
        inherit(bound)
        inherit_priority(priority)
        around = InheritedCalls(calls)
    except Exception as error:
        return "unreadable", b"", f"{type(error).__name__}: {text_of(error)}"
    around.apply()
    with JobResult() as ended, nullcontext() if left == inf else deadline(max(0.0, left)):
        ended.value = call()
    around.over = True
    del call
    return ended.reply()


class JobResult(AbstractContextManager["JobResult", bool]):
    """The result or the exception of a job; as a context manager it stores and suppresses any exception."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

    def __exit__(self, kind: object, error: BaseException | None, tb: object) -> bool:
        self.error = error
        return True

    def reply(self) -> Reply:
        """Return the reply to send."""
        kind, payload, text = "value", self.value, ""
        if self.error is not None:
            kind, payload = "error", self.error
            try:
                text = "".join(traceback.format_exception(self.error)).rstrip()
            except Exception:
                text = f"{type(self.error).__name__}: {text_of(self.error)}"
        try:
            return kind, pack(payload), text
        except Exception as error:
            return f"unpicklable {kind}", b"", text or f"{type(payload).__qualname__}: {text_of(error)}"
