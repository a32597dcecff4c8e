"""Server-sent events, as the WHATWG's HTML standard has them, out of a body that comes in pieces.

Rule 1: this file is given pieces and answers with the events that they complete; it reads nothing itself.
Rule 2: it keeps the unfinished event and nothing else, and of one that is too long not even that.
What the events say is not known here.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import NamedTuple

__all__ = ["DONE", "LONGEST", "EventStream", "SseEvent"]


DONE = "[DONE]"  # the data of the last event, by a custom of OpenAI's that others have taken up
LONGEST = 1 << 20  # characters of data in one event
ROOM = LONGEST + 16  # and of a line: its name, colon and space too

FIELDS = ("data", "event", "id", "retry", "")  # the one without a name is a comment
SHORT = 32
_decoder = getincrementaldecoder("utf-8")


class SseEvent(NamedTuple):
    """One event: its name, empty unless it was said, and its data, or None if they were longer than 1 MiB."""

    name: str
    data: str | None


class EventStream:
    """Takes a body in pieces, cut anywhere, and finds the events in it.

    Pieces without line ends, and empty ones among them, are what ``iter_lines()`` gives: each is a line.
    ``is_sse`` tells whether it is such a body at all: None until the first line has told.
    """

    def __init__(self) -> None:
        self.is_sse: bool | None = None
        self._decode = _decoder("replace").decode
        self._begun = False
        self._after_cr = False
        self._line: list[str] = []  # the pieces of the unfinished line, and how long it is
        self._length = 0
        self._name = ""
        self._data: list[str] = []
        self._size = 0  # one more than the characters in each line of data
        self._last = ""

    @property
    def said_done(self) -> bool:
        """Whether ``[DONE]`` has come, though its event is not ended: some never write the blank line."""
        if not self._line:
            return self._size > 0 and self._last == DONE
        last = self._line[-1]
        if "]" not in last:
            return False
        told = (last,) if self._length > SHORT else (last, "".join(self._line))
        return any(line.startswith("data:") and line[5:].strip() == DONE for line in told)

    def feed(self, piece: bytes | str, /) -> list[SseEvent]:
        """Take another piece, and return the events that are complete with it."""
        if self.is_sse is False:
            return []
        lines = self._lines(piece) if piece else self._pieces()
        if self.is_sse is None:
            self._recognise(next(filter(None, lines), ""))
        found: list[SseEvent] = []
        for line in lines if self.is_sse else ():
            if line:
                self._take(line)
            elif self._size or self._name:
                self._end(found)
        return found

    def _recognise(self, line: str) -> None:
        """Tell by the first line that is not blank, or by how it begins."""
        start = line or "".join(self._line)
        name, colon, _ = start.partition(":")
        if line or colon or not any(field.startswith(name) for field in FIELDS):
            self.is_sse = name in FIELDS
        if self.is_sse is False:
            self._line = []

    def _pieces(self) -> list[str]:
        """Return each piece as a line, and a blank one: that is what an empty piece is among them."""
        lines = [*self._line, ""]
        self._line, self._length = [], 0
        return lines

    def _lines(self, piece: bytes | str) -> list[str]:
        """Return the lines that are complete with this piece, and keep the rest of it."""
        text = piece if isinstance(piece, str) else self._decode(piece)
        if not self._begun and text:
            text, self._begun = text.removeprefix("\ufeff"), True
        if self._after_cr and text:
            text, self._after_cr = text.removeprefix("\n"), False
        if "\r" in text:
            self._after_cr = text[-1] == "\r"
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        rest = lines.pop()
        if lines and self._line:
            self._keep(lines[0])
            lines[0] = "".join(self._line)
            self._line, self._length = [], 0
        if rest:
            self._keep(rest)
        return lines

    def _keep(self, piece: str) -> None:
        """Keep a piece of a line, but of one that is too long only so much that it still is."""
        if self._length <= ROOM:
            self._line.append(piece[: ROOM + 1 - self._length])
            self._length += len(piece)

    def _take(self, line: str) -> None:
        """Read one line that is not blank."""
        name, _, value = line.partition(":")
        if name == "data":
            value = value.removeprefix(" ")
            self._size += len(value) + 1
            if self._size > LONGEST + 1:
                self._data = []
            else:
                self._data.append(value)
            self._last = value if len(value) < SHORT else ""
        elif name == "event" and len(line) <= ROOM:
            self._name = value.removeprefix(" ")

    def _end(self, found: list[SseEvent]) -> None:
        """End an event at a blank line; one without data is none."""
        if self._size:
            found.append(SseEvent(self._name, "\n".join(self._data) if self._size <= LONGEST + 1 else None))
        self._name, self._data, self._size = "", [], 0
