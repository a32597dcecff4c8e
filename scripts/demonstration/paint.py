"""Colour, where somebody looks at it: on a terminal, and not with NO_COLOR."""

from __future__ import annotations

import os
import sys

CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}
COLOURED = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(colour: str, text: str) -> str:
    """Return ``text`` in a colour, or as it is."""
    return f"\033[{CODES[colour]}m{text}\033[0m" if COLOURED else text


def heading(text: str) -> None:
    """Begin a section."""
    print(f"\n{paint('bold', text)}\n{paint('dim', '-' * len(text))}")
