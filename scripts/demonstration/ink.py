"""Lines of coloured text, as values: drawn here and there, printed by `screen` alone."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Colour: TypeAlias = Literal["", "bold", "dim", "red", "green", "yellow", "cyan"]

CODES: dict[Colour, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}

# What a terminal without Unicode gets to see instead, character by character: a drawing keeps its shape.
GLYPHS = "▁▂▃▄▅▆▇█✓✗·─├┤"
ASCII = str.maketrans(GLYPHS, "..:-=+*#ox.-||")


class Ink(NamedTuple):
    """Some text in one colour."""

    text: str
    colour: Colour = ""


Line: TypeAlias = tuple[Ink, ...]


def line(*parts: str | Ink) -> Line:
    """Put a line together."""
    return tuple(Ink(part) if isinstance(part, str) else part for part in parts)


def plain(drawn: Line) -> str:
    """Return a line as text without colours."""
    return "".join(ink.text for ink in drawn).rstrip()


def painted(drawn: Line) -> str:
    """Return a line as text with colours, for a terminal."""
    return "".join(f"\033[{CODES[c]}m{text}\033[0m" if c else text for text, c in drawn)


def cut(drawn: Line, width: int) -> Line:
    """Return as much of a line as fits."""
    kept: list[Ink] = []
    for text, colour in drawn:
        if width <= 0:
            break
        kept.append(Ink(text[:width], colour))
        width -= len(text)
    return tuple(kept)
