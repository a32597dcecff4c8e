"""The calls that enclose the running code, found on the call stack.

A driver keeps the state of its call in local variables. So code that asks for the time left, or for the
number of its attempt, walks up the call stack to the drivers, and calls pay nothing until code inside them
asks. A coroutine that runs is on the stack, below those that await it; one that is suspended is not. The
stack of a task goes on in the task that awaits it.

Rule 1: a module registers the functions whose frames hold a call, by name and file, with a reader of such
        frames (`holds_call`).
Rule 2: the attempt of a block is in a frame of the caller's, under any name. `blocks.read` is None until
        there is a block in this process; before that no frame of the caller's is read.
Rule 3: what our drivers start elsewhere (on a worker, in a task of a hedge) has a stack of its own. They pass
        on what encloses the call: see `ActiveDeadline`.
Rule 4: a task that the caller starts is part of the calls around the task that awaits it, if a cancellation
        of that one would cancel it too: then their limits are its limits.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf
from opcode import opmap
from types import AsyncGeneratorType, CodeType, CoroutineType, FrameType, GeneratorType
from typing import Any, Protocol, TypeAlias

from redouble._internal.codegen import is_own
from redouble._runtime.backend import backend, in_event_loop
from redouble._runtime.clock import context_clock


class EnclosingCall(Protocol):
    """A call that encloses the running code: of a policy, or of a limit alone (``attempt`` is 0)."""

    @property
    def attempt(self) -> int:
        """The number of the running attempt; 0 if this is no call of a policy."""
        ...

    @property
    def attempts(self) -> int | None:
        """The most attempts of the call; None for no limit."""
        ...

    @property
    def name(self) -> str:
        """The name of the call, as in its events."""
        ...

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its policy."""
        ...

    @property
    def ends_with_first_item(self) -> bool:
        """True if its limits end with the first item of a stream."""
        ...

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until its earliest limit, negative after it; infinity without one.

        ``soft``: of the limits that do not interrupt the code inside.
        """
        ...


class InheritedCall:
    """A call around the code that started a worker, for code on the worker: any thread may ask it.

    Pickled, for a worker process, it has the seconds that are left.
    """

    def __init__(self, call: EnclosingCall, clock: Callable[[], float]) -> None:
        self.attempt, self.attempts, self.name, self.labels = (
            call.attempt,
            call.attempts,
            call.name,
            call.labels,
        )
        self.ends_with_first_item = call.ends_with_first_item
        self._clock, now = clock, clock()
        self._until, self._soft_until = now + call.left(), now + call.left(soft=True)

    def left(self, *, soft: bool = False) -> float:
        """Return the seconds until its earliest limit, negative after it; ``soft``: as in `EnclosingCall`."""
        return (self._soft_until if soft else self._until) - self._clock()

    def __reduce__(self) -> tuple[type[SentCall], tuple[object, ...]]:
        call = self.attempt, self.attempts, self.name, dict(self.labels), self.ends_with_first_item
        return SentCall, (*call, self.left(), self.left(soft=True))


class SentCall(InheritedCall):
    """A call of another process."""

    def __init__(
        self,
        attempt: int,
        attempts: int | None,
        name: str,
        labels: Mapping[str, str],
        ends_with_first_item: bool,
        left: float,
        soft_left: float,
    ) -> None:
        self.attempt, self.attempts, self.name, self.labels = attempt, attempts, name, labels
        self.ends_with_first_item = ends_with_first_item
        self._clock = context_clock()
        self._until, self._soft_until = self._clock() + left, self._clock() + soft_left
        limits.exist |= left < inf


OPTIMIZED = 1  # the flag of code whose variables are not in a dict: CO_OPTIMIZED of `inspect`
UNSHARED = 3  # references to the dict of a frame: that of the frame, a variable here, an argument


def variables_of(frame: FrameType) -> Mapping[str, Any]:
    """Return the variables of a frame, without keeping their values alive.

    Before Python 3.13 a frame keeps the dict of its variables, with the values that they had, until its
    function returns. So this function clears it, unless other code may use it: a caller of `locals()`, an
    `exec` that has added names, or a debugger or profiler, after which Python sets the variables by it.
    """
    code = frame.f_code
    kept = frame.f_locals
    if not code.co_flags & OPTIMIZED or not isinstance(kept, dict):
        return kept  # Python 3.13; or a module, a class or an `exec`, whose variables these are
    # Another thread, or a signal handler, may have cleared the dict before it is copied.
    variables = kept.copy() or frame.f_locals.copy()
    untraced = sys.gettrace() is None and sys.getprofile() is None
    if sys.getrefcount(kept) == UNSHARED and "exec" not in code.co_names and untraced:
        kept.clear()  # pragma: no cover  the measurement of coverage is a tracer
    return variables


FrameReader: TypeAlias = Callable[[FrameType], EnclosingCall | None]

# The readers by the name of the function, then by the start of the name of its file: a look-up of a text is
# the fastest way to pass a frame by.
_readers: dict[str, list[tuple[str, FrameReader]]] = {}


class Limits:
    """``exist``: True once a policy or a `Timeout` with a limit was made, so that a walk can find one."""

    exist = False


class Blocks:
    """``read``: the function that reads the attempts of blocks from a frame; None until there was a block."""

    read: Callable[[FrameType], Iterable[EnclosingCall]] | None = None


limits = Limits()
blocks = Blocks()


def holds_call(name: str, file: str, read: FrameReader) -> None:
    """Register the functions of this name whose file begins with this text: their frames hold a call."""
    _readers.setdefault(name, []).append((file, read))


WITH = opmap.get("BEFORE_WITH")  # None from Python 3.14 on, where other statements have the same opcode
MOST_CODES = 4096
_codes: dict[int, tuple[CodeType, bool]] = {}  # by identity, because the hash of code takes long


def _may_have_block(code: CodeType) -> bool:
    """Return True for code of the caller's that has a `with`."""
    known = _codes.get(id(code))
    if known is None or known[0] is not code:
        has_with = WITH is None or WITH in code.co_code[::2]
        known = (code, has_with and not is_own(code))
        if len(_codes) >= MOST_CODES:
            _codes.clear()
        _codes[id(code)] = known
    return known[1]


