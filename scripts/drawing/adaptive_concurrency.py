"""AdaptiveConcurrency: a service that loses half of its workers for a while."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from drawing.axis import plain
from drawing.canvas import Canvas
from drawing.legend import Entry, legend
from drawing.panel import LOWER, UPPER, Panel, Values
from redouble import AdaptiveConcurrency, errors
from redouble.testing import virtual_time

END, CALLERS, TAKES = 30, 40, 0.1
MANY, FEW, LOST, BACK = 20, 10, 10.0, 20.0


class Service:
    """A fixed number of workers, each busy with a call for a while; other calls wait."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(MANY)

    async def ask(self) -> None:
        """Wait for a free worker and for its response."""
        async with self._free:
            await asyncio.sleep(TAKES)

    async def lose_some(self) -> None:
        """Lose half of the workers for a while."""
        await asyncio.sleep(LOST)
        for _ in range(MANY - FEW):
            await self._free.acquire()
        await asyncio.sleep(BACK - LOST)
        for _ in range(MANY - FEW):
            self._free.release()


class Measured(NamedTuple):
    """The limit and the latency of calls over time."""

    limits: list[tuple[float, float]]
    took: list[tuple[float, float]]


def run(layer: AdaptiveConcurrency | None) -> Measured:
    """Run callers that each call without a pause."""
    measured = Measured([] if layer is None else [(0, layer.limit)], [])
    with virtual_time() as clock:

        async def caller(number: int, service: Service) -> None:
            ask = service.ask if layer is None else layer(service.ask)
            await asyncio.sleep(number * TAKES / CALLERS)
            while (start := clock.now()) < END - TAKES:
                try:
                    await ask()
                except errors.BulkheadFull:
                    await asyncio.sleep(TAKES)
                    continue
                measured.took.append((clock.now(), clock.now() - start))
                if layer is not None and layer.limit != measured.limits[-1][1]:
                    measured.limits.append((clock.now(), layer.limit))

        async def callers() -> None:
            service = Service()
            asking = [caller(number, service) for number in range(CALLERS)]
            await asyncio.gather(service.lose_some(), *asking)

        asyncio.run(callers())
    return measured


def means(took: Values) -> list[tuple[float, float]]:
    """Return the mean latency of every second in milliseconds, at the middle of the second."""
    slices: dict[int, list[float]] = {}
    for moment, seconds in took:
        slices.setdefault(int(moment), []).append(seconds)
    return [(second + 0.5, 1000 * sum(some) / len(some)) for second, some in slices.items() if second < END]


def picture() -> str:
    """Draw the limit in the upper panel, and the latency in the lower one."""
    with virtual_time():
        limited = run(AdaptiveConcurrency(initial=5, relearn=300))
    free = run(None)
    canvas = Canvas(
        "AdaptiveConcurrency: the limit follows what the service can do at once",
        "A service has 20 workers, then 10, then 20 again, and 40 callers. The limit settles a little above "
        "the number of workers each time, and calls take about as long as before. Without it they queue up.",
    )
    legend(
        canvas,
        Entry("limit, and calls behind it", "blue"),
        Entry("calls without a limit", "orange"),
        Entry("workers of the service", "green", "dashed"),
    )
    time = plain("time, in seconds", END, 5)
    upper = Panel(canvas, time, plain("calls at once", 50, 10), UPPER, numbered=False)
    upper.steps([(0, MANY), (LOST, FEW), (BACK, MANY), (END, MANY)], "green", "dashed")
    upper.steps([*limited.limits, (END, limited.limits[-1][1])], "blue")
    lower = Panel(canvas, time, plain("milliseconds a call", 500, 250), LOWER)
    lower.line(means(free.took), "orange")
    lower.line(means(limited.took), "blue")
    return canvas.svg()
