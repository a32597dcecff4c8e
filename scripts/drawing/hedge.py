"""Hedge: the latency of each of some hundred calls, with it and without."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from drawing.axis import Axis, plain
from drawing.canvas import Canvas, Colour
from drawing.legend import Entry, legend
from drawing.panel import Panel
from redouble import Hedge
from redouble.testing import virtual_time

CALLS, SLOW = 400, 0.03


class Service:
    """A service with a latency of about 30 ms, and sometimes up to a second."""

    def __init__(self) -> None:
        self._random = Random(11)  # noqa: S311  the same picture each time

    def latency(self) -> float:
        """Draw the latency of a call."""
        slow = self._random.random() < SLOW
        return 0.3 + self._random.random() * 0.7 if slow else 0.02 + 0.03 * self._random.random() ** 2


def run(layer: Hedge | None) -> tuple[list[float], int]:
    """Return the latency of each call in milliseconds, and the number of attempts with the extra ones."""
    took: list[float] = []
    service, second = Service(), Service()
    first = [service.latency() for _ in range(CALLS)]
    asked: list[int] = []
    with virtual_time() as clock:

        async def ask(number: int) -> None:
            seconds = second.latency() if number in asked else first[number]
            asked.append(number)
            await asyncio.sleep(seconds)

        async def calls() -> None:
            call = ask if layer is None else layer(ask)
            for number in range(CALLS):
                start = clock.now()
                await call(number)
                took.append((clock.now() - start) * 1000)

        asyncio.run(calls())
    return took, len(asked)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    return sorted(values)[int(share * len(values))]


def picture() -> str:
    """Draw a dot for each call."""
    (without, _), (hedged, asked) = run(None), run(Hedge(max_extra_load=0.05))
    canvas = Canvas(
        "Hedge(max_extra_load=0.05): a slow call is made a second time",
        "400 calls, one after the other, of a service that is slow now and then. At first nothing is hedged: "
        "it is not known yet what slow is. Then late calls are made again, and the slowest take far less.",
    )
    legend(
        canvas,
        Entry("with Hedge", "blue", "speck"),
        Entry("the same call without it", "orange", "ring"),
    )
    milliseconds: dict[float, str] = {10: "10", 30: "30", 100: "100", 300: "300", 1000: "1000"}
    panel = Panel(
        canvas,
        plain("calls, in order", CALLS, 50),
        Axis("milliseconds, logarithmic", 10, 1500, milliseconds, log=True),
    )
    panel.dots(
        [(place, value) for place, value in enumerate(without) if value > hedged[place] + 1],
        "orange",
        "ring",
    )
    panel.dots(list(enumerate(hedged)), "blue", "speck")
    edge(panel, 142, 1.1, "without it", without, "orange")
    edge(panel, 228, 1.37, "with Hedge", hedged, "blue")
    panel.note(30, 240, "too few calls to tell what is late")
    panel.note(228, 1200, f"{CALLS} calls, and {asked - CALLS} extra ones: {asked / CALLS - 1:.0%}")
    return canvas.svg()


def edge(panel: Panel, x: float, height: float, words: str, values: Sequence[float], colour: Colour) -> None:
    """Draw the 99th percentile with a label above it."""
    late = percentile(values, 0.99)
    panel.line([(0, late), (CALLS, late)], colour, "dashed")
    panel.note(x, late * height, f"99 of 100 {words}: under {late:.0f} ms", colour)
