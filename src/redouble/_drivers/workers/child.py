"""What runs in a worker process: it is sent a call, makes it, sends back what came of it, and so on.

`_pool` has the other end of the wire.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from _thread import start_new_thread
from collections.abc import Callable
from contextlib import nullcontext, suppress
from math import inf
from multiprocessing import connection, parent_process
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeAlias

from redouble._drivers.workers.pickling import pack, unpack
from redouble._runtime.deadline import deadline
from redouble._telemetry.binding import inherit

__all__ = ["LOAD", "READY", "Reply", "before_exit", "main"]


READY = b"ready"
LOAD = b"load:"
PARENT_POLL = 1.0  # seconds

# What a worker process calls before it ends. `_pool` adds to it when it is imported, which happens only in a
# process that starts workers of its own.
before_exit: list[Callable[[], None]] = []

# What it was, that as bytes, and in words, for the case that the bytes cannot be read on the other side.
Reply: TypeAlias = tuple[str, bytes, str]


def main(wire: Connection) -> None:  # pragma: no cover  it runs in another process, where nobody counts
    """Serve until the other side is gone. Ctrl-C is its business, not ours."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start_new_thread(_die_with_parent, ())
    serve(wire)
    for call in before_exit:
        call()


def _die_with_parent() -> None:  # pragma: no cover  it ends the process
    """End at once when the parent does, however busy we are: nobody waits for the answer.

    Its end is seen by a pipe, which somebody else may hold open; so we look ourselves too, now and then.
    """
    parent, ours = parent_process(), os.getppid()
    while parent is not None:
        if connection.wait([parent.sentinel], PARENT_POLL) or os.getppid() != ours:
            os._exit(1)


def serve(wire: Connection) -> None:
    """Reply one call after the other."""
    try:
        wire.send_bytes(READY)
        while True:
            work = wire.recv_bytes()
            answered = load_function(work) if work.startswith(LOAD) else pack(make_call(work))
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()  # what was printed comes before what was made, and is not lost with us
            del work
            wire.send_bytes(answered)
            del answered
    except (EOFError, OSError):
        return


def load_function(work: bytes) -> bytes:
    """Import what a call needs. What is wrong with it, the call will tell."""
    with suppress(Exception):
        unpack(work.removeprefix(LOAD))
    return READY


def make_call(work: bytes) -> Reply:
    """Make one call."""
    try:
        fn, args, kwargs, left, bound = unpack(work)
        inherit(bound)
    except Exception as error:
        return "unreadable", b"", f"{type(error).__name__}: {error}"
    ended = JobResult()
    with ended, nullcontext() if left == inf else deadline(max(0.0, left)):
        ended.value = fn(*args, **kwargs)
    del fn, args, kwargs
    return ended.reply()


class JobResult:
    """How a call ended: whatever it raised is sent back, and nothing ends the process."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        self.error = error
        return True

    def reply(self) -> Reply:
        """Make it fit to be sent."""
        what = "value" if self.error is None else "error"
        told = "" if self.error is None else "".join(traceback.format_exception(self.error)).rstrip()
        try:
            return what, pack(self.value if self.error is None else self.error), told
        except Exception as error:
            made = self.value if self.error is None else self.error
            return f"unpicklable {what}", b"", told or f"{type(made).__qualname__}: {error}"
