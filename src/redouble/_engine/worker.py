"""The options of workers, on which blocking code runs so that a caller can stop waiting for it.

The threads and processes themselves are in `_drivers.workers`, which is imported only if used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from redouble._internal.public import public
from redouble._internal.validation import Duration, choice, instance, seconds


@public("redouble")
@dataclass(frozen=True)
class Worker:
    """Where the attempts of a blocking function run, so that they can be limited.

    >>> from redouble import Retry, Worker
    >>> policy = Retry(attempt_timeout=2, worker=Worker())

    kind: ``thread``, or ``process``. A thread cannot be killed: it is asked to stop, so that
        `redouble.cancelled()` is True in the operation, and abandoned if it does not. A process is killed;
        the function, its arguments and its result have to be picklable.
    grace: how long to wait for a thread that was asked to stop.
    overlap: True if another attempt may begin beside a thread that did not stop. Otherwise the call ends with
        `WorkerStillRunning`.
    start: how processes are started, ``spawn`` or ``forkserver``.
    """

    kind: Literal["thread", "process"] = "thread"
    grace: Duration = 0.1
    overlap: bool = False
    start: Literal["spawn", "forkserver"] = "spawn"

    def __post_init__(self) -> None:
        choice(self.kind, "Worker kind", "thread", "process")
        object.__setattr__(self, "grace", seconds(self.grace, "Worker grace"))
        instance(self.overlap, "Worker overlap", bool, "True or False")
        if self.start not in ("spawn", "forkserver"):
            raise ValueError(
                f"Worker start={self.start!r}: write 'spawn' or 'forkserver' "
                "('fork' would copy locks that are never released)"
            )

    @property
    def _grace(self) -> float:
        return cast("float", self.grace)  # `__post_init__` has converted a timedelta


def check_worker(worker: object, option: str) -> None:
    """Validate that this is a `Worker`, and not the class or the name of a kind."""
    instance(worker, option, Worker, "Worker(), or Worker(kind='process')")
