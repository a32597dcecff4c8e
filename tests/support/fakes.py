"""A fake clock, fake random numbers, scripted operations and a recording budget for the tests.

A script defines the outcome of each attempt; `Call` is the result of one call. A row of a table is run in
every colour, and there in every shape of a call (see `tests.support.drivers.scripted_calls`).
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import trio

from redouble import Grant, Kind
from tests.support.scripted import Draws, Operation, Panic, Step, Virtual, fail, ok
from tests.support.scripted import ScriptedError as Boom

__all__ = [
    "ASYNC",
    "COLOURS",
    "SYNC",
    "Boom",
    "Call",
    "Draws",
    "Ledger",
    "Operation",
    "Panic",
    "Script",
    "Step",
    "Virtual",
    "always",
    "fail",
    "in_colour",
    "nothing",
    "ok",
    "options",
    "run_async",
    "stable_repr",
    "steps",
]

SYNC = ("sync", "thread")
ASYNC = ("asyncio", "trio") if sys.platform == "win32" else ("asyncio", "uvloop", "trio")
COLOURS = SYNC + ASYNC


def stable_repr(value: object) -> str:
    """Return the repr without addresses, for ids: all workers of pytest-xdist must collect the same tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


Script: TypeAlias = "Sequence[Step | BaseException | Literal['fail']]"


def steps(script: Script) -> list[Step]:
    """Return the steps of a script, in which ``"fail"`` and bare exceptions are steps too."""
    return [
        fail() if step == "fail" else fail(step) if isinstance(step, BaseException) else step
        for step in script
    ]


def always(answer: Any) -> Callable[[object], Any]:
    """Return a rule that always returns the same answer."""

    def rule(_: object) -> Any:
        return answer

    return rule


def options(**options: Any) -> dict[str, Any]:
    """Return options of `Retry` as a dict."""
    return options


@dataclass
class Ledger:
    """A budget that records its calls and grants ``retries`` retries, each after ``wait`` seconds."""

    retries: int = 1000
    wait: float = 0.0
    lines: list[str] = field(default_factory=list[str])
    times: list[float] = field(default_factory=list[float])
    grants: list[Grant] = field(default_factory=list[Grant])

    def _write(self, now: float, *words: object) -> None:
        self.times.append(now)
        self.lines.append(" ".join(map(str, words)))

    def _number(self, grant: Grant | None) -> int | None:
        return None if grant is None else next(i for i, own in enumerate(self.grants, 1) if own is grant)

    def start(self, now: float, /) -> None:
        self._write(now, "start")

    def failed(self, kind: Kind, now: float, /) -> None:
        self._write(now, "failed", kind)

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        self._write(now, "spend", kind)
        if len(self.grants) == self.retries:
            return None
        self.grants.append(Grant(1, self.wait))
        return self.grants[-1]

    def credit(self, grant: Grant | None, now: float, /) -> None:
        self._write(now, "credit", self._number(grant))

    def refund(self, grant: Grant, now: float, /) -> None:
        self._write(now, "refund", self._number(grant))

    def snapshot(self) -> Mapping[str, float]:
        return {"available": self.retries - len(self.grants)}


@dataclass(eq=False)
class Call:  # noqa: PLW1641  compared, never a key
    """The result of one call. Two results do not differ in a field of the second half if one has None."""

    value: object = None
    raises: type[BaseException] | None = None
    reason: str | None = None

    attempts: int | None = None
    sleeps: Sequence[float] | None = None
    limit: str | None = None
    ledger: str | None = None
    events: str | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Call):
            return NotImplemented
        mine, others = vars(self), vars(other)
        always = ("value", "raises", "reason")
        return all(
            mine[word] == others[word]
            for word in mine
            if word in always or None not in (mine[word], others[word])
        )


def in_colour(colour: str, blocking: Callable[[], object], waiting: Callable[[], Awaitable[object]]) -> Any:
    """Run ``blocking`` or ``waiting``, whichever fits the colour."""

    async def main() -> object:
        return await waiting()

    match colour:
        case "sync":
            return blocking()
        case "thread":
            with ThreadPoolExecutor(1) as pool:
                return pool.submit(blocking).result()
        case "asyncio":
            return asyncio.run(main())
        case "uvloop":
            import uvloop

            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(main())
        case _:
            return trio.run(main)


def run_async(colour: str, main: Callable[[], Awaitable[Any]]) -> Any:
    """Run async code in an async colour."""
    return in_colour(colour, lambda: None, main)


async def nothing() -> None:
    """Return at once: an async operation without an effect."""


class UnhashableRule:
    """A rule that is not hashable."""

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnhashableRule)

    def judge(self, ended: object, /) -> bool:
        return True
