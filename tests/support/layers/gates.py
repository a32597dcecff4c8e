"""A gate of a user, functions to call through a gate, and reads of gated streams."""

from __future__ import annotations

from typing import Any

from redouble import SYSTEM, Gate, errors
from tests.support.fakes import Boom, Panic, Virtual, in_colour
from tests.support.streams import Reader, ScriptedSource


class AtMost(Gate):
    """A gate of a user: at most this many concurrent calls."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.inside = 0
        self.clock = self.virtual = Virtual()
        self.log: list[tuple[int, BaseException | None, float]] = []

    def admit(self, now: float, /) -> int:
        if self.inside == self.limit:
            raise errors.Rejected(f"{self.limit} are inside", retry_after=2)
        self.inside += 1
        return self.inside

    def ended(self, ticket: int, error: BaseException | None, now: float, /) -> None:
        self.inside -= 1
        self.log.append((ticket, error, now))

    def __repr__(self) -> str:
        return f"AtMost({self.limit})"


def add(one: int, *, two: int = 2) -> int:
    """Add them."""
    return one + two


async def aadd(one: int, *, two: int = 2) -> int:
    """Add them."""
    await SYSTEM.asleep(0)
    return one + two


BOOM, PANIC = Boom("x"), Panic()


def read_gated(colour: str, gate: Gate, script: list[Any], reader: Reader = Reader()) -> list[object]:  # noqa: B008  frozen
    """Read a gated stream; return its items, and its error if there is one."""
    source, taken = ScriptedSource([script], Virtual(), []), list[object]()

    async def waiting() -> None:
        await reader.aread(gate(source.aitems), taken)

    try:
        in_colour(colour, lambda: reader.read(gate(source.items), taken), waiting)
    except BaseException as error:
        taken.append(error)
    assert source.trail.count("open:1") == source.trail.count("close:1") == source.opened
    return taken
