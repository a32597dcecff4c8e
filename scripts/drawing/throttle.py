"""Throttle: a service that accepts few calls, then none, then all again."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from drawing.axis import plain
from drawing.canvas import Canvas
from drawing.legend import Entry, legend
from drawing.panel import LOWER, UPPER, Panel
from drawing.timing import per_second
from redouble import Throttle, errors
from redouble.testing import virtual_time

END, CALLS = 80, 20  # seconds, and calls a second
BUSY, DOWN, BACK = 15, 35, 50  # seconds: accepts a quarter; accepts none; accepts all


class Service:
    """A service that records the calls it receives."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.answered: list[float] = []

    def ask(self, now: float) -> None:
        """Accept the call or raise; while busy, accept five calls a second."""
        self.asked.append(now)
        late = [moment for moment in self.answered[-5:] if moment > now - 1]
        if DOWN <= now < BACK or (BUSY <= now < DOWN and len(late) >= 5):
            raise ConnectionError
        self.answered.append(now)


def run() -> tuple[Service, list[tuple[float, float]]]:
    """Return the service, and the share of rejected calls over time."""
    service = Service()
    shares: list[tuple[float, float]] = []
    with virtual_time() as clock:
        throttle = Throttle(window=10, most=0.95, random=Random(7))  # noqa: S311  the same picture each time
        for _ in range(END * CALLS):
            with suppress(ConnectionError, errors.Rejected):
                throttle.call(service.ask, clock.now())
            shares.append((clock.now(), throttle.snapshot()["share"] * 100))
            clock.advance(1 / CALLS)
    return service, shares


def picture() -> str:
    """Draw the load in the upper panel, and the share of rejected calls in the lower one."""
    service, shares = run()
    canvas = Canvas(
        "Throttle: send no more than twice what the service accepts",
        "20 calls a second are asked for. While the service accepts 5 a second about 10 reach it, while it "
        "is down hardly any, and when it is back all of them again, within some 20 seconds.",
    )
    legend(
        canvas,
        Entry("asked for", "grey", "dashed"),
        Entry("reach the service", "blue"),
        Entry("accepted", "green", None),
        Entry("refused here", "orange"),
    )
    time = plain("time, in seconds", END, 10)
    upper = Panel(canvas, time, plain("calls a second", 30, 10), UPPER, numbered=False)
    lower = Panel(canvas, time, plain("share of calls", 100, 50, " %"), LOWER)
    for panel, words in ((upper, ("takes 5 a second", "is down")), (lower, ("", ""))):
        panel.band(BUSY, DOWN, words[0], "orange")
        panel.band(DOWN, BACK, words[1], "red")
    upper.line([(0, CALLS), (END, CALLS)], "grey", "dashed")
    upper.bars(per_second(service.answered, END)[:-1], 1, "green")
    upper.steps(per_second(service.asked, END), "blue")
    lower.line(shares[:: CALLS // 4], "orange")
    return canvas.svg()
