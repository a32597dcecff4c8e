"""One row, one call that is hedged, in virtual time.

A script is words: ``a:10`` is an attempt that returns ``a`` after 10 s, ``!a:10`` one that fails then; the
last one stands for all that follow. What is seen of it is a line: ``0 1: b at 1.5, cut 1, won`` says that
attempts began at 0 and 1, that ``b`` came out at 1.5, that the first one was cut, and that an extra one won.
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
    """What is called: it notes when each attempt began, and which were cut."""

    def __init__(self, clock: VirtualClock, script: str) -> None:
        self.clock, self.script = clock, script.split()
        self.began = list[float]()
        self.cut = list[int]()

    async def fetch(self) -> str:
        self.began.append(self.clock.now())
        number = len(self.began)
        name, _, seconds = self.script[min(number, len(self.script)) - 1].partition(":")
        self.cut.append(number)
        await SYSTEM.asleep(float(seconds))
        self.cut.remove(number)
        if name.startswith("!"):
            raise ScriptedError(name[1:])
        return name

    async def call_through(self, layer: Layer) -> str:
        """Be called through a layer, and tell what is seen of it."""
        start = self.clock.now()
        try:
            came = await layer.call(self.fetch)
        except Exception as error:
            came = f"!{error}"
        began = " ".join(f"{moment - start:g}" for moment in self.began)
        cut = f", cut {' '.join(map(str, sorted(self.cut)))}" if self.cut else ""
        return f"{began}: {came} at {self.clock.now() - start:g}{cut}"


def hedged_call(colour: str, make: Callable[[], Layer], script: str) -> str:
    """Make a call, and tell what is seen of it."""

    async def waiting() -> str:
        with virtual_time() as clock:
            layer = make()
            seen = await Service(clock, script).call_through(layer)
        hedge = next(part for part in getattr(layer, "layers", [layer]) if isinstance(part, Hedge))
        return seen + "".join(f", {word}" for word in ("won", "suppressed") if hedge.snapshot()[word])

    return in_colour(colour, str, waiting, MockClock(autojump_threshold=0))


def late(delay: float, hedges: int = 1, **options: Any) -> Callable[[], Hedge]:
    """Hedge what takes longer, whatever the load."""
    return partial(Hedge, delay, None, hedges=hedges, **options)


# gRPC's service config: a hedge every 100 s, up to 6 attempts; a server may ask for a wait, or to stop.
GRPC = late(100, 5, on=answers({"stop": False, "after-101": 101, "after-99": 99, "*": True}))
