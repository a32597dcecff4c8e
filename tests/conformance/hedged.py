"""One row, one call that is hedged, in virtual time.

A script is a list of words: ``a:10`` is an attempt that returns ``a`` after 10 s, ``!a:10`` one that fails
then; the last one repeats. The result is a line: ``0 1: b at 1.5, cut 1, won`` means that attempts began at 0
and 1, that the call returned ``b`` at 1.5, that the first one was cancelled, and that a hedge won.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from redouble import SYSTEM, Hedge, Layer
from redouble.testing import VirtualClock, virtual_time
from tests.conformance.flows import ASYNC, answers, in_colour
from tests.support.scripted import ScriptedError

in_async_code = pytest.mark.parametrize("colour", ASYNC)


class Service:
    """The called service, which records when each attempt began and which were cancelled."""

    def __init__(self, clock: VirtualClock, script: str) -> None:
        self.clock, self.script = clock, script.split()
        self.start_times = list[float]()
        self.cancelled = list[int]()

    async def fetch(self) -> str:
        self.start_times.append(self.clock.now())
        number = len(self.start_times)
        name, _, seconds = self.script[min(number, len(self.script)) - 1].partition(":")
        self.cancelled.append(number)
        await SYSTEM.asleep(float(seconds))
        self.cancelled.remove(number)
        if name.startswith("!"):
            raise ScriptedError(name[1:])
        return name

    async def call_through(self, layer: Layer) -> str:
        """Call the service through a layer, and return the result as a line."""
        start = self.clock.now()
        try:
            result = await layer.call(self.fetch)
        except Exception as error:
            result = f"!{error}"
        began = " ".join(f"{moment - start:g}" for moment in self.start_times)
        cut = f", cut {' '.join(map(str, sorted(self.cancelled)))}" if self.cancelled else ""
        return f"{began}: {result} at {self.clock.now() - start:g}{cut}"


def hedged_call(colour: str, make: Callable[[], Layer], script: str) -> str:
    """Make a hedged call, and return the result as a line."""

    async def waiting() -> str:
        with virtual_time() as clock:
            layer = make()
            seen = await Service(clock, script).call_through(layer)
        hedge = next(part for part in getattr(layer, "layers", [layer]) if isinstance(part, Hedge))
        return seen + "".join(f", {word}" for word in ("won", "suppressed") if hedge.snapshot()[word])

    return in_colour(colour, str, waiting, MockClock(autojump_threshold=0))


def late(delay: Any, hedges: int = 1, **options: Any) -> Callable[[], Hedge]:
    """Return a factory of hedges with a fixed delay and no quota."""
    return partial(Hedge, delay, None, hedges=hedges, **options)


# gRPC's service config: a hedge every 100 s, up to 6 attempts; a server may ask for a wait, or to stop.
ANSWERS = answers({"stop": False, "after-101": 101, "after-99": 99, "*": True})
GRPC = late(100, 5, on=ANSWERS)
GRPC_AT_ONCE = late(100, 5, on=ANSWERS, failover=True)
