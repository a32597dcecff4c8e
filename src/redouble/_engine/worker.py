"""Workers: where blocking code runs if somebody is to be able to stop waiting for it.

Here is what one says about them. The threads are in `_threads`, the processes in `_processes`; both are
imported by whoever uses them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redouble._internal.public import public
from redouble._internal.validation import Duration, instance, seconds

__all__ = ["Worker", "check_worker"]


@public("redouble")
@dataclass(frozen=True)
class Worker:
    """Where the attempts of a blocking function run, so that they can be limited.

    >>> from redouble import Retry, Worker
    >>> policy = Retry(attempt_timeout=2, worker=Worker())

    kind: ``thread``, or ``process``. A thread cannot be stopped: it is told to, which `redouble.cancelled()`
        tells the operation, and abandoned if it does not. A process is killed; what is sent there and back
        has to be picklable.
    grace: how long to wait for a thread that was told to stop.
    overlap: whether another attempt may begin beside a thread that did not. Else the call ends with
        `WorkerStillRunning`.
    start: how processes are started, ``spawn`` or ``forkserver``.
    """

    kind: Literal["thread", "process"] = "thread"
    grace: Duration = 0.1
    overlap: bool = False
    start: Literal["spawn", "forkserver"] = "spawn"

    _grace: float = field(init=False, repr=False, compare=False)  # the same, surely a number

    def __post_init__(self) -> None:
        if self.kind not in ("thread", "process"):
            raise ValueError(f"Worker kind={self.kind!r}: write 'thread' or 'process'")
        object.__setattr__(self, "grace", seconds(self.grace, "Worker grace"))
        object.__setattr__(self, "_grace", self.grace)
        instance(self.overlap, "Worker overlap", bool, "True or False")
        if self.start not in ("spawn", "forkserver"):
            raise ValueError(
                f"Worker start={self.start!r}: write 'spawn' or 'forkserver' "
                "('fork' would copy locks that nobody ever releases)"
            )


def check_worker(worker: object, option: str) -> None:
    """Accept a worker, and not the class or the name of a kind."""
    instance(worker, option, Worker, "Worker(), or Worker(kind='process')")
