"""Blocks: ``for attempt in policy: with attempt: ...``, and ``async for``.

The loop starts attempts, the ``with`` records how each one ended. Like all drivers these call, wait and
raise, and decide nothing; `start_attempt` and `astart_attempt` are twins.

A ``with`` that suppresses the error of its attempt relies on the loop to go on. If the body leaves the loop
instead, Python drops the iterator, and an error that an iterator raises while it is dropped goes nowhere. So
the loop then emits the end of the call and logs it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, ClassVar, NoReturn, Self

from redouble._drivers.calls import CallWithoutRun, begin_run, slow_path_needed
from redouble._engine.options import Options, refuse_limits, refuse_until
from redouble._engine.run import Run, Wait
from redouble._engine.run_results import error_of
from redouble._failures.error_path import holds_run
from redouble._internal.logger import log
from redouble._internal.public import public
from redouble._runtime.ambient import ambient
from redouble._runtime.backend import cancel_after, in_event_loop
from redouble._runtime.call_stack import EnclosingCall, blocks, variables_of
from redouble.errors import Reason

if TYPE_CHECKING:
    from redouble._runtime.backend import CancelScope

# When the block of an attempt is left, the attempt has ended (without an error), has failed (another one
# follows), or is over.
READY, ENTERED, OVER, FAILED, ENDED = range(5)
ERROR_LOST = (
    "a loop over the attempts of %s was left after attempt %d had failed, so nothing raises its %s: leave "
    "the loop inside `with attempt:`, or let it retry"
)


@holds_run
@public("redouble")
class Attempt:
    """The current attempt of a loop: write ``with attempt:`` around what may fail.

    One object serves the whole loop; ``number`` is the number of the attempt, counted from 1.
    """

    # Most loops have one attempt. So there is no __init__, and what a later attempt needs is a class default.
    __slots__ = ("__dict__", "__weakref__", "_policy", "_run", "_started", "_state")
    number: int = 1
    _aio: ClassVar = False
    _delay: float | None = None
    _warned: bool = False
    _left: bool = False  # True if the loop has ended before the attempt has: no other attempt can follow
    _policy: Options
    _run: Run | None
    _started: float | None
    _state: int

    def __enter__(self) -> Self:
        if self._state:  # not READY
            raise RuntimeError(
                "an attempt can be entered only once: write `with attempt:` once per turn of the loop"
            )
        self._state = ENTERED
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if error is None:
            if self._run is not None:
                self._run.returned(None, self._run.read_clock())
                self._end_in_flight()
            self._state = ENDED
            return False
        self._state = OVER
        return isinstance(error, Exception) and self._record_failure(error)

    def _record_failure(self, error: Exception) -> bool:
        """Record that the attempt failed; return True if there is another."""
        run = self._run or self._begin(1)
        if self._left:
            run.max_attempts = run.attempt
        self._delay = run.failed(error, run.read_clock())
        if self._delay is not None:
            self._state = FAILED
            return True
        self._end_in_flight()
        if run.replaces_error:
            raise error_of(run, error)
        return False

    def _begin(self, attempt: int) -> Run:
        """Begin the run: before the first attempt (``attempt=0``), or when it has failed (``attempt=1``)."""
        name, started = self._policy.name or "block", self._started
        self._run = run = begin_run(Run, self._policy, name, aio=self._aio, attempt=attempt, started=started)
        if run.in_flight is not None:
            run.in_flight.begin_call()
        return run

    def _end_in_flight(self) -> None:
        """Record that the call has ended, for a budget that counts what is in flight."""
        if self._run is not None and self._run.in_flight is not None:
            self._run.in_flight.end()

    def _begin_before_first(self) -> None:
        """Begin the run before the first attempt."""
        self._started = None
        self._begin(0)
        self._state = FAILED

    def _next_run(self) -> Run | None:
        """Return the run if there is another attempt; raise if the last one was not entered."""
        if self._state == READY:
            self._state = OVER
            self._end_in_flight()
            raise RuntimeError(
                "the last attempt was never entered: write `with attempt:` around what may fail"
            )
        return self._run if self._state == FAILED else None

    def _call(self) -> EnclosingCall | None:
        """Return the call if its attempt is running, else None."""
        if self._state != ENTERED:
            return None
        policy, run, started = self._policy, self._run, self._started
        if run is not None or started is None:
            return run
        return CallWithoutRun(policy, policy.name or "block", started, aio=self._aio)

    def _leave(self) -> None:
        """End the call: the body has left the loop, or the garbage collector has found it.

        If an attempt failed and no other one was entered since, nothing will raise its error.
        """
        run, entered = self._run, self._state in (ENTERED, OVER)
        if self._state == ENDED:
            return
        self._left = True
        if run is None:
            return
        self._end_in_flight()
        run.refund()  # the retry never started
        if run.last is not None and not entered:
            if self._state == READY:
                run.attempt -= 1  # the one that was not entered
            self._state = OVER
            error, run.cancelling = run.last, None  # no event loop need be running
            run.give_up(Reason.stopped, error)
            log(ERROR_LOST, run.name, run.attempt, type(error).__qualname__)

    def __repr__(self) -> str:
        return f"<Attempt {self.number}>"


@holds_run
class AsyncAttempt(Attempt):
    """The current attempt of an ``async for`` loop: write ``with attempt:``, without ``async``."""

    _aio = True
    _limit: CancelScope | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        run = self._run
        if run is not None and (self._policy._interrupt_limit < inf or run.deadline < inf):
            run.refresh_now()
            self._limit = cancel_after(run.time_left())
            self._limit.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> bool:
        limit, self._limit = self._limit, None
        if limit is not None and self._run is not None:
            try:
                limit.__exit__(kind, error, tb)
            except Exception as other:  # Trio removes its Cancelled from a group, and raises the others
                return self._fail_with(other)
            if limit.cancelled_caught:
                return self._fail_with(self._run.expired())
            if error is None:
                self._run.record_return(late=limit.cancel_called)
        return super().__exit__(kind, error, tb)

    def _fail_with(self, error: Exception) -> bool:
        """Record the failure of the attempt by an error other than the one that left the block."""
        try:
            if not self._record_failure(error):
                raise error
        finally:
            del error  # break the cycle of the error and this frame
        return True

    if not TYPE_CHECKING:  # pragma: no branch  so that type checkers reject it too

        async def __aenter__(self) -> NoReturn:
            raise TypeError(
                "write `with attempt:` also in an `async for` loop: leaving an attempt never waits"
            )

        async def __aexit__(self, *_: object) -> None:
            """Exist, so that `async with` reaches the message above."""


def _read_calls(frame: FrameType) -> list[EnclosingCall]:
    """Return the calls whose attempts a frame has entered, the innermost first."""
    try:
        # By type: looking up `__class__` may run code of the caller's.
        attempts = [value for value in variables_of(frame).values() if issubclass(type(value), Attempt)]
    except Exception:
        return []  # the namespace of an `exec` may be anything
    return [call for attempt in reversed(attempts) if (call := attempt._call()) is not None]


def start_attempt(policy: Options, attempt: Attempt, run: Run) -> None:
    """Wait for the next attempt and begin it."""
    attempt._state = OVER  # the end of the wait is the end of the call, unless the attempt begins
    try:
        with Wait(run):
            if attempt._delay:
                policy._time.sleep(attempt._delay)
            begins = run.read_clock()
        refusal = run.start(begins)
        if refusal is not None:
            raise refusal
        attempt.number, attempt._state = run.attempt, READY
    finally:
        refusal = None  # break the cycle of the error and this frame
        if attempt._state == OVER:
            attempt._end_in_flight()
        run.refund()


async def astart_attempt(policy: Options, attempt: Attempt, run: Run) -> None:
    """Wait for the next attempt and begin it."""
    attempt._state = OVER  # the end of the wait is the end of the call, unless the attempt begins
    try:
        with Wait(run):
            if attempt._delay is not None:
                await policy._time.asleep(attempt._delay)
            begins = run.read_clock()
        refusal = run.start(begins)
        if refusal is not None:
            raise refusal
        attempt.number, attempt._state = run.attempt, READY
    finally:
        refusal = None  # break the cycle of the error and this frame
        if attempt._state == OVER:
            attempt._end_in_flight()
        run.refund()


def attempts(policy: Options) -> Iterator[Attempt]:
    """Yield the attempts of a ``for`` loop."""
    # A generator is the fastest iterator.
    blocks.read = _read_calls
    attempt = Attempt()
    attempt._policy = policy
    attempt._state, attempt._run = READY, None
    try:
        if (ambient.active and slow_path_needed()) or policy._first != "plain":
            refuse_until(policy, "a `for` loop has none")
            refuse_limits(policy, "a `for` loop")
            attempt._begin_before_first()
        else:
            attempt._started = policy._now()
            yield attempt
            if attempt._state == ENDED or attempt._state == OVER:  # noqa: PLR1714  a tuple is slower
                return
        while (run := attempt._next_run()) is not None:
            _warn_if_blocking_loop(attempt)
            start_attempt(policy, attempt, run)
            yield attempt
    except GeneratorExit:
        if attempt._state != ENDED:
            attempt._leave()


class AsyncAttempts:
    """The attempts of an ``async for`` loop.

    Not an async generator, which stays open after a ``break`` until the garbage collector finds it; Trio
    warns about that.
    """

    __slots__ = ("_attempt", "_policy", "_straight")

    def __init__(self, policy: Options) -> None:
        blocks.read = _read_calls
        self._policy = policy
        self._attempt = attempt = AsyncAttempt()
        attempt._policy = policy
        attempt._state, attempt._run = READY, None
        self._straight = policy._afirst == "plain" and not (ambient.active and slow_path_needed())
        if self._straight:
            attempt._started = policy._anow()
        else:
            refuse_until(policy, "an `async for` loop has none")
            attempt._begin_before_first()

    def __aiter__(self) -> AsyncAttempts:
        return self

    async def __anext__(self) -> AsyncAttempt:
        attempt = self._attempt
        if self._straight:
            self._straight = False
        elif (run := attempt._next_run()) is not None:
            await astart_attempt(self._policy, attempt, run)
        else:
            raise StopAsyncIteration
        return attempt

    def __del__(self) -> None:
        self._attempt._leave()  # the loop may have been left between a failure and its retry


def _warn_if_blocking_loop(attempt: Attempt) -> None:
    if attempt._delay and not attempt._warned:
        attempt._warned = True
        if in_event_loop():
            log(
                "a blocking `for` loop is about to sleep inside an event loop and stall it: write `async for`"
            )
