"""A row of the table: one work, what everybody took for it, and what Redouble is to reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.timing import Timing


@dataclass(frozen=True)
class Row:
    """One row: what everybody took, and what Redouble may take at most, as a ratio to ``base``."""

    work: str
    timings: dict[str, Timing]
    most: float
    base: str = "by hand"
    unit: str = "ns"
    faster_than: tuple[str, ...] = ()  # these must take 30 times as long
    problems: tuple[str, ...] = ()

    def ratio(self, name: str) -> float:
        """Say how many times as much as the base."""
        return self.timings[name].best / self.timings[self.base].best

    def missed(self) -> Iterator[str]:
        """Name what was not reached."""
        ratio = self.ratio("redouble")
        if ratio > self.most:
            yield f"{self.work}: {ratio:.2f} x {self.base}, to reach <= {self.most} x"
        for peer in self.faster_than:
            faster = self.timings[peer].best / self.timings["redouble"].best
            if faster < 30:
                yield f"{self.work}: {faster:.1f} x faster than {peer}, to reach >= 30 x"
        yield from (f"{self.work}: {problem}" for problem in self.problems)
