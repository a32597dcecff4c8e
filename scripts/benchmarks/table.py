"""Formats rows: a block of text per row for a terminal, or Markdown tables for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.table_row import Row


def amount(value: float, unit: str) -> str:
    """Format an amount in a unit that suits its size."""
    if unit != "ns":
        return f"{value:,.0f} {unit}"
    for size, name in ((1e6, "ms"), (1e3, "us")):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f} ns"


def ratio(value: float) -> str:
    """Format a ratio: three decimals below 0.1, two below 10, else none."""
    if abs(value) < 0.1:
        return f"{value:.3f} x"
    return f"{value:.2f} x" if value < 10 else f"{value:.0f} x"


def block(row: Row) -> Iterator[str]:
    """Yield the block of one row: best, ratio and median of each competitor."""
    yield f"\n{row.work.replace('`', '')}   (reach: {row.reach()})"
    for name in columns([row]):
        timing = row.timings.get(name)
        if timing is None:
            yield f"    {name:<14}{'-':>12}"
            continue
        middle = "" if row.unit != "ns" else f"   median {amount(timing.median, row.unit):>10}"
        yield f"    {name:<14}{amount(timing.best, row.unit):>12}{ratio(row.ratio(name)):>10}{middle}"
    yield from (f"    MISSED {missed}" for missed in row.missed())


def columns(rows: Sequence[Row]) -> list[str]:
    """Return the names of the competitors, the hand-written one and Redouble first."""
    return list(dict.fromkeys(["by hand", "redouble", *(name for row in rows for name in row.timings)]))


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """Yield all rows, in one table for each subject."""
    for about in dict.fromkeys(row.about for row in rows):
        yield from table([row for row in rows if row.about == about])
        yield ""


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield rows as one table: the best time of the base, the ratios of the others."""
    names = columns(rows)
    yield "| work | " + " | ".join(names) + " | reach |"
    yield "|---|" + "---:|" * len(names) + "---|"
    for row in rows:
        cells: list[str] = []
        for name in names:
            timing = row.timings.get(name)
            if timing is None:
                cells.append("-")
            elif name == row.base:
                cells.append(amount(timing.best, row.unit))
            else:
                cells.append(ratio(row.ratio(name)))
        cells[1] = f"**{cells[1]}**"
        yield f"| {row.work} | " + " | ".join(cells) + f" | {row.reach()} |"
