"""AdaptiveRate: a service that accepts fewer calls for a while, and the rate that follows it."""

from __future__ import annotations

import asyncio

from drawing.axis import plain
from drawing.canvas import Canvas
from drawing.legend import Entry, legend
from drawing.panel import Panel
from drawing.timing import per_second
from redouble import AdaptiveRate
from redouble.testing import virtual_time

END, CALLERS, TAKES = 36.0, 2, 0.05
CAPACITY = [(0.0, 20.0), (12.0, 8.0), (24.0, 20.0), (END, 20.0)]  # calls a second, from a moment on


class Throttled(Exception):
    """Too many calls."""


class Service:
    """A token bucket that holds the calls of half a second."""

    def __init__(self) -> None:
        self._tokens, self._when = CAPACITY[0][1] / 2, 0.0
        self.sent: list[float] = []
        self.throttled: list[float] = []

    def ask(self, now: float) -> None:
        """Accept the call, or raise `Throttled`."""
        rate = next(rate for since, rate in reversed(CAPACITY) if now >= since)
        self._tokens = min(self._tokens + (now - self._when) * rate, rate / 2)
        self._when = now
        self.sent.append(now)
        if self._tokens < 1:
            self.throttled.append(now)
            raise Throttled
        self._tokens -= 1


def run() -> tuple[Service, list[tuple[float, float]]]:
    """Return the service and the rate over time."""
    service = Service()
    rates: list[tuple[float, float]] = []
    with virtual_time() as clock:
        gate = AdaptiveRate(on=Throttled)

        async def ask() -> None:
            await asyncio.sleep(TAKES)
            service.ask(clock.now())

        async def caller(number: int) -> None:
            await asyncio.sleep(number * TAKES / CALLERS)
            while clock.now() < END:
                await asyncio.gather(gate.call(ask), return_exceptions=True)
                rate = gate.snapshot()["rate"]
                if rate is not None:
                    rates.append((clock.now(), rate))

        async def callers() -> None:
            await asyncio.gather(*map(caller, range(CALLERS)))

        asyncio.run(callers())
    return service, [(moment, rate) for moment, rate in rates if moment < END]


def picture() -> str:
    """Draw the allowed rate, the calls sent, and the capacity of the service."""
    service, rates = run()
    canvas = Canvas(
        "AdaptiveRate: the rate follows what the service takes",
        "A service takes 20 calls a second, then 8, then 20 again, and is asked for 40. The first throttling "
        "switches the limit on. Each one cuts the rate to 70 percent; it grows back along a cubic curve.",
    )
    legend(
        canvas,
        Entry("sent", "grey"),
        Entry("rate that is allowed", "blue"),
        Entry("throttled", "orange", "cross"),
        Entry("what the service takes", "green", "dashed"),
    )
    panel = Panel(canvas, plain("time, in seconds", 36, 4), plain("calls a second", 50, 10))
    panel.steps(per_second(service.sent, END), "grey")
    panel.steps(CAPACITY, "green", "dashed")
    panel.line(rates, "blue")
    panel.dots([(moment, 1) for moment in service.throttled if moment < END], "orange", "cross")
    return canvas.svg()
