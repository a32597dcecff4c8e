"""The drivers: they call, wait and raise, and decide nothing.

Each comes twice, for blocking and for async code, side by side; a test erases ``async`` and ``await``,
applies its table of renames, and asserts that nothing else differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from redouble._ambient import ambient
from redouble._report import Outcome
from redouble._run import Run
from redouble._time import cancelling, in_event_loop
from redouble._told import begin

if TYPE_CHECKING:
    from redouble._retry import Retry

__all__ = ["Attempt", "Attempts", "AsyncAttempts", "adrive", "aoutcome", "drive", "outcome"]

T = TypeVar("T")


# ------------------------------------------------------------------------------- calls


def drive(
    policy: Retry,
    fn: Callable[..., T],
    name: str,
    run: Run | None,
    delay: float | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> T:
    """Make attempts until one succeeds or the run says no; with a run, go on after its first attempt."""
    clock, now = policy.time, policy.time.now
    if run is None:
        run = begin(policy, now(), name, now, None, attempt=0)
    try:
        while True:
            if delay:
                clock.sleep(delay)
            refusal = run.start(now())
            if refusal is not None:
                raise refusal
            try:
                result = fn(*args, **kwargs)
            except Exception as error:
                delay = run.failed(error, now())
                if delay is None:
                    if policy.wrap and not run.ok:
                        raise run.error(error) from error
                    raise
            else:
                delay = run.returned(result, now())
                if delay is None:
                    if run.ok:
                        return result
                    raise run.error(None)
    finally:
        refusal = None  # or this frame and its error would keep each other alive
        run.close()


async def adrive(
    policy: Retry,
    fn: Callable[..., Awaitable[T]],
    name: str,
    run: Run | None,
    delay: float | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> T:
    """Make attempts until one succeeds or the run says no; with a run, go on after its first attempt."""
    clock, now = policy.time, policy.time.anow
    if run is None:
        run = begin(policy, now(), name, now, cancelling, attempt=0)
    try:
        while True:
            if delay is not None:
                await clock.asleep(delay)
            refusal = run.start(now())
            if refusal is not None:
                raise refusal
            try:
                result = await fn(*args, **kwargs)
            except Exception as error:
                delay = run.failed(error, now())
                if delay is None:
                    if policy.wrap and not run.ok:
                        raise run.error(error) from error
                    raise
            else:
                delay = run.returned(result, now())
                if delay is None:
                    if run.ok:
                        return result
                    raise run.error(None)
    finally:
        refusal = None  # or this frame and its error would keep each other alive
        run.close()


# ---------------------------------------------------------------------------- outcomes


def outcome(
    policy: Retry, fn: Callable[..., T], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome[T]:
    """Make attempts, and tell how it ended instead of raising."""
    now = policy.time.now
    run = begin(policy, now(), name, now, None, attempt=0)
    try:
        value = drive(policy, fn, name, run, None, args, kwargs)
    except Exception as error:
        return run.outcome(None, error)
    return run.outcome(value, None)


async def aoutcome(
    policy: Retry, fn: Callable[..., Awaitable[T]], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome[T]:
    """Make attempts, and tell how it ended instead of raising."""
    now = policy.time.anow
    run = begin(policy, now(), name, now, cancelling, attempt=0)
    try:
        value = await adrive(policy, fn, name, run, None, args, kwargs)
    except Exception as error:
        return run.outcome(None, error)
    return run.outcome(value, None)


# ------------------------------------------------------------------------------ blocks

READY, ENTERED, FAILED, OVER = range(4)


class Attempt:
    """The attempt a ``for`` loop is at; use it as ``with attempt:`` around what may fail.

    One object serves the whole loop: ``number`` counts from 1.
    """

    __slots__ = ("_delay", "_name", "_now", "_policy", "_run", "_started", "_state", "number")

    def __init__(self, policy: Retry, now: Callable[[], float]) -> None:
        self.number = 0
        self._policy = policy
        self._now = now
        self._state = FAILED
        self._delay: float | None = None
        self._run: Run | None = None
        self._started = 0.0

    def __enter__(self) -> Attempt:
        if self._state != READY:
            raise RuntimeError("an attempt can be entered once: write `with attempt:` once per turn of the loop")
        self._state = ENTERED
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        self._state = OVER
        run = self._run
        if error is None:
            if run is not None:
                run.returned(None, self._now())
            return False
        if not isinstance(error, Exception):
            return False
        if run is None:
            run = self._run = self._begin(1)
        self._delay = run.failed(error, self._now())
        if self._delay is None:
            if self._policy.wrap and not run.ok:
                raise run.error(error) from error
            return False
        self._state = FAILED
        return True

    def _begin(self, attempt: int) -> Run:
        aio = cancelling if isinstance(self, AsyncAttempts) else None
        return begin(self._policy, self._started, self._policy.name or "block", self._now, aio, attempt)

    def _goes_on(self) -> bool:
        """Say whether there is another turn, having made sure that the last one was used."""
        if self._state == READY:
            raise RuntimeError("the last attempt was never entered: write `with attempt:` around what may fail")
        return self._state == FAILED

    def __repr__(self) -> str:
        return f"<Attempt {self.number} of {self._policy.attempts or 'any number'}>"


class Attempts(Attempt):
    """The attempts of a ``for`` loop."""

    __slots__ = ()

    def __iter__(self) -> Attempts:
        return self

    def __next__(self) -> Attempt:
        run = self._run
        if self.number == 0:
            self._started = self._now()
            if ambient.active or not self._policy.plain:
                run = self._run = self._begin(0)
        elif not self._goes_on():
            raise StopIteration
        if run is not None:
            try:
                if self._delay:
                    self._warn()
                    self._policy.time.sleep(self._delay)
                refusal = run.start(self._now())
                if refusal is not None:
                    self._state = OVER
                    raise refusal
            finally:
                refusal = None  # or this frame and its error would keep each other alive
                run.close()
        self.number += 1
        self._state = READY
        return self

    def _warn(self) -> None:
        if self.number == 1 and in_event_loop():
            import logging  # noqa: PLC0415  nobody pays for it while all goes well

            logging.getLogger("redouble").warning(
                "a blocking `for` loop is about to sleep inside an event loop and stall it: write `async for`"
            )


class AsyncAttempts(Attempt):
    """The attempts of an ``async for`` loop."""

    __slots__ = ()

    def __aiter__(self) -> AsyncAttempts:
        return self

    async def __anext__(self) -> Attempt:
        run = self._run
        if self.number == 0:
            self._started = self._now()
            if ambient.active or not self._policy.plain:
                run = self._run = self._begin(0)
        elif not self._goes_on():
            raise StopAsyncIteration
        if run is not None:
            try:
                if self._delay is not None:
                    self._warn()
                    await self._policy.time.asleep(self._delay)
                refusal = run.start(self._now())
                if refusal is not None:
                    self._state = OVER
                    raise refusal
            finally:
                refusal = None  # or this frame and its error would keep each other alive
                run.close()
        self.number += 1
        self._state = READY
        return self

    def _warn(self) -> None:
        """Nothing to warn of: waiting here gives way."""
