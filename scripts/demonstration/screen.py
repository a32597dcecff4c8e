"""Where everything is printed: a terminal, a dumb one, or a pipe.

On a terminal a frame is drawn over the one before it. Anywhere else only the last frame is printed, as plain
text, and nothing moves.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from os import terminal_size
from typing import TextIO

from demonstration.ink import ASCII, GLYPHS, Ink, Line, cut, line, painted, plain

HIDE_CURSOR, SHOW_CURSOR = "\033[?25l", "\033[?25h"
CLEAR_BELOW = "\033[J"
WIDEST = 110  # beyond this the eye loses the row


class Screen:
    """What is printed on. ``live`` says whether frames in between are seen at all."""

    def __init__(
        self,
        out: TextIO,
        environ: Mapping[str, str],
        size: Callable[[], terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self.live = out.isatty() and environ.get("TERM") != "dumb"
        self._coloured = self.live and not environ.get("NO_COLOR")
        self._ascii = not _speaks(out.encoding, GLYPHS)
        self._out = out
        self._size = size
        self._drawn = 0  # how many lines the frame has that the next one replaces

    @property
    def width(self) -> int:
        """How many columns a drawing may have. One is left free: a full line would wrap on some terminals."""
        return min(WIDEST, self._size().columns - 1)

    def say(self, *lines: str | Line) -> None:
        """Print some lines, at once: whoever reads a pipe wants to read along too."""
        self._write("".join(self._spelled(each) + "\n" for each in lines))

    def heading(self, text: str) -> None:
        """Begin a section."""
        self.say("", line(Ink(text, "bold")), line(Ink("-" * len(text), "dim")))

    def code(self, source: str) -> None:
        """Show what somebody would write."""
        self.say(*(line(Ink(f"    {row}".rstrip(), "dim")) for row in source.splitlines()), "")

    def frame(self, lines: Sequence[Line]) -> None:
        """Draw over the frame before, if this screen can."""
        if self.live:
            # What has left the screen at the top cannot be drawn over: a low terminal sees the first lines.
            self._draw(lines[: max(1, self._size().lines - 1)])

    def settle(self, lines: Sequence[Line]) -> None:
        """Draw the last frame, which stays."""
        if not self.live:
            return self.say(*lines)
        self._draw(lines)
        self._drawn = 0
        return self.restore()

    def restore(self) -> None:
        """Leave the terminal as it was, wherever we were interrupted."""
        if self.live:
            self._write(SHOW_CURSOR)

    def _draw(self, lines: Sequence[Line]) -> None:
        back = f"\033[{self._drawn}F" if self._drawn else ""
        rows = "".join(self._spelled(cut(each, self.width)) + "\033[K\n" for each in lines)
        self._write(HIDE_CURSOR + back + rows + CLEAR_BELOW)
        self._drawn = len(lines)

    def _spelled(self, text: str | Line) -> str:
        if not isinstance(text, str):
            text = painted(text) if self._coloured else plain(text)
        if not self._ascii:
            return text
        return text.translate(ASCII).encode("ascii", "replace").decode()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _speaks(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
