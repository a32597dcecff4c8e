"""Interruptions: an action that runs at one point of some modules, on the interrupted thread."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from ctypes import py_object, pythonapi
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

# After these opcodes Python checks for signals, and not after others of similar names.
CHECKED = frozenset(("CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME"))
NOWHERE = -1
CHECKED_BEFORE = "a jump before which Python checks for signals"


@contextmanager
def interrupted(
    modules: Sequence[ModuleType], action: Callable[[], None], number: int
) -> Generator[list[bool]]:
    """Run ``action`` at one call or return in these modules, and yield a list that is empty until it has run.

    The calls and returns are numbered from 0. A test that tries all numbers should check that number 0
    exists: otherwise it names modules that do not run, and checks nothing.
    """
    files = {module.__file__ for module in modules}
    left, ran = [number], list[bool]()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if ran or frame.f_code.co_filename not in files:
            return
        if event == "c_call" and arg.__name__ == "__exit__":
            return  # of a lock: Python checks for signals after the call, and not before it
        left[0] -= 1
        if left[0] < 0:
            ran.append(True)
            action()

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield ran
    finally:
        sys.setprofile(before)


@cache
def _opcodes(code: CodeType) -> dict[int, str]:
    opcodes = {step.offset: step.opname for step in dis.get_instructions(code)}
    if sys.version_info >= (3, 13):
        # It checks before it jumps, so inside the `try` that a jump leaves. The tables of 3.13.0 lack the
        # jumps of most `while` loops: there Ctrl-C escapes every `try`, which no library can prevent.
        jumps = {offset for offset in _tries(code) if opcodes.get(offset) == "JUMP_BACKWARD"}
        opcodes |= dict.fromkeys(jumps, CHECKED_BEFORE)
    return opcodes


@cache
def _following(code: CodeType) -> dict[int, int]:
    """Return the offset of the opcode that follows, for each one after which Python checks for signals.

    Python raises the error of a handler as if the opcode in front of that one had raised it, also after a
    jump. So those are omitted where another `try` begins, or one ends.
    """
    names, tries = _opcodes(code), _tries(code)
    following = {
        step.offset: step.argval if step.opname == "JUMP_BACKWARD" else after.offset
        for step, after in pairwise(dis.get_instructions(code))
        if names[step.offset] in CHECKED
    }
    return {at: after for at, after in following.items() if tries.get(after) == tries.get(after - 2)}


def _tries(code: CodeType) -> dict[int, int]:
    """Return where the handler is for each offset inside a `try`."""
    parse: Any = vars(dis)["_parse_exception_table"]
    return {at: entry.target for entry in parse(code) for at in range(entry.start, entry.end, 2)}


def ctrl_c() -> NoReturn:
    """Raise KeyboardInterrupt, as the handler of SIGINT does."""
    raise KeyboardInterrupt


class SignalHandler:
    """A simulated signal handler, which runs at the n-th point where Python checks for signals in some files.

    ``everywhere``: it runs at the n-th opcode instead, although Python would not run it at all of them.
    """

    def __init__(
        self, files: set[str | None], action: Callable[[], object], number: int, *, everywhere: bool = False
    ) -> None:
        self._files, self._action, self._left, self._everywhere = files, action, number, everywhere
        self._last: dict[FrameType, int] = {}  # the offset of the last opcode

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "call" and frame.f_back is not None:
            self._last[frame.f_back] = NOWHERE  # the return of a Python function is no such point
        if frame.f_code.co_filename not in self._files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and self._left > 0:
            self._left -= self._everywhere or self._is_checked(frame)
            self._last[frame] = frame.f_lasti
            if not self._left:
                self._action()
        return self._trace

    def _is_checked(self, frame: FrameType) -> bool:
        """Return True if Python checks for signals before this opcode.

        Python 3.12 does not trace all opcodes of a frame, so the last one may not be the one before.
        """
        code, at = frame.f_code, frame.f_lasti
        if _opcodes(code).get(at) == CHECKED_BEFORE:
            return True
        return _following(code).get(self._last.get(frame, NOWHERE)) == at

    def interrupt(self, work: Callable[[], object], *expected: type[BaseException]) -> bool:
        """Run ``work`` with the handler, with these errors; return True if the n-th point was reached."""
        before, handled = sys.gettrace(), sys.exc_info()[1]
        sys._getframe().f_trace_opcodes = True  # without this Python 3.12 traces no opcodes
        sys.settrace(self._trace)
        try:
            work()
        except expected:
            pass
        finally:
            sys.settrace(before)
        if handled is None and sys.exc_info()[1] is not None:
            # An error of a trace function, inside a `with suppress(...)` of an async generator, leaves the
            # suppressed error as the one that is being handled: it would be the context of all later ones.
            # A signal handler does not run there.
            pythonapi.PyErr_SetHandledException(py_object(None))
        return self._left <= 0
