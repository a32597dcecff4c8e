"""Chaos: a share of the calls fails, with Retry around it and without."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from drawing.axis import Axis, plain
from drawing.canvas import Canvas
from drawing.legend import Entry, legend
from drawing.panel import LOWER, UPPER, Panel
from drawing.timing import at, per_second
from redouble import Chaos, Retry
from redouble.testing import virtual_time

END, CALLS, RATE = 40, 10, 0.3  # seconds, calls a second, the share that fails
ON, OFF = 10, 30
SUCCESS = Axis("calls that succeed", 0, 130, {0: "0 %", 50: "50 %", 100: "100 %"})
MOMENTS = [number / CALLS for number in range(END * CALLS)]


class Measured(NamedTuple):
    """When the answered calls were placed, and when attempts were made."""

    answered: list[float]
    attempted: list[float]


def run(*, retried: bool) -> Measured:
    """Place calls at a constant rate."""
    measured = Measured([], [])
    with virtual_time() as clock:
        chaos = Chaos(fault=ConnectionError, rate=RATE, seed=3, switch=lambda: ON <= clock.now() < OFF)
        random = Random(5)  # noqa: S311  the same picture each time

        @chaos
        async def ask() -> None:
            """Answer."""

        async def attempt() -> None:
            measured.attempted.append(clock.now())
            await ask()

        policy = Retry(on=ConnectionError, random=random)

        async def call(moment: float) -> None:
            try:
                await (policy.call(attempt) if retried else attempt())
            except ConnectionError:
                return
            measured.answered.append(moment)

        asyncio.run(at(MOMENTS, call))
    return measured


def shares(answered: Sequence[float]) -> list[tuple[float, float]]:
    """Return the share of the calls of each second that were answered, in per cent."""
    return [(moment, rate / CALLS * 100) for moment, rate in per_second(answered, END)]


def picture() -> str:
    """Draw the share of successful calls in the upper panel, and the attempts in the lower one."""
    bare, retried = run(retried=False), run(retried=True)
    canvas = Canvas(
        "Chaos(fault=ConnectionError, rate=0.3): does what stands around it hold?",
        "Ten calls a second. From second 10 to 30 Chaos lets three of ten fail. Without retries about 70 "
        "percent of the calls succeed, with Retry nearly all; that takes some 14 attempts a second.",
    )
    legend(
        canvas, Entry("Retry(on=ConnectionError) | Chaos(...)", "blue"), Entry("Chaos(...) alone", "orange")
    )
    time = plain("time, in seconds", END, 5)
    upper = Panel(canvas, time, SUCCESS, UPPER, numbered=False)
    lower = Panel(canvas, time, plain("attempts a second", 20, 10), LOWER)
    upper.band(ON, OFF, "Chaos is on")
    lower.band(ON, OFF, "")
    upper.steps(shares(bare.answered), "orange")
    upper.steps(shares(retried.answered), "blue")
    lower.steps(per_second(bare.attempted, END), "orange")
    lower.steps(per_second(retried.attempted, END), "blue")
    return canvas.svg()
