"""The options of workers, on which blocking code runs so that a caller can stop waiting for it.

The threads and processes themselves are in `_drivers.workers`, which is imported only if used. A worker with
a ``limit`` has slots, which belong to the object: policies that share it share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from redouble._internal.public import public
from redouble._internal.validation import Duration, choice, instance, integer, seconds

if TYPE_CHECKING:
    from dataclasses import field

    from redouble._runtime.slots import Slots


@public("redouble")
@dataclass(frozen=True, repr=False)
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
    limit: how many attempts may run at once, in all policies that share this object; None for any number. A
        thread that was abandoned counts until it ends.
    wait: how long other attempts wait for a worker, at most until their own limit; None for as long as that.
        Then they raise `WorkersBusy`.
    name: its name in `redouble.stats`, errors and events; a worker without a limit has no use for it.
    """

    kind: Literal["thread", "process"] = "thread"
    grace: Duration = 0.1
    overlap: bool = False
    start: Literal["spawn", "forkserver"] = "spawn"
    limit: int | None = None
    wait: Duration | None = 1.0
    name: str | None = None

    if TYPE_CHECKING:  # an attribute, and no field: equal workers may have different slots
        _slots: Slots | None = field(init=False)

    def __post_init__(self) -> None:
        choice(self.kind, "Worker kind", "thread", "process")
        object.__setattr__(self, "grace", seconds(self.grace, "Worker grace"))
        instance(self.overlap, "Worker overlap", bool, "True or False")
        if self.start not in ("spawn", "forkserver"):
            raise ValueError(
                f"Worker start={self.start!r}: write 'spawn' or 'forkserver' "
                "('fork' would copy locks that are never released)"
            )
        if self.wait is not None:
            object.__setattr__(self, "wait", seconds(self.wait, "Worker wait"))
        instance(self.name, "Worker name", str | None, "a text, or None")
        object.__setattr__(self, "_slots", None)
        if self.limit is not None:
            from redouble._runtime.slots import Slots  # noqa: PLC0415  imported only if used
            from redouble._telemetry.registry import register  # noqa: PLC0415

            limit = integer(self.limit, "Worker limit", 1, "a whole number, 1 or more, such as 20, or None")
            object.__setattr__(self, "_slots", Slots(limit))
            register(self, "limits")

    def snapshot(self) -> Mapping[str, int | None]:
        """Return the ``limit``, how many workers are ``in_use``, and how many attempts are ``queued``.

        Of those in use, the ``abandoned`` ones run attempts that were given up, the ``busy`` ones others.
        """
        if self._slots is None:
            return {"limit": None, "in_use": 0, "busy": 0, "abandoned": 0, "queued": 0}
        in_use, queued = self._slots.counts()
        leases = self._slots.leases.copy()
        abandoned = min(in_use, sum(lease.abandoned for lease in leases))
        busy = in_use - abandoned
        return {"limit": self.limit, "in_use": in_use, "busy": busy, "abandoned": abandoned, "queued": queued}

    @property
    def _grace(self) -> float:
        return cast("float", self.grace)  # `__post_init__` has converted a timedelta

    @property
    def _longest_wait(self) -> float:
        """How many seconds an attempt may wait for a worker."""
        if self.limit is None:
            return 0.0
        return inf if self.wait is None else cast("float", self.wait)

    def __copy__(self) -> Self:
        return self  # a value that never changes; its slots are shared by identity

    def __deepcopy__(self, memo: object, /) -> Self:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, option.name) for option in fields(self))

    def __repr__(self) -> str:
        options = ["kind", "grace", "overlap", "start"]
        if self.limit is not None:
            options += ["limit", "wait", *(["name"] if self.name is not None else [])]
        return f"Worker({', '.join(f'{option}={getattr(self, option)!r}' for option in options)})"


def describe_worker(worker: Worker) -> str:
    """Return a few words about a worker with a limit."""
    if worker.limit is None:
        return ""
    several = "threads" if worker.kind == "thread" else "processes"
    return f", on 1 {worker.kind}" if worker.limit == 1 else f", on {worker.limit} {several} at most"


def check_worker(worker: object, option: str) -> None:
    """Validate that this is a `Worker`, and not the class or the name of a kind."""
    instance(worker, option, Worker, "Worker(), or Worker(kind='process')")
