"""Gates that one may have to wait for: how blocks and streams pass through them."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TYPE_CHECKING

from redouble._gate import Gate, Passage, better_inside
from redouble._internal.locks import Shared
from redouble._layer import Layer
from redouble._line import Line

if TYPE_CHECKING:
    from redouble._worst import WorstCase

__all__ = ["WaitingGate"]


class WaitingGate(Shared, Gate):
    """A gate with a line in front of it."""

    _line: Line

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a permit; None for as long as it takes."""
        return self._line.wait

    def admit(self, now: float, /) -> None:
        """Take a permit without waiting, or raise `RateLimited`."""
        self._line.pass_at(now)

    def _passage(self, *, stream: bool = False) -> Passage:
        return Permit(self, stream=stream)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del outer, worst
        return better_inside(self, inner, "attempts pass that it knows nothing of")

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait)


class Permit(Passage):
    """One call on its way through, by ``with``, or one generator."""

    __slots__ = ()

    gate: WaitingGate

    def enter(self) -> None:
        self.gate._line.enter()
        self.entered = True

    async def aenter(self) -> None:
        await self.gate._line.aenter()
        self.entered = True
