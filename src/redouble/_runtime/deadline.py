"""Deadlines: moments that nothing runs past, known to everything inside by the context.

A deadline cuts nothing by itself. Policies and limits ask for it, and so may the caller's own code. Which
attempt of a worker has been given up is known in the same way: to what runs there, its time is over.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar, overload

from redouble._internal.context_exits import ContextExits
from redouble._internal.public import public
from redouble._internal.validation import Duration
from redouble._internal.validation import seconds as checked
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import context_clock

__all__ = [
    "ActiveDeadline",
    "CancellableDeadline",
    "Deadline",
    "cancelled",
    "deadline",
    "remaining",
    "time_left",
    "wait_limit",
]


T = TypeVar("T")


class ActiveDeadline:
    """A deadline in force, by the clock it was set by; ``over`` once its block has been left."""

    __slots__ = ("outer", "over", "reading", "until")

    def __init__(self, until: float, reading: Callable[[], float]) -> None:
        self.until, self.reading = until, reading
        self.over = False
        self.outer = in_force(MOMENT.get())

    def left(self) -> float:
        """Tell the seconds until then."""
        return self.until - self.reading()


class CancellableDeadline(ActiveDeadline):
    """The deadline of one attempt on a worker, which may also be given up before: a job is one."""

    __slots__ = ("cancelled", "then")

    cancelled: bool
    then: Callable[[], object] | None  # how to stop it, where that can be done

    def left(self) -> float:
        return 0.0 if self.cancelled else super().left()

    def end(self, *, in_time: bool) -> None:
        """Learn that nobody waits for the attempt any more; if it has not ended, tell the operation."""
        if in_time:
            self.over = True
            return
        self.cancelled = True
        if self.then is not None:
            self.then()


MOMENT: ContextVar[ActiveDeadline | None] = ContextVar("redouble_deadline", default=None)


def in_force(moment: ActiveDeadline | None) -> ActiveDeadline | None:
    """Return this one, or the first around it that is not over."""
    while moment is not None and moment.over:
        moment = moment.outer
    return moment


def time_left() -> float:
    """Tell the seconds until the earliest deadline here, or infinity; less than zero if it has passed."""
    shortest = inf
    moment = in_force(MOMENT.get())
    while moment is not None:
        shortest = min(shortest, moment.left())
        moment.outer = in_force(moment.outer)  # what is over is forgotten, or it would be for ever
        moment = moment.outer
    return shortest


def wait_limit(wait: float | None) -> float:
    """Say how long to wait for something, None being as long as it takes: at most until the deadline."""
    seconds = inf if wait is None else wait
    if not seconds or not ambient.active:
        return seconds
    context_clock()()  # a clock of a test learns here of the one it goes by
    return min(seconds, max(0.0, time_left()))


class Deadline:
    """What `deadline` returns: for a ``with``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ways_out = ContextExits[ActiveDeadline]()

    def __enter__(self) -> None:
        reading = context_clock()
        moment = ActiveDeadline(reading() + self._seconds, reading)
        MOMENT.set(moment)
        ambient.hold(1)
        self._ways_out.enter(moment)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        moment = self._ways_out.leave()
        moment.over = True
        ambient.hold(-1)
        # Left from another context, or not in the order of entering: being over has to do.
        if MOMENT.get() is moment:
            MOMENT.set(in_force(moment))

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers say so too

        async def __aenter__(self) -> NoReturn:
            raise TypeError("write `with deadline(...)` also in async code: entering and leaving never wait")

        async def __aexit__(self, *_: object) -> None:
            """Be there, so that `async with` comes as far as the message above."""


@public("redouble")
def deadline(seconds: Duration, /) -> Deadline:
    """Set a deadline for everything inside: ``with redouble.deadline(2.0): ...``, also in async code.

    It cuts nothing by itself. But under it every policy and every `Timeout` treats it as a hard limit:
    nothing begins after it, what can be cut is. Of several the earliest counts. Tasks begun inside and
    workers know it too, for as long as the block lasts.
    """
    return Deadline(checked(seconds, "deadline"))


@overload
def remaining() -> float | None: ...
@overload
def remaining(default: T) -> float | T: ...
@public("redouble")
def remaining(default: object = None) -> object:
    """Tell the seconds left until the deadline that is in force here, 0 if it has passed.

    Without one: the default. On a worker the limit of the attempt is a deadline too, so that
    ``requests.get(url, timeout=redouble.remaining(10))`` is never left waiting longer than that.
    """
    seconds = time_left()
    return default if seconds == inf else max(0.0, seconds)


@public("redouble")
def cancelled() -> bool:
    """Say whether the attempt that this code runs in, on a worker, has been given up: time to stop.

    Elsewhere it is False.
    """
    moment = MOMENT.get()
    while moment is not None:
        if isinstance(moment, CancellableDeadline) and moment.cancelled:
            return True
        moment = moment.outer
    return False
