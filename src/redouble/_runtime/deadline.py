"""The time left: deadlines, which a context variable carries, and the limits of the calls around this code.

A deadline cancels nothing. Policies and limits read it, and so may the caller's own code. The cancellation of
an attempt on a worker is carried in the same way: in the worker's context no time is left. The calls that
enclose the running code are found on the call stack (`call_stack`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from itertools import chain
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, NoReturn, TypeVar, overload

from redouble._internal.public import public
from redouble._internal.shared_context_manager import Block, SharedContextManager
from redouble._internal.validation import Duration
from redouble._internal.validation import seconds as checked
from redouble._runtime.ambient import ambient
from redouble._runtime.call_stack import EnclosingCall, InheritedCall, calls_of_task, limits
from redouble._runtime.clock import context_clock

T = TypeVar("T")


class ActiveDeadline:
    """A deadline and the clock that it was set by; ``over`` once its block has been left."""

    __slots__ = ("clock", "outer", "over", "until")
    cancelled: bool = False  # set by an attempt on a worker that is given up before its deadline

    def __init__(self, until: float, read_clock: Callable[[], float]) -> None:
        self.until, self.clock = until, read_clock
        self.over = False
        self.outer = in_force(ACTIVE_DEADLINE.get())

    def left(self) -> float:
        """Return the seconds until the deadline; negative if it has passed."""
        return 0.0 if self.cancelled else self.until - self.clock()

    def calls(self) -> Iterator[EnclosingCall]:
        """Yield the calls around the code that set it, if that runs on another stack than the code inside."""
        return iter(())


ACTIVE_DEADLINE: ContextVar[ActiveDeadline | None] = ContextVar("redouble_deadline", default=None)


def in_force(moment: ActiveDeadline | None) -> ActiveDeadline | None:
    """Return this deadline or the nearest outer one whose block has not been left; None without one."""
    while moment is not None and moment.over:
        moment = moment.outer
    return moment


def deadlines() -> Iterator[ActiveDeadline]:
    """Yield the deadlines of this context that are in force, innermost first."""
    moment = in_force(ACTIVE_DEADLINE.get())
    while moment is not None:
        yield moment
        moment.outer = in_force(moment.outer)  # drop those that are over, or the chain would grow for ever
        moment = moment.outer


def deadline_left() -> float:
    """Return the seconds until the earliest deadline of this context, negative after it; infinity if none.

    Policies and timeouts obey it. The limits of the calls around them need not be obeyed: they interrupt, or
    the call around ends its attempts.
    """
    if ACTIVE_DEADLINE.get() is None:
        return inf
    return min((moment.left() for moment in deadlines()), default=inf)


def time_left() -> float:
    """Return the seconds until the earliest limit of this code, negative after it; infinity if none.

    That is a deadline of this context, or a limit of a call around this code.
    """
    shortest = deadline_left()
    if limits.exist:
        for call in enclosing_calls(sys._getframe(1)):
            shortest = min(shortest, call.left())
    return shortest


def uninterrupted_time_left() -> float:
    """Return the time left by limits that interrupt nothing, for clients, which can end their own waits.

    The other limits interrupt at the right moment, and know better which limit it was.
    """
    shortest = deadline_left()
    if limits.exist:
        for call in enclosing_calls(sys._getframe(1)):
            shortest = min(shortest, call.left(soft=True))
    return shortest


def times_left_for_stream() -> tuple[float, float]:
    """Return the time left, and that by limits that interrupt nothing and hold for the whole of a stream.

    The limits of a call of a stream end at its first item.
    """
    shortest = soft = deadline_left()
    if limits.exist:
        for call in enclosing_calls(sys._getframe(1)):
            shortest = min(shortest, call.left())
            soft = soft if call.ends_with_first_item else min(soft, call.left(soft=True))
    return shortest, soft


def time_left_around(own: EnclosingCall, driver: FrameType) -> float:
    """Return the time left by limits around a call that interrupt nothing, for the delays of that call.

    The frame of its own driver is not read.
    """
    calls = (call for call in calls_of_task(driver.f_back) if call is not own)
    return min((call.left(soft=True) for call in calls), default=inf)


def is_limited() -> bool:
    """Return True if a deadline, or a limit that interrupts nothing, limits a client here."""
    return uninterrupted_time_left() < inf


def enclosing_calls(frame: FrameType | None) -> Iterator[EnclosingCall]:
    """Yield the calls that enclose the running frame: of its task, innermost first, then the inherited."""
    calls = calls_of_task(frame)
    if ACTIVE_DEADLINE.get() is None:
        return calls
    return chain(calls, chain.from_iterable(moment.calls() for moment in deadlines()))


def inherited_calls(frame: FrameType | None, clock: Callable[[], float]) -> list[InheritedCall]:
    """Return the calls that enclose the running frame, for code that it starts elsewhere."""
    return [InheritedCall(call, clock) for call in enclosing_calls(frame)]


def wait_limit(wait: float | None) -> float:
    """Return the seconds to wait, at most the time left; ``wait=None`` is no limit of its own."""
    seconds = inf if wait is None else wait
    if not seconds or not (ambient.active or limits.exist):
        return seconds
    context_clock()()  # so that a virtual clock synchronises with its event loop
    return min(seconds, max(0.0, time_left()))


def async_wait_limit() -> float:
    """Return the seconds until the earliest deadline, for async code that waits for a call to end.

    The limits of the calls around are not looked for: each interrupts the wait, or nothing that runs.
    """
    if ambient.active:
        context_clock()()  # as above
    return max(0.0, deadline_left())


class InheritedCalls(ActiveDeadline):
    """The calls around code that runs elsewhere, which are set in its context. It is no deadline itself."""

    def __init__(self, calls: Iterable[InheritedCall]) -> None:
        super().__init__(inf, context_clock())
        self._calls = [*calls]

    def calls(self) -> Iterator[EnclosingCall]:
        return iter(self._calls)

    def shortest(self) -> float:
        """Return the seconds until the earliest limit of these calls; infinity without one."""
        return min((call.left() for call in self._calls), default=inf)

    def apply(self) -> None:
        """Set it in the current context."""
        ACTIVE_DEADLINE.set(self)


class DeadlineBlock(ActiveDeadline, Block[None]):
    """The deadline of one ``with``."""

    def begin(self) -> None:
        """Put it in force in this context."""
        ACTIVE_DEADLINE.set(self)
        ambient.add(self)

    def leave(self, error: BaseException | None) -> None:  # noqa: ARG002
        """Take it out of force in all contexts."""
        # If the block is left in another context, or out of order, `over` alone ends the deadline.
        self.over = True
        ambient.remove(self)
        if ACTIVE_DEADLINE.get() is self:
            ACTIVE_DEADLINE.set(in_force(self))


class Deadline(SharedContextManager[None]):
    """The context manager that `deadline` returns."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def _new_block(self) -> DeadlineBlock:
        read_clock = context_clock()
        return DeadlineBlock(read_clock() + self._seconds, read_clock)

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers reject `async with`

        async def __aenter__(self) -> NoReturn:
            raise TypeError("write `with deadline(...)` also in async code: entering and leaving never wait")

        async def __aexit__(self, *_: object) -> None:
            """Exist, so that `async with` reaches the message above."""


