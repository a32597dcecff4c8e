"""Lines of coloured text as values; `screen` prints them."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

Colour: TypeAlias = Literal["", "bold", "dim", "red", "green", "yellow", "cyan"]

CODES: dict[Colour, int] = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}

# The replacements on a terminal without Unicode: one character for one, so that drawings keep their shape.
GLYPHS = "▁▂▃▄▅▆▇█✓✗·─├┤"
ASCII = str.maketrans(GLYPHS, "..:-=+*#ox.-||")


class Span(NamedTuple):
    """A run of text in one colour."""

    text: str
    colour: Colour = ""


Line: TypeAlias = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    """Make a line of strings and spans."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def plain(drawn: Line) -> str:
    """Return the text of a line without colours."""
    return "".join(ink.text for ink in drawn).rstrip()


def with_ansi_colours(drawn: Line) -> str:
    """Return the text of a line with ANSI colour codes."""
    return "".join(f"\033[{CODES[c]}m{text}\033[0m" if c else text for text, c in drawn)


def cut(drawn: Line, width: int) -> Line:
    """Return a line truncated to ``width`` characters."""
    kept: list[Span] = []
    for text, colour in drawn:
        if width <= 0:
            break
        kept.append(Span(text[:width], colour))
        width -= len(text)
    return tuple(kept)
