"""Scripted sources of streams, consumers of every kind, and the shapes of a stream.

A source is a list of steps: items to yield, errors to raise, and the few steps below. It records its actions
in a trail of words.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from trio.testing import wait_all_tasks_blocked

from redouble import SYSTEM, Gate, Retry
from tests.support.fakes import Boom, Virtual

HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")

Source: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class Takes:
    """A step that advances the clock."""

    seconds: float


@dataclass(frozen=True)
class Returns:
    """A step that returns a value from the generator; an async generator only ends."""

    value: object


@dataclass(frozen=True)
class Catches:
    """A step that yields an item, and continues if a `Boom` is thrown into the generator."""

    item: object


@dataclass(frozen=True)
class FailsToClose:
    """A step after which closing raises a `Boom`."""


class ScriptedSource:
    """Opens the sources of a script one after the other; the last one repeats."""

    def __init__(self, script: Sequence[Source], clock: Virtual, trail: list[str]) -> None:
        self.script, self.clock, self.trail = script, clock, trail
        self.opened = 0
        self.got: list[object] = []  # the value sent for each item

    def _open(self) -> tuple[int, Source]:
        self.opened += 1
        self.trail.append(f"open:{self.opened}")
        return self.opened, self.script[min(self.opened, len(self.script)) - 1]

    def items(self) -> Generator[Any, Any, Any]:
        spoilt = False
        number, source = self._open()
        try:
            for step in source:
                match step:
                    case Takes(seconds):
                        self.clock.time += seconds
                    case FailsToClose():
                        spoilt = True
                    case Returns(value):
                        return value
                    case "fail":
                        raise Boom
                    case BaseException():
                        raise step
                    case Catches(item):
                        try:
                            self.got.append((yield item))
                        except Boom:
                            self.got.append("caught")
                    case _:
                        self.got.append((yield step))
        finally:
            self.trail.append(f"close:{number}")
            if spoilt:
                raise Boom("cannot be closed")

    async def aitems(self) -> AsyncGenerator[Any, Any]:
        spoilt = False
        number, source = self._open()
        try:
            for step in source:
                await SYSTEM.asleep(0)
                match step:
                    case Takes(seconds):
                        self.clock.time += seconds
                    case FailsToClose():
                        spoilt = True
                    case Returns():
                        return
                    case "fail":
                        raise Boom
                    case BaseException():
                        raise step
                    case Catches(item):
                        try:
                            self.got.append((yield item))
                        except Boom:
                            self.got.append("caught")
                    case _:
                        self.got.append((yield step))
        finally:
            self.trail.append(f"close:{number}")
            if spoilt:
                raise Boom("cannot be closed")


# --------------------------------------------------------------------------- consumers


@dataclass(frozen=True)
class Reader:
    """A consumer that acts after some items; ``value`` is sent, thrown or raised."""

    does: Literal["exhaust", "break", "raise", "close", "drop", "send", "throw"] = "exhaust"
    after: int = 1
    value: Any = None

    def read(self, make: Callable[[], Any], taken: list[object]) -> object:
        if self.does in ("break", "raise"):
            for item in make():
                taken.append(item)
                if len(taken) == self.after:
                    if self.does == "raise":
                        raise self.value
                    break
            return None
        stream = make()
        try:
            while len(taken) < self.after or self.does == "exhaust":
                taken.append(next(stream))
            match self.does:
                case "drop":
                    return None
                case "close":
                    stream.close()
                case "send":
                    taken.append(stream.send(self.value))
                case _:
                    taken.append(stream.throw(self.value))
            while True:
                taken.append(next(stream))
        except StopIteration as end:
            return end.value

    async def aread(self, make: Callable[[], Any], taken: list[object]) -> None:
        if self.does in ("break", "raise"):
            async for item in make():
                taken.append(item)
                if len(taken) == self.after:
                    if self.does == "raise":
                        raise self.value
                    break
            return
        stream = make()
        try:
            while len(taken) < self.after or self.does == "exhaust":
                taken.append(await anext(stream))
            match self.does:
                case "drop":
                    return
                case "close":
                    await stream.aclose()
                case "send":
                    taken.append(await stream.asend(self.value))
                case _:
                    taken.append(await stream.athrow(self.value))
            while True:
                taken.append(await anext(stream))
        except StopAsyncIteration:
            pass


async def until_closed(colour: str) -> None:
    """Wait until an abandoned stream is closed: by a system task of Trio; asyncio has closed it already."""
    if colour == "trio":
        await wait_all_tasks_blocked()


# ------------------------------------------------------------------------------ shapes


class OpenGate(Gate):
    """A gate that admits every call."""

    def admit(self, now: float, /) -> None: ...


class RecordingGate(Gate):
    """A gate that admits every call and records how each ended."""

    def __init__(self) -> None:
        self.inside = 0
        self.left: list[BaseException | None] = []

    def admit(self, now: float, /) -> None:
        self.inside += 1

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        self.inside -= 1
        self.left.append(error)


Shape: TypeAlias = Callable[[Retry, Callable[[], Any]], Any]


def decorated(policy: Retry, items: Callable[[], Any]) -> Any:
    return policy(items)()


def called(policy: Retry, items: Callable[[], Any]) -> Any:
    return policy.call(items)


def piped(policy: Retry, items: Callable[[], Any]) -> Any:
    return (OpenGate() | policy | OpenGate())(items)()


def gated(policy: Retry, items: Callable[[], Any]) -> Any:
    return OpenGate()(policy(items))()


def streamed(policy: Retry, items: Callable[[], Any]) -> Any:
    return policy.stream(items)


def stacked(policy: Retry, items: Callable[[], Any]) -> Any:
    return policy(Retry(attempts=1, nested="allow")(items))()


GENERATORS: dict[str, Shape] = {"decorator": decorated, "call": called, "pipeline": piped, "gate": gated}
SHAPES: dict[str, Shape] = GENERATORS | {"stream": streamed}
