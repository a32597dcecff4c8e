"""Lines and marks as SVG path data, from points on the canvas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from drawing.canvas import short

Point: TypeAlias = tuple[float, float]
Shape: TypeAlias = Literal["dot", "speck", "cross", "ring"]


def line(points: Iterable[Point]) -> str:
    """Join points by straight lines."""
    joined = "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return f"M{joined}" if joined else ""


def steps(points: Iterable[Point]) -> str:
    """Join points by steps: each height holds until the next point."""
    data = ""
    for x, y in points:
        data += f"H{short(x)}V{short(y)}" if data else f"M{short(x)} {short(y)}"
    return data


def each(shape: Shape, points: Iterable[Point]) -> str:
    """Put a mark at every point."""
    drawn = {"dot": "h0", "speck": "h0", "cross": "m-3.5-3.5l7 7m0-7l-7 7", "ring": RING}[shape]
    return "".join(f"M{short(x)} {short(y)}{drawn}" for x, y in points)


RING = "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0"
KIND = {"dot": "dot", "speck": "speck", "cross": "mark", "ring": "mark"}
