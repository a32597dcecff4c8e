"""Printing: a block per row for people, or Markdown tables for the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.row import Row


def amount(value: float, unit: str) -> str:
    """Spell an amount in the unit that suits its size."""
    if unit == "bytes":
        return f"{value:,.0f} bytes"
    for size, name in ((1e6, "ms"), (1e3, "us")):
        if value >= size:
            return f"{value / size:.2f} {name}"
    return f"{value:.0f} ns"


def ratio(value: float) -> str:
    """Spell a ratio: two places where they matter, three of a small part."""
    if abs(value) < 0.1:
        return f"{value:.3f} x"
    return f"{value:.2f} x" if value < 10 else f"{value:.0f} x"


def block(row: Row) -> Iterator[str]:
    """Show one row: everybody's best, median and ratio."""
    yield f"\n{row.work.replace('`', '')}   (reach: {row.reach()})"
    for name in columns([row]):
        timing = row.timings.get(name)
        if timing is None:
            yield f"    {name:<14}{'-':>12}"
            continue
        middle = "" if row.unit == "bytes" else f"   median {amount(timing.median, row.unit):>10}"
        yield f"    {name:<14}{amount(timing.best, row.unit):>12}{ratio(row.ratio(name)):>10}{middle}"
    yield from (f"    MISSED {missed}" for missed in row.missed())


def columns(rows: Sequence[Row]) -> list[str]:
    """Tell who takes part, by hand and Redouble first."""
    return list(dict.fromkeys(["by hand", "redouble", *(name for row in rows for name in row.timings)]))


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """Show all rows, in a table for each thing they are about."""
    for about in dict.fromkeys(row.about for row in rows):
        yield from table([row for row in rows if row.about == about])
        yield ""


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Show rows as one table: best time of the base, ratios of everybody."""
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
