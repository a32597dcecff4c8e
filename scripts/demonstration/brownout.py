"""Part two of the demonstration: a service browns out for some seconds, under four retry strategies."""

from __future__ import annotations

import asyncio
import inspect
import time
from contextlib import AsyncExitStack

from demonstration.brownout_chart import Measured, picture
from demonstration.limited_service import LimitedService
from demonstration.load_generator import keep_calling
from demonstration.recovery import percent
from demonstration.retry_strategies import patient, restrained, strategies
from demonstration.scenario import Scenario
from demonstration.screen import Screen

BETWEEN_FRAMES = 0.1


def brownout(screen: Screen, scenario: Scenario) -> None:
    """Run and print part two."""
    screen.heading(f"A brownout of {scenario.brownout:g} s, and who gets over it")
    screen.show(
        f"A service can do {scenario.capacity:g} requests/s and gets {scenario.calls:g} calls/s.",
        f"On any day {percent(scenario.failure_rate)} of them fail. "
        f"For {scenario.brownout:g} s it can do only {scenario.brownout_capacity:g}/s.",
        f"Clients stop waiting after {scenario.client_timeout:g} s. Nobody tells the service:",
        "it does their work all the same.",
        "",
    )
    screen.code(f"{inspect.getsource(patient)}\n{inspect.getsource(restrained)}")
    screen.show(
        "Five successes earn one retry, and one a second is free.",
        "While everything fails nothing is earned: the service is left in peace.",
        "",
    )
    if not screen.live:
        screen.show(f"Four services, one for each way to call, watched for {scenario.end:g} s:", "")
    asyncio.run(_watch(screen, scenario))


async def _watch(screen: Screen, scenario: Scenario) -> None:
    """Run the four strategies concurrently, each with its own service, and draw them meanwhile."""
    async with AsyncExitStack() as stack:
        # Time zero is a moment from now: the connections are opened first.
        start = time.monotonic() + 0.2

        def now() -> float:
            return time.monotonic() - start

        runs: list[Measured] = []
        calling: list[asyncio.Task[None]] = []
        for strategy in strategies():
            service = await stack.enter_async_context(LimitedService(scenario, now))
            run = Measured(strategy.name, service.arrived, [])
            runs.append(run)
            calling.append(
                asyncio.create_task(keep_calling(service.port, strategy.call, scenario, now, run.calls))
            )
        try:
            while any(not task.done() for task in calling):
                screen.frame(picture(runs, scenario, min(now(), scenario.end - 0.001), screen.width))
                await asyncio.wait(calling, timeout=BETWEEN_FRAMES)
            await asyncio.gather(*calling)
        finally:
            for task in calling:
                task.cancel()
            await asyncio.gather(*calling, return_exceptions=True)
    screen.settle(picture(runs, scenario, scenario.end, screen.width))
