"""Output to a terminal, a dumb terminal or a pipe.

On a terminal each frame is drawn over the previous one. Elsewhere only the last frame is printed, as plain
text.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from os import terminal_size
from typing import TextIO

from demonstration.styled_text import ASCII, GLYPHS, Line, Span, cut, line, plain, with_ansi_colours

HIDE_CURSOR, SHOW_CURSOR = "\033[?25l", "\033[?25h"
CLEAR_BELOW = "\033[J"
WIDEST = 110  # longer rows are hard to follow


class Screen:
    """The output stream; ``live`` is True if it shows intermediate frames."""

    def __init__(
        self,
        out: TextIO,
        environ: Mapping[str, str],
        size: Callable[[], terminal_size] = shutil.get_terminal_size,
    ) -> None:
        self.live = out.isatty() and environ.get("TERM") != "dumb"
        self._coloured = self.live and not environ.get("NO_COLOR")
        self._ascii = not _can_encode(out.encoding, GLYPHS)
        self._out = out
        self._size = size
        self._drawn = 0  # lines of the frame that the next one replaces

    @property
    def width(self) -> int:
        """The columns of a drawing. One is left free, because a full line would wrap on some terminals."""
        return min(WIDEST, self._size().columns - 1)

    def show(self, *lines: str | Line) -> None:
        """Print lines and flush, also into a pipe."""
        self._write("".join(self._rendered(each) + "\n" for each in lines))

    def heading(self, text: str) -> None:
        """Print the heading of a section."""
        self.show("", line(Span(text, "bold")), line(Span("-" * len(text), "dim")))

    def code(self, source: str) -> None:
        """Print source code, indented."""
        self.show(*(line(Span(f"    {row}".rstrip(), "dim")) for row in source.splitlines()), "")

    def frame(self, lines: Sequence[Line]) -> None:
        """Draw over the previous frame if the screen is live."""
        if self.live:
            # Lines that have scrolled off the top cannot be drawn over: a low terminal shows the first lines.
            self._draw(lines[: max(1, self._size().lines - 1)])

    def settle(self, lines: Sequence[Line]) -> None:
        """Draw the last frame, which stays."""
        if not self.live:
            return self.show(*lines)
        self._draw(lines)
        self._drawn = 0
        return self.restore()

    def restore(self) -> None:
        """Show the cursor again, also after an interruption."""
        if self.live:
            self._write(SHOW_CURSOR)

    def _draw(self, lines: Sequence[Line]) -> None:
        back = f"\033[{self._drawn}F" if self._drawn else ""
        rows = "".join(self._rendered(cut(each, self.width)) + "\033[K\n" for each in lines)
        self._write(HIDE_CURSOR + back + rows + CLEAR_BELOW)
        self._drawn = len(lines)

    def _rendered(self, text: str | Line) -> str:
        if not isinstance(text, str):
            text = with_ansi_colours(text) if self._coloured else plain(text)
        if not self._ascii:
            return text
        return text.translate(ASCII).encode("ascii", "replace").decode()

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _can_encode(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
