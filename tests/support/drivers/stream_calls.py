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
from tests.support.streams import GENERATORS, HOOKS, SHAPES, Reader, ScriptedSource, Source, until_closed

COMMITTED = "redouble: gave up after 1 attempt in 0.0 s (items had been handed out)"


@dataclass(eq=False)
class StreamResult(Call):
    """The result of a stream: ``value`` is the list of items, ``events`` the trail."""

    note: str | None = None
    got: list[object] | None = None
    returned: object = None


def play(colour: str, script: Sequence[Source], reader: Reader = Reader(), **options: Any) -> StreamResult:  # noqa: B008  frozen
    """Read a stream in every shape, with observers and without; check that all agree."""
    every: dict[str, StreamResult] = {}
    shapes = GENERATORS if reader.does in ("send", "throw") else SHAPES

    def blocking() -> None:
        for name, shape in shapes.items():
            for observed in (True, False):
                one = _StreamRun(script, options, observed)
                try:
                    one.returned = reader.read(lambda: shape(one.policy, one.source.items), one.taken)  # noqa: B023
                except BaseException as error:
                    one.error = error
                every[f"{name}, observed={observed}"] = one.result()

    async def waiting() -> None:
        for name, shape in shapes.items():
            for observed in (True, False):
                one = _StreamRun(script, options, observed)
                try:
                    await reader.aread(lambda: shape(one.policy, one.source.aitems), one.taken)  # noqa: B023
                except BaseException as error:
                    one.error = error
                await until_closed(colour)
                every[f"{name}, observed={observed}"] = one.result()

    in_colour(colour, blocking, waiting)
    first = every["call, observed=True"]
    for name, streamed in every.items():
        seen, expected = vars(streamed), vars(first)
        if name.endswith("observed=False"):
            words = [word for word in (first.events or "").split() if word.partition(":")[0] not in EVENTS]
            expected = {**expected, "events": " ".join(words)}
        if name.startswith("stream"):
            expected = {**expected, "returned": None}  # a mere iterator
        assert seen == expected, name
    return first


EVENTS = ("before_attempt", "success", "failure", "retry", "give_up")


class _StreamRun:
    """One read of a stream."""

    def __init__(self, script: Sequence[Source], options: dict[str, Any], observed: bool) -> None:
        arguments: dict[str, Any] = {"on": Exception, "backoff": [0] * 99, "hints": Hints(spread=0)} | options
        self.trail: list[str] = []
        self.clock = Virtual()
        self.source = ScriptedSource(script, self.clock, self.trail)
        self.taken = _TracedItems(self.trail)
        self.error: BaseException | None = None
        self.returned: object = None
        ledger: Callable[..., Ledger] | None = arguments.pop("budget", None)
        budget = None if ledger is None else ledger(lines=_TracedLines(self.trail))
        for hook in HOOKS if observed else ():
            arguments[hook] = self.record
        self.policy = Retry(**arguments, clock=self.clock, budget=budget)

    def record(self, event: Event) -> None:
        self.trail.append(f"{event.what}:{event.attempt}")

    def result(self) -> StreamResult:
        self.trail.append("left")
        found = None if self.error is None else report(self.error)
        notes = getattr(self.error, "__notes__", [])
        assert len(notes) <= 1
        return StreamResult(
            value=list(self.taken),
            raises=None if self.error is None else type(self.error),
            reason=None if found is None else found.reason,
            attempts=self.source.opened if found is None else found.attempts,
            sleeps=[wait for wait in self.clock.waits if wait],
            limit=None if found is None else found.limit,
            events=" ".join(self.trail),
            note=notes[0] if notes else None,
            got=self.source.got,
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
