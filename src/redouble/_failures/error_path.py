"""The path of an error: the frames that it has left on its way to a policy, as its traceback lists them.

The path decides whether an inner policy gave up during an attempt, because nesting is a matter of the call
stack: clocks cannot tell an inner call from a concurrent one. Only an error with a stamp is examined, so that
all other calls pay nothing for it.

Some code raises an instance that was raised and caught before: a mock, a future, a broken connection. Python
puts the frames of the new way in front of those of the old one. At that joint, the later frame was not called
by the earlier one. The callers of generators and coroutines that have ended are unknown; there a `raise`
statement tells a joint from an `await`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, TypeVar, cast

from redouble._runtime.call_stack import variables_of

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)


def _raise(error: BaseException) -> None:
    raise error


RAISE = _raise.__code__.co_code[-2]  # the operation code of `raise`, without importing all codes

# Modules whose functions raise the error of another thread in the one that waits for it.
FUTURES = frozenset(
    ("concurrent.futures._base", "multiprocessing.pool", "outcome._impl")
)  # the last is Trio's

SUSPENDED = 0x20 | 0x80 | 0x200  # flags of generators, coroutines and async generators, see `inspect`

_run_holders: set[type] = set()  # classes registered by `holds_run`
_handover_code: set[CodeType] = set()  # functions registered by `hands_over`


def holds_run(kind: T) -> T:
    """Register a class whose objects keep a run in ``_run``, and stand in the frames that the run retries."""
    _run_holders.add(kind)
    return kind


def hands_over(function: F) -> F:
    """Register a function that raises the error of a call that an attempt has made in another thread."""
    _handover_code.add(cast("FunctionType", function).__code__)
    return function


class ErrorPath:
    """The path of the error that an attempt of a policy has failed with.

    Another thread that raises the same instance replaces its traceback, at any time. So the path is read
    once, and counts only if it begins in a frame of this thread's stack, where the policy has caught it.
    """

    def __init__(self, caught: BaseException) -> None:
        trace = caught.__traceback__
        if trace is not None and trace.tb_frame not in _callers(sys._getframe()):
            trace = None
        self._caught, self._trace = caught, trace
        self.driver = None if trace is None else trace.tb_frame
        self._frames: set[FrameType] = set()  # below the driver, so that this attempt has called them
        self.raised_again = False  # True if ordinary code raises an error that was caught somewhere unknown

    def leads_to(self, stamp: object, error: BaseException) -> bool | None:
        """Return True if a policy below this attempt left the stamp on an error, False if an earlier one did.

        ``error`` is the caught one, or a cause or member of it. None: its traceback does not tell.
        """
        trace = self._trace
        if error is not self._caught:
            for _ in self._walk(trace):
                pass  # which collects the frames of this attempt
            trace = error.__traceback__
            if trace is None or not self._is_below(trace.tb_frame):
                return None
        joints: list[TracebackType] = []
        if any(self._holds(frame, stamp) for frame in self._walk(trace, joints.append)):
            return True
        if not joints or (following := joints[0].tb_next) is None:
            return None
        self.raised_again = _raises(joints[0]) and joints[0].tb_frame.f_globals.get("__name__") not in FUTURES
        return self._is_earlier(following.tb_frame)

    def handed_over(self, stamp: object, error: BaseException) -> bool:
        """Return True if a member or cause of the error carries the stamp of a task that failed with it."""
        return error is not self._caught and any(
            self._holds(frame, stamp) for frame in ErrorPath(error)._walk(error.__traceback__)
        )

    def is_in_driver(self, stamp: object) -> bool:
        """Return True if the run of a block in the function that has caught the error left the stamp.

        Do not ask about a driver of this package: reading its variables would keep them and the error.
        """
        return self.driver is not None and self._has(self.driver, stamp)

    def _walk(
        self, trace: TracebackType | None, joined: Callable[[TracebackType], object] = bool
    ) -> Iterator[FrameType]:
        """Yield the frames until the joint to an older path; call ``joined`` with the entry before it."""
        while trace is not None:
            frame, following = trace.tb_frame, trace.tb_next
            if frame is not self.driver:
                self._frames.add(frame)
            yield frame
            if following is not None and not self._continues(trace, following.tb_frame):
                joined(trace)
                return
            trace = following

    def _continues(self, trace: TracebackType, later: FrameType) -> bool:
        """Return True if the error came from the later frame by a call, an `await` or a handover."""
        frame = trace.tb_frame
        code = frame.f_code
        if later.f_back is frame or code in _handover_code:
            return True
        suspended = (code.co_flags | later.f_code.co_flags) & SUSPENDED  # its callers are unknown afterwards
        if suspended and not _raises(trace):
            return True
        return self._is_below(later)

    def _is_below(self, frame: FrameType) -> bool:
        """Return True if this attempt has called the frame."""
        return any(caller in self._frames for caller in _callers(frame))

    def _is_earlier(self, frame: FrameType) -> bool | None:
        """Return False if the frame belongs to an earlier call in this thread; None if that is unknown."""
        *_, root = _callers(frame)
        if self.driver is None or self.driver in _callers(frame):
            return None  # it may be of an earlier attempt, or of this one
        return False if root in _callers(self.driver) else None

    def _holds(self, frame: FrameType, stamp: object) -> bool:
        """Return True if the run that left the stamp was made by this frame, or by a block in it.

        The driver's own frame is above the attempt.
        """
        return frame is not self.driver and self._has(frame, stamp)

    def _has(self, frame: FrameType, stamp: object) -> bool:
        """Return True if the run that left the stamp is among the variables of the frame."""
        try:
            values: list[Any] = [*variables_of(frame).values()]
        except Exception:
            return False  # the namespace of an `exec` may be anything
        return any(
            value is stamp or (type(value) in _run_holders and value._run is stamp) for value in values
        )


def _raises(trace: TracebackType) -> bool:
    """Return True if the error comes from a `raise` statement of this frame."""
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == RAISE


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, its caller, and so on. The callers of a coroutine are known only while it runs."""
    while frame is not None:
        yield frame
        frame = frame.f_back
