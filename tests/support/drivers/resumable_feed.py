"""A scripted feed of numbers that can be resumed after any item."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

from redouble import SYSTEM, Retry
from redouble.types import Event
from tests.support.fakes import Boom, Ledger, Virtual, in_colour
from tests.support.streams import HOOKS


class Feed:
    """A source of numbers; each connection behaves as its step of the script, and the last step repeats.

    A step is the number of items before the connection breaks, None if it breaks before any item, the error
    that it breaks with, or a tuple of both; "refused" cannot be opened, and "end" delivers all items.
    """

    def __init__(self, *script: Any, most: int = 6, **options: Any) -> None:
        self.script, self.most = script, most
        self.clock = Virtual()
        self.trail: list[str] = []
        self.resumed_after: list[object] = []
        self.opened = 0
        self.taken: list[int] = []
        ledger = options.pop("budget", None)
        self.ledger: Ledger | None = ledger() if ledger else None
        defaults: dict[str, Any] = {"on": Boom, "backoff": [1, 2, 4, 8], "clock": self.clock}
        hooks: dict[str, Any] = dict.fromkeys(HOOKS, self.record)
        self.policy = Retry(**defaults | hooks | options, budget=self.ledger)

    def record(self, event: Event) -> None:
        self.trail.append(f"{event.what}:{event.attempt}")

    def _next_step(self) -> tuple[int, int, Exception | None]:
        self.opened += 1
        step: Any = self.script[min(self.opened, len(self.script)) - 1]
        count: Any = step
        error: Any = Boom("broken")
        if isinstance(step, tuple):
            count, error = cast("tuple[Any, Any]", step)
        if isinstance(count, Exception):
            count, error = 0, count
        return self.opened, count, None if count == "end" else error

    def read(self, after: int) -> Iterator[int]:
        number, count, error = self._next_step()
        self.trail.append(f"open:{number}")
        try:
            last = self.most if error is None else after + (count or 0)
            yield from range(after + 1, last + 1)
            if error is not None:
                raise error
        finally:
            self.trail.append(f"close:{number}")

    async def aread(self, after: int) -> AsyncIterator[int]:
        await SYSTEM.asleep(0)
        for item in self.read(after):
            yield item

    def _after(self, read: Callable[[int], Any]) -> Callable[[int], Any]:
        def resume(last: int) -> Any:
            self.resumed_after.append(last)
            if self.script[min(self.opened + 1, len(self.script)) - 1] == "refused":
                self.opened += 1
                raise Boom("refused")
            return read(last)

        return resume

    def stream(self, read: Callable[[int], Any]) -> Any:
        return self.policy.stream(lambda: read(0), resume=self._after(read))

    def play(self, colour: str, most: int = 99) -> list[int]:
        def blocking() -> None:
            for item in self.stream(self.read):
                self.trail.append(f"item:{item}")
                self.taken.append(item)
                if len(self.taken) == most:
                    break

        async def waiting() -> None:
            async for item in self.stream(self.aread):
                self.trail.append(f"item:{item}")
                self.taken.append(item)
                if len(self.taken) == most:
                    break

        in_colour(colour, blocking, waiting)
        return self.taken
