"""A row of the table: one workload, its timings, and Redouble's target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from benchmarks.timing import Timing

About: TypeAlias = Literal["retry", "guards", "gates", "observability", "llm", "grpc", "http", "instructions"]


@dataclass(frozen=True)
class Row:
    """One row: the timing of each competitor, and Redouble's target ``most``, a ratio to ``base``.

    A row without ``most`` has no target.
    """

    work: str
    timings: dict[str, Timing]
    most: float | None
    base: str = "by hand"
    unit: str = "ns"
    faster_than: Mapping[str, float] = field(default_factory=dict[str, float])  # the factor
    problems: tuple[str, ...] = ()
    about: Literal["retry", "guards", "gates", "observability", "llm", "grpc", "http", "instructions"] = (
        "retry"
    )

    def ratio(self, name: str) -> float:
        """Return the best timing as a ratio to the base."""
        return self.timings[name].best / self.timings[self.base].best

    def reach(self) -> str:
        """Return the target as text."""
        wanted: list[str] = []
        if self.most is not None:
            wanted.append(f"<= {self.most} x" + ("" if self.base == "by hand" else f" {self.base}"))
        wanted += [f">= {times:g} x faster than {peer}" for peer, times in self.faster_than.items()]
        return ", ".join(wanted) or "-"

    def missed(self) -> Iterator[str]:
        """Yield the missed targets."""
        ratio = self.ratio("redouble")
        if self.most is not None and ratio > self.most:
            yield f"{self.work}: {ratio:.3f} x {self.base}, to reach <= {self.most} x"
        for peer, times in self.faster_than.items():
            faster = self.timings[peer].best / self.timings["redouble"].best
            if faster < times:
                yield f"{self.work}: {faster:.3g} x faster than {peer}, to reach >= {times:g} x"
        yield from (f"{self.work}: {problem}" for problem in self.problems)
