"""Reads one stream in every shape of a colour, and checks that all shapes agree.

The actions of the source, the consumer, the budget and the observers are recorded in one trail of words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redouble import Hints, Retry, report
from redouble.types import Event
from tests.support.fakes import Call, Ledger, Virtual, in_colour
from tests.support.streams import GENERATORS, HOOKS, SHAPES, Reader, ScriptedSource, Source

COMMITTED = "redouble: gave up after 1 attempt in 0.0 s (items had been handed out)"


@dataclass(eq=False)
class Streamed(Call):
    """The result of a stream: ``value`` is the list of items, ``told`` the trail."""

    note: str | None = None
    got: list[object] | None = None
    returned: object = None


def play(colour: str, script: Sequence[Source], reader: Reader = Reader(), **options: Any) -> Streamed:  # noqa: B008  frozen
    """Read a stream in every shape, with observers and without; check that all agree."""
    every: dict[str, Streamed] = {}
    shapes = GENERATORS if reader.does in ("send", "throw") else SHAPES

    def blocking() -> None:
        for name, shape in shapes.items():
            for heard in (True, False):
                one = _StreamRun(script, options, heard)
                try:
                    one.returned = reader.read(lambda: shape(one.policy, one.tape.items), one.taken)  # noqa: B023
                except BaseException as error:
                    one.error = error
                every[f"{name}, heard={heard}"] = one.seen()

    async def waiting() -> None:
        for name, shape in shapes.items():
            for heard in (True, False):
                one = _StreamRun(script, options, heard)
                try:
                    await reader.aread(lambda: shape(one.policy, one.tape.aitems), one.taken)  # noqa: B023
                except BaseException as error:
                    one.error = error
                every[f"{name}, heard={heard}"] = one.seen()

    in_colour(colour, blocking, waiting)
    first = every["call, heard=True"]
    for name, streamed in every.items():
        seen, expected = vars(streamed), vars(first)
        if name.endswith("heard=False"):
            words = [word for word in (first.told or "").split() if word.partition(":")[0] not in EVENTS]
            expected = {**expected, "told": " ".join(words)}
        if name.startswith("stream"):
            expected = {**expected, "returned": None}  # a mere iterator
        assert seen == expected, name
    return first


EVENTS = ("before_attempt", "success", "failure", "retry", "give_up")


class _StreamRun:
    """One read of a stream."""

    def __init__(self, script: Sequence[Source], options: dict[str, Any], heard: bool) -> None:
        said: dict[str, Any] = {"on": Exception, "backoff": [0] * 99, "hints": Hints(spread=0)} | options
        self.trail: list[str] = []
        self.clock = Virtual()
        self.tape = ScriptedSource(script, self.clock, self.trail)
        self.taken = _TracedItems(self.trail)
        self.error: BaseException | None = None
        self.returned: object = None
        ledger: Callable[..., Ledger] | None = said.pop("budget", None)
        budget = None if ledger is None else ledger(lines=_TracedLines(self.trail))
        for hook in HOOKS if heard else ():
            said[hook] = self.hear
        self.policy = Retry(**said, clock=self.clock, budget=budget)

    def hear(self, event: Event) -> None:
        self.trail.append(f"{event.what}:{event.attempt}")

    def seen(self) -> Streamed:
        self.trail.append("left")
        said = None if self.error is None else report(self.error)
        notes = getattr(self.error, "__notes__", [])
        assert len(notes) <= 1
        return Streamed(
            value=list(self.taken),
            raises=None if self.error is None else type(self.error),
            reason=None if said is None else said.reason,
            attempts=self.tape.opened if said is None else said.attempts,
            sleeps=[wait for wait in self.clock.waits if wait],
            limit=None if said is None else said.limit,
            told=" ".join(self.trail),
            note=notes[0] if notes else None,
            got=self.tape.got,
            returned=self.returned,
        )


class _TracedItems(list[object]):
    """The items that a consumer has received, each recorded in the trail."""

    def __init__(self, trail: list[str]) -> None:
        super().__init__()
        self._trail = trail

    def append(self, item: object, /) -> None:
        self._trail.append(f"item:{item}")
        super().append(item)


class _TracedLines(list[str]):
    """The lines of a `Ledger`, recorded in the trail as one word each."""

    def __init__(self, trail: list[str]) -> None:
        super().__init__()
        self._trail = trail

    def append(self, line: str, /) -> None:
        self._trail.append(line.removesuffix(" None").removesuffix(" unknown").replace(" ", "-"))
