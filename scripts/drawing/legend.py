"""The legend: one row below the title."""

from __future__ import annotations

from typing import NamedTuple

from drawing import marks
from drawing.canvas import Canvas, Colour
from drawing.panel import Kind

LETTER = 6.4  # pixels, wider than most letters
ROW = 50


class Entry(NamedTuple):
    """One entry: its text, its colour and its line or mark."""

    text: str
    colour: Colour
    drawn: Kind | marks.Shape | None = "line"  # None: a filled bar


def legend(canvas: Canvas, *entries: Entry, left: float = 16) -> None:
    """Draw the legend."""
    middle = ROW - 4
    for entry in entries:
        match entry.drawn:
            case None:
                width = 12
                canvas.box(left, middle - 5, left + width, middle + 5, entry.colour, "soft")
            case "dot" | "speck" | "cross" | "ring" as shape:
                width = 10
                canvas.path(marks.each(shape, [(left + 5, middle)]), entry.colour, marks.KIND[shape])
            case kind:
                width = 22
                canvas.path(marks.line([(left, middle), (left + width, middle)]), entry.colour, kind)
        canvas.text(left + width + 6, ROW, entry.text)
        left += width + 6 + LETTER * len(entry.text) + 18
