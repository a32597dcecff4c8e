"""Script: a function for tests whose results and failures are given step by step."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeGuard

from redouble._internal.public import public
from redouble._internal.validation import Duration, seconds
from redouble._runtime.clock import virtual
from redouble.testing._virtual_clock import VirtualClock


@public("redouble.testing")
class ScriptedFailure(ConnectionError):
    """The error of the step ``"fail"`` of a `Script`; policies retry it by default."""


@public("redouble.testing")
@dataclass(frozen=True)
class Step:
    """The result or error of one call of a `Script`: made by `ok` and `fail`."""

    value: Any = None
    error: BaseException | type[BaseException] | None = None
    takes: float = 0.0


@public("redouble.testing")
def ok(value: Any = None, *, takes: Duration = 0.0) -> Step:
    """Return a step that returns ``value``, after ``takes`` seconds of virtual time."""
    return Step(value, None, seconds(takes, "takes"))


@public("redouble.testing")
def fail(error: BaseException | type[BaseException] = ScriptedFailure, *, takes: Duration = 0.0) -> Step:
    """Return a step that raises ``error``, after ``takes`` seconds of virtual time."""
    if not _raisable(error):
        raise TypeError(f"fail({error!r}): write an exception, or an exception type")
    return Step(None, error, seconds(takes, "takes"))


@public("redouble.testing")
class Script:
    """A function for policies to call: each call plays the next step.

    A step is ``"fail"``, an exception to raise, ``ok(value)`` or ``fail(error)``. ``script()`` plays the
    next one in blocking code; ``script.aio`` is the same as a coroutine function. ``calls`` holds the
    arguments of every call. A call after the last step raises an `AssertionError`, which a policy with
    ``on=Exception`` retries like any other error.
    """

    def __init__(self, *steps: Step | BaseException | type[BaseException] | str) -> None:
        self._length = len(steps)
        self._steps = iter([_step(step) for step in steps])  # so that threads may share it
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Play the next step."""
        step = self._next_step(args, kwargs)
        if step.takes:
            _clock(step).advance(step.takes)
        return _finish(step)

    @property
    def aio(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The same script as a coroutine function."""

        async def play(*args: Any, **kwargs: Any) -> Any:
            step = self._next_step(args, kwargs)
            if step.takes:
                await _clock(step)._timeline.wait(step.takes)
            return _finish(step)

        play.__qualname__ = type(self).__qualname__  # so that events have the same name in both colours
        return play

    def _next_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
        self.calls.append((args, kwargs))
        step = next(self._steps, None)
        if step is None:
            raise AssertionError(f"{self!r}: it has no steps left")
        return step

    def __repr__(self) -> str:
        return f"<Script with {self._length} step(s), called {len(self.calls)} time(s)>"


def _raisable(error: object) -> TypeGuard[BaseException | type[BaseException]]:
    return isinstance(error, BaseException) or (isinstance(error, type) and issubclass(error, BaseException))


def _step(value: object) -> Step:
    if isinstance(value, Step):
        return value
    if value == "fail":
        return fail()
    if _raisable(value):
        return Step(error=value)
    raise TypeError(f"a step {value!r}: write 'fail', an exception, ok(value) or fail(error)")


def _clock(step: Step) -> VirtualClock:
    clock = virtual()
    if not isinstance(clock, VirtualClock):
        raise RuntimeError(f"takes={step.takes} needs virtual time: write `with virtual_time():`")
    return clock


def _finish(step: Step) -> Any:
    if step.error is not None:
        raise step.error
    return step.value
