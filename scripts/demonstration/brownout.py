"""The second story: a service browns out for some seconds, and many clients retry, more or less wisely."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import AsyncExitStack

from demonstration.callers import keep_calling
from demonstration.limited import LimitedService
from demonstration.picture import Measured, picture
from demonstration.restraint import four_ways, patient, restrained
from demonstration.screen import Screen
from demonstration.verdict import percent
from demonstration.weather import Weather

BETWEEN_FRAMES = 0.1


def brownout(screen: Screen, weather: Weather) -> None:
    """Tell the second story."""
    screen.heading(f"A brownout of {weather.brownout:g} s, and who gets over it")
    screen.say(
        f"A service can do {weather.capacity:g} requests/s and gets {weather.calls:g} calls/s.",
        f"On any day {percent(weather.dropped)} of them fail. "
        f"For {weather.brownout:g} s it can do only {weather.browned:g}/s.",
        f"Clients stop waiting after {weather.patience:g} s. Nobody tells the service:",
        "it does their work all the same.",
        "",
    )
    screen.code(f"{inspect.getsource(patient)}\n{inspect.getsource(restrained)}")
    screen.say(
        "Five successes earn one retry, and one a second is free.",
        "While everything fails nothing is earned: the service is left in peace.",
        "",
    )
    if not screen.live:
        screen.say(f"Four services, one for each way to call, watched for {weather.end:g} s:", "")
    asyncio.run(_watch(screen, weather))


async def _watch(screen: Screen, weather: Weather) -> None:
    """Run all four at the same time, each with a service of its own, and draw them meanwhile."""
    async with AsyncExitStack() as stack:
        # The story begins a moment from now: there are connections to be made first.
        start = time.monotonic() + 0.2

        def now() -> float:
            return time.monotonic() - start

        runs: list[Measured] = []
        calling: list[asyncio.Task[None]] = []
        for way in four_ways():
            service = await stack.enter_async_context(LimitedService(weather, now))
            run = Measured(way.name, service.arrived, [])
            runs.append(run)
            calling.append(asyncio.create_task(keep_calling(service.port, way.call, weather, now, run.calls)))
        try:
            while any(not task.done() for task in calling):
                screen.frame(picture(runs, weather, min(now(), weather.end - 0.001), screen.width))
                await asyncio.wait(calling, timeout=BETWEEN_FRAMES)
            await asyncio.gather(*calling)
        finally:
            for task in calling:
                task.cancel()
            await asyncio.gather(*calling, return_exceptions=True)
    screen.settle(picture(runs, weather, weather.end, screen.width))
