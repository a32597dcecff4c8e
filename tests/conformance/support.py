"""Time, chance, operations and a budget for the tables: none of them real, all of them exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Lock

from redouble import SYSTEM, Backoff, Clock, Grant, Kind, Verdict


class Virtual(Clock):
    """A clock that moves only when told to, and remembers every wait."""

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


class Draws:
    """Chance that is none: the given numbers in turn, the last one for ever."""

    def __init__(self, *draws: float) -> None:
        self.draws = draws
        self.drawn = 0

    def random(self) -> float:
        self.drawn += 1
        return self.draws[min(self.drawn, len(self.draws)) - 1]


class SplitMix64:
    """Swift's seeded generator; a number in [0, 1) takes 128 bits, the low word first, as Swift's does."""

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
    """What a scripted operation raises."""


class Panic(BaseException):
    """A crash: nothing that a policy may judge."""


@dataclass(frozen=True)
class Step:
    """One attempt: what it raises or returns, how long it takes, and what is thought of it."""

    value: object = None
    error: str | BaseException | None = None
    takes: float = 0
    verdict: Verdict | None = None


def fail(error: str | BaseException = "e", takes: float = 0, verdict: Verdict | None = None) -> Step:
    return Step(error=error, takes=takes, verdict=verdict)


def ok(value: object = "ok", takes: float = 0, verdict: Verdict | None = None) -> Step:
    return Step(value, takes=takes, verdict=verdict)


class Operation:
    """Does what the script says; its last step repeats."""

    def __init__(self, script: Sequence[Step], clock: Virtual) -> None:
        self.script = script
        self.clock = clock
        self.calls = 0
        self.step = script[0]
        self.raised: list[BaseException] = []

    def __call__(self) -> object:
        self.step = self.script[min(self.calls, len(self.script) - 1)]
        self.calls += 1
        self.clock.time += self.step.takes
        error = self.step.error
        if error is None:
            return self.step.value
        self.raised.append(ScriptedError(error) if isinstance(error, str) else error)
        raise self.raised[-1]


class Bucket:
    """The smallest budget: tokens, a cost by kind, the last cost back on success, or else one token."""

    def __init__(self, tokens: float, cost: float = 5, *, capacity: float = 500, **costs: float) -> None:
        self.tokens = tokens
        self.cost = cost
        self.costs = costs
        self.capacity = capacity
        self.started = self.spent = self.refunded = 0
        self.trail: list[str] = []
        self.lock = Lock()

    def start(self, now: float, /) -> None:
        self.started += 1

    def failed(self, kind: Kind, now: float, /) -> None:
        """Do nothing: a failure is free, a retry costs."""

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        with self.lock:
            cost = self.costs.get(kind, self.cost)
            if cost > self.tokens:
                return None
            self.tokens -= cost
            self.spent += 1
            self.trail.append(f"retry.{kind}")
            return Grant(cost)

    def credit(self, grant: Grant | None, now: float, /) -> None:
        with self.lock:
            self.tokens = min(self.capacity, self.tokens + (1 if grant is None else grant.cost))
            self.trail.append("success")

    def refund(self, grant: Grant, now: float, /) -> None:
        with self.lock:
            self.tokens += grant.cost
            self.refunded += 1

    def snapshot(self) -> Mapping[str, float]:
        return {"tokens": self.tokens}


def series(backoff: Backoff, count: int, *draws: float) -> list[float]:
    """Return the first delays of a recipe, drawn with the given numbers."""
    return list(islice(backoff.delays(Draws(*draws or (0.5,))), count))
