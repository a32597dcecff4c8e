"""A panel: two axes on a part of the canvas, and drawing operations in their values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from drawing import marks
from drawing.axis import Axis
from drawing.canvas import HEIGHT, WIDTH, Canvas, Colour

Kind: TypeAlias = Literal["line", "dashed", "thin"]
Values: TypeAlias = Iterable[tuple[float, float]]

LEFT, RIGHT, TOP, BOTTOM = 68, WIDTH - 20, 64, HEIGHT - 46


class Place(NamedTuple):
    """A rectangle on the canvas."""

    top: float
    bottom: float
    left: float = LEFT
    right: float = RIGHT


WHOLE = Place(TOP, BOTTOM)
UPPER = Place(TOP, 190)
LOWER = Place(214, BOTTOM)


class Panel:
    """A part of the canvas with two axes; the x axis has tick labels if ``numbered``."""

    def __init__(
        self, canvas: Canvas, x: Axis, y: Axis, place: Place = WHOLE, *, numbered: bool = True
    ) -> None:
        self._canvas, self._x, self._y, self._place = canvas, x, y, place
        for value, text in y.ticks.items():
            height = self._at(x.low, value)[1]
            canvas.path(marks.line([(place.left, height), (place.right, height)]), "grid", "thin")
            canvas.text(place.left - 8, height + 4, text, colour="pale", anchor="end")
        if y.label:
            canvas.upwards(18, (place.top + place.bottom) / 2, y.label)
        canvas.path(marks.line([(place.left, place.bottom), (place.right, place.bottom)]), "grey", "thin")
        for value, text in x.ticks.items() if numbered else ():
            across = self._at(value, y.low)[0]
            canvas.path(marks.line([(across, place.bottom), (across, place.bottom + 4)]), "grey", "thin")
            canvas.text(across, place.bottom + 18, text, colour="pale", anchor="middle")
        if numbered:
            middle = (place.left + place.right) / 2
            canvas.text(middle, place.bottom + 36, x.label, colour="pale", anchor="middle")

    def _at(self, x: float, y: float) -> marks.Point:
        left, top, right, bottom = self._place.left, self._place.top, self._place.right, self._place.bottom
        return left + self._x.share(x) * (right - left), bottom - self._y.share(y) * (bottom - top)

    def line(self, values: Values, colour: Colour, kind: Kind = "line") -> None:
        """Join values by lines."""
        self._canvas.path(marks.line(self._at(x, y) for x, y in values), colour, kind)

    def steps(self, values: Values, colour: Colour, kind: Kind = "line") -> None:
        """Join values by steps."""
        self._canvas.path(marks.steps(self._at(x, y) for x, y in values), colour, kind)

    def dots(self, values: Values, colour: Colour, shape: marks.Shape = "dot") -> None:
        """Put a mark at every value."""
        self._canvas.path(marks.each(shape, [self._at(x, y) for x, y in values]), colour, marks.KIND[shape])

    def spans(self, values: Iterable[tuple[float, float, float]], colour: Colour) -> None:
        """Draw a level line from one x to another, for each of (from, to, y)."""
        lines = (marks.line([self._at(x, y), self._at(to, y)]) for x, to, y in values)
        self._canvas.path("".join(lines), colour, "mark")

    def bars(self, values: Values, width: float, colour: Colour) -> None:
        """Fill a bar from the axis to each value; ``width`` goes along the x axis."""
        data = ""
        for x, y in values:
            corners = [(x, self._y.low), (x, y), (x + width, y), (x + width, self._y.low)]
            data += marks.line(self._at(*corner) for corner in corners)
        self._canvas.path(data, colour, "soft")

    def band(self, low: float, high: float, text: str, colour: Colour = "red") -> None:
        """Tint the time from ``low`` to ``high``, with a label at its top."""
        (left, top), (right, bottom) = self._at(low, self._y.high), self._at(high, self._y.low)
        self._canvas.box(left, top, right, bottom, colour, "tint")
        if text:
            self._canvas.text((left + right) / 2, top + 15, text, colour=colour, anchor="middle")

    def note(self, x: float, y: float, text: str, colour: Colour | Literal["pale", "ink"] = "pale") -> None:
        """Write a text that starts at a point."""
        across, height = self._at(x, y)
        self._canvas.text(across, height, text, colour=colour)
