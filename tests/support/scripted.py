"""Fake clocks, fake random numbers, scripted operations and a recording token bucket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import Literal, Protocol

import trio
from trio.testing import wait_all_tasks_blocked

from redouble import SYSTEM, Backoff, Clock, Grant, Kind, TokenBucket, Verdict, cancelled
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock


class TimeView(Protocol):
    """The clock of a test: the settable time and the recorded waits."""

    waits: list[float]

    @property
    def time(self) -> float: ...
    @time.setter
    def time(self, moment: float, /) -> None: ...


class Virtual(Clock):
    """A clock that only the test and waits advance; every wait is recorded."""

    def __init__(self, time: float = 0.0) -> None:
        self.time = time
        self.waits: list[float] = []

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds

    def anow(self) -> float:
        return self.time

    async def asleep(self, seconds: float) -> None:
        await SYSTEM.asleep(0)
        self.sleep(seconds)


class VirtualTimeView:
    """The same for a block of virtual time, in which sleeps can be cancelled."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.waits = clock.delays

    @property
    def time(self) -> float:
        return self.clock.now()

    @time.setter
    def time(self, moment: float) -> None:
        self.clock.advance(
            max(0.0, moment - self.clock.now())
        )  # while a loop waits for a worker the time may pass the moment


class Draws:
    """Fake random numbers: the given ones in order; the last one repeats."""

    def __init__(self, *draws: float) -> None:
        self.draws = draws
        self.drawn = 0

    def random(self) -> float:
        self.drawn += 1
        return self.draws[min(self.drawn, len(self.draws)) - 1]


class SplitMix64:
    """Swift's seeded generator: a number in [0, 1) uses 128 bits, the low word first, as in Swift."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & (2**64 - 1)
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
        return z ^ (z >> 31)

    def random(self) -> float:
        low, high = self.next(), self.next()
        return ((high << 64) | low) / 2**128


class ScriptedError(Exception):
    """The error of a scripted operation."""


class Panic(BaseException):
    """A BaseException, for which no rule is called."""


@dataclass(frozen=True)
class Step:
    """One attempt: its error or value, its duration, and the verdict of the rule.

    On a worker it may run until it is cancelled and then for its duration, or until the end of the test.
    """

    value: object = None
    error: str | BaseException | None = None
    takes: float = 0
    verdict: Verdict | None = None
    stops: Literal["by itself", "when cancelled", "never"] = "by itself"


def fail(error: str | BaseException = "e", takes: float = 0, verdict: Verdict | None = None) -> Step:
    return Step(error=error, takes=takes, verdict=verdict)


def ok(value: object = "ok", takes: float = 0, verdict: Verdict | None = None) -> Step:
    return Step(value, takes=takes, verdict=verdict)


class Operation:
    """An operation that plays a script; the last step repeats."""

    def __init__(self, script: Sequence[Step], clock: TimeView) -> None:
        self.script = script
        self.clock = clock
        self.calls = 0
        self.step = script[0]
        self.raised: list[BaseException] = []
        self.was_cancelled: list[bool] = []  # for each call with another ``stops``: True if it was cancelled
        self.started, self.released, self.ended = Event(), Event(), Event()

    def __call__(self) -> object:
        step = self._begin()
        if step.stops == "when cancelled":
            while not cancelled() and not self.released.is_set():
                self.released.wait(0.001)
        elif step.stops == "never":
            self.released.wait()
        if step.stops != "by itself":
            self.was_cancelled.append(cancelled())
            self.ended.set()
        self.clock.time += step.takes
        return self._end(step)

    def release(self) -> None:
        """Release calls that run until the end of the test."""
        self.released.set()
        if any(step.stops != "by itself" for step in self.script):
            self.ended.wait()

    async def later(self) -> object:
        """Play the next step in async code, and sleep for its duration."""
        step = self._begin()
        if step.takes:
            await backend().sleep(step.takes)
        return self._end(step)

    def _begin(self) -> Step:
        self.step = self.script[min(self.calls, len(self.script) - 1)]
        self.calls += 1
        self.started.set()
        return self.step

    def _end(self, step: Step) -> object:
        if step.error is None:
            return step.value
        self.raised.append(ScriptedError(step.error) if isinstance(step.error, str) else step.error)
        raise self.raised[-1]


class Bucket(TokenBucket):
    """A token bucket that records its calls; ``cost`` is for all other kinds."""

    def __init__(self, tokens: float = 500, cost: float = 5, **costs: float) -> None:
        super().__init__(tokens, {Kind(kind): own for kind, own in costs.items()} | {None: cost})
        self.spent = self.refunded = 0
        self.trail: list[str] = []

    @property
    def tokens(self) -> float:
        return self.snapshot()["tokens"]

    def spend(self, kind: Kind = Kind.unknown, now: float | None = None, /) -> Grant | None:
        grant = super().spend(kind, now)
        if grant is not None:
            self.spent += 1
            self.trail.append(f"retry.{kind}")
        return grant

    def credit(self, grant: Grant | None = None, now: float | None = None, /) -> None:
        super().credit(grant, now)
        self.trail.append("success")

    def refund(self, grant: Grant, now: float | None = None, /) -> None:
        super().refund(grant, now)
        self.refunded += 1


def series(backoff: Backoff, count: int, *draws: float) -> list[float]:
    """Return the first delays of a backoff, drawn with the given numbers."""
    return list(islice(backoff.delays(Draws(*draws or (0.5,))), count))


async def cancelled_in(colour: str, fn: Callable[[], Awaitable[object]]) -> None:
    """Call a coroutine function in an async colour, and cancel the call once it waits."""
    if colour == "trio":
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fn)
                await wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught
    else:
        task = asyncio.ensure_future(fn())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
