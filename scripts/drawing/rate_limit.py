"""RateLimit: bursts of calls, and when each call begins."""

from __future__ import annotations

import asyncio

from drawing.axis import Axis, plain
from drawing.canvas import Canvas
from drawing.legend import Entry, legend
from drawing.panel import Panel
from drawing.timing import at
from redouble import RateLimit, errors
from redouble.testing import virtual_time

COME = [0.0] * 12 + [2.5 + 0.25 * number for number in range(6)] + [5.5] * 8


def run() -> tuple[list[tuple[float, float]], list[float]]:
    """Return the (arrival, start) times of the admitted calls, and the arrival times of the rejected ones."""
    began: list[tuple[float, float]] = []
    refused: list[float] = []
    with virtual_time() as clock:
        limit = RateLimit(5, burst=5, wait=1)

        async def begin(came: float) -> None:
            began.append((came, clock.now()))

        async def call(came: float) -> None:
            try:
                await limit.call(begin, came)
            except errors.RateLimited:
                refused.append(came)

        asyncio.run(at(COME, call))
    return began, refused


def picture() -> str:
    """Draw a row for each call."""
    began, refused = run()
    canvas = Canvas(
        "RateLimit(5, burst=5, wait=1): five at once, then one every 0.2 s",
        "Each row is a call. Of twelve that come at once five begin at once, five wait for up to a second "
        "and begin 0.2 seconds apart, and two are refused. Calls that come four a second do not wait.",
    )
    legend(
        canvas,
        Entry("begins", "blue", "dot"),
        Entry("waits its turn", "grey"),
        Entry("refused, it would have to wait longer than 1 s", "orange", "cross"),
    )
    rows: dict[float, str] = {number: str(number) for number in (1, 5, 10, 15, 20, 25)}
    panel = Panel(canvas, plain("time, in seconds", 7, 1), Axis("calls, in order", 0, 27, rows))
    order = sorted([(came, 0, start) for came, start in began] + [(came, 1, came) for came in refused])
    numbered = [(number, *call) for number, call in enumerate(order, 1)]
    panel.spans([(came, start, number) for number, came, _, start in numbered if start > came], "grey")
    panel.dots([(start, number) for number, _, refusal, start in numbered if not refusal], "blue")
    panel.dots([(came, number) for number, came, refusal, _ in numbered if refusal], "orange", "cross")
    panel.note(1.15, 6.5, "12 come at once")
    panel.note(4.0, 16.6, "4 a second: nobody waits")
    panel.note(5.75, 21.2, "8 come at once")
    return canvas.svg()