@public("redouble")
def deadline(seconds: Duration, /) -> Deadline:
    """Set a deadline for everything inside: ``with redouble.deadline(2.0): ...``, also in async code.

    It cancels nothing by itself, but every policy and every `Timeout` inside treats it as a hard limit: no
    attempt starts after it, and a running one is cancelled if that is possible. Of several deadlines the
    earliest counts. Tasks and workers that are started inside inherit it while the block lasts.
    """
    return Deadline(checked(seconds, "deadline"))


@overload
def remaining() -> float | None: ...
@overload
def remaining(default: T) -> float | T: ...
@public("redouble")
def remaining(default: object = None) -> object:
    """Return the seconds that are left for the running code, 0 if none; the default if it has no limit.

    It is the shortest of the deadlines around the code and of the limits of each `Timeout` and `Retry` that
    has called it: ``timeout``, ``attempt_timeout``, ``work_timeout``, and ``give_up_after`` if that was set.
    So ``requests.get(url, timeout=redouble.remaining(10))`` never waits longer than the call may.
    A task is part of the call that awaits it; a thread that is no worker is part of none.
    """
    seconds = time_left()
    return default if seconds == inf else max(0.0, seconds)


@public("redouble")
def cancelled() -> bool:
    """Return True if this code runs in an attempt on a worker that has been given up, so that it should stop.

    Outside of workers it is False.
    """
    moment = ACTIVE_DEADLINE.get()
    while moment is not None:
        if moment.cancelled:
            return True
        moment = moment.outer
    return False