def calls_on_stack(frame: FrameType | None) -> Iterator[EnclosingCall]:
    """Yield the calls that enclose a frame, or begin in it, innermost first.

    A call may be yielded once for each of its frames.
    """
    read_blocks = blocks.read
    while frame is not None:
        code = frame.f_code
        readers = _readers.get(code.co_name)
        if readers is not None:
            for file, read in readers:
                if code.co_filename.startswith(file) and (call := read(frame)) is not None:
                    yield call
        # Only the variables of functions that have a `with`, which needs a table of exceptions, are read.
        if read_blocks is not None and code.co_exceptiontable and _may_have_block(code):
            yield from read_blocks(frame)
        frame = frame.f_back


def calls_of_task(frame: FrameType | None) -> Iterator[EnclosingCall]:
    """Yield the calls on this stack, the running one, then those around the tasks that await its task."""
    yield from calls_on_stack(frame)
    if in_event_loop():
        for coroutine in backend().awaiting_tasks():
            yield from calls_in(coroutine)


def calls_in(coroutine: object, until: Callable[[FrameType], bool] | None = None) -> Iterator[EnclosingCall]:
    """Yield the calls in the coroutine of a suspended task, innermost first; ``until``: a frame to end at."""
    frames: list[FrameType] = []
    while (names := SUSPENDED.get(type(coroutine))) is not None:
        frame = getattr(coroutine, names[0])
        if until is not None and until(frame):
            break
        frames.append(frame)
        coroutine = getattr(coroutine, names[1])
        if coroutine is not None and type(coroutine) not in SUSPENDED:
            # The step of an async generator is an object without an attribute for it.
            coroutine = next((x for x in gc.get_referents(coroutine) if type(x) in SUSPENDED), None)
    for frame in reversed(frames):
        yield from calls_on_stack(frame)


# The attributes of what has a frame: the frame, and what it waits for.
SUSPENDED: dict[type, tuple[str, str]] = {
    CoroutineType: ("cr_frame", "cr_await"),
    GeneratorType: ("gi_frame", "gi_yieldfrom"),
    AsyncGeneratorType: ("ag_frame", "ag_await"),
}
