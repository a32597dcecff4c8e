"""The lines that calls go through behind a gate that counts how they went, and as a rule has nothing to say.

While all goes well that is one look at a flag, and a number that goes up: nobody is asked, nothing is locked,
and the clock is read about sixteen times in a slice of time, however many calls there are.

A count of calls that go well, which looks at the clock only as often as it has to.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Protocol

from redouble._internal.codegen import Template, compile_wrapper
from redouble._layers.gate import task_error
from redouble._runtime.ambient import ambient
from redouble._runtime.clock import SYSTEM, fast_reader

__all__ = ["SampledCounter", "compile_counting_wrapper"]


OFTEN = 16  # looks at the clock in a slice of time
FAR = 256  # calls from one look to the next, at most


class SampledCounter:
    """What is counted while all goes well: up to ``check``, when it is time to look at the clock again."""

    __slots__ = ("check", "count", "edge", "since", "step")

    def __init__(self) -> None:
        self.count, self.check = 0, 1
        self.step = 1
        self.since = self.edge = -inf  # the running slice of time; at first there is none

    def begin(self, before: int, since: float, edge: float) -> None:
        """Begin another slice of time; so many were counted in the one before.

        Up to sixteen a slice the clock is looked at every time; beyond that, a few count in the one after.
        """
        self.step = max(1, min(FAR, before // OFTEN))
        self.check, self.since, self.edge = self.count + self.step, since, edge

    def take(self) -> tuple[int, int]:
        """Take out what was counted: up to the last look at the clock, and since."""
        count, sure = self.count, self.check - self.step
        self.count -= count
        return min(count, sure), max(0, count - sure)


# From reading the count to setting it there is no call, so that no other thread comes in between.
COUNTED = Template(
    "gate",
    """\
{async_}def counted({parameters}):
    if redouble_state.on:
        {await_}redouble_enter()
    redouble_good = False
    try:
        redouble_result = {await_}redouble_fn({arguments})
        redouble_good = True
    finally:
        if redouble_good and not redouble_state.on:
            redouble_tally.count += 1
            if redouble_tally.count >= redouble_tally.check:
                redouble_moment = redouble_system() if redouble_ambient else redouble_now()
                if redouble_tally.since <= redouble_moment < redouble_tally.edge:
                    redouble_tally.check = redouble_tally.count + redouble_tally.step
                else:
                    redouble_look()
        else:
            redouble_ended(None, None if redouble_good else redouble_exception(), redouble_system())
{check}    return redouble_result
""",
)


class CountingGate(Protocol):
    """A gate that counts."""

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        """Learn how a call ended."""
        ...

    def _look(self) -> None:
        """Take in what was counted."""
        ...


class CounterState(Protocol):
    """Whether calls have to ask: ``on``."""

    on: bool


def compile_counting_wrapper(
    gate: CountingGate,
    state: CounterState,
    tally: SampledCounter,
    fn: Callable[..., Any],
    enter: Callable[[], object] | Callable[[], Awaitable[object]],
    *,
    is_async: bool,
) -> Callable[..., Any]:
    """Return ``fn`` behind the gate, with its own signature."""
    return compile_wrapper(
        fn,
        COUNTED,
        is_async=is_async,
        state=state,
        tally=tally,
        enter=enter,
        look=gate._look,
        ended=gate.ended,
        ambient=ambient.active,
        system=SYSTEM.now,
        now=fast_reader(SYSTEM, aio=False),
        exception=task_error if is_async else sys.exception,
    )
