"""EventStream: a parser of server-sent events, by the WHATWG HTML standard, for a body that comes in pieces.

Rule 1: the parser is given pieces and returns the events that they complete; it reads nothing itself.
Rule 2: it stores the unfinished event and nothing else, and not even that if the event is too long.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from typing import NamedTuple

DONE = "[DONE]"  # the data of the last event: a convention of OpenAI that others have adopted
MAX_DATA = 1 << 20  # characters of data in one event
MAX_LINE = MAX_DATA + 16  # characters of a line: data with its field name, colon and space

FIELDS = ("data", "event", "id", "retry", "")  # an empty name is a comment
MAX_DONE = 32  # characters of a line that is checked for ``[DONE]``
_decoder = getincrementaldecoder("utf-8")


class SseEvent(NamedTuple):
    """One event: its name, empty if it has none, and its data, or None if longer than `MAX_DATA`."""

    name: str
    data: str | None


class EventStream:
    """The parser state of one body, given in pieces that may be cut anywhere.

    If pieces have no line ends and some are empty, they come from ``iter_lines()``: each is a line.
    ``is_sse`` is True if the body consists of server-sent events, and None until its first line is known.
    """

    def __init__(self) -> None:
        self.is_sse: bool | None = None
        self._decode = _decoder("replace").decode
        self._skipped = "\ufeff"  # before the next text: a byte order mark at first, "\n" after "\r"
        self._line: list[str] = []  # the pieces of the unfinished line; `_length` is their sum
        self._length = 0
        self._name = ""
        self._data: list[str] = []
        self._data_size = 0  # characters of data, plus one for each line

    @property
    def done_received(self) -> bool:
        """True if an unfinished event is ``[DONE]``: some servers never send the blank line after it."""
        if not self._line:
            return self._data[-1:] == [DONE]
        last = self._line[-1]
        if "]" not in last:
            return False
        candidates = (last,) if self._length > MAX_DONE else (last, "".join(self._line))
        return any(line.startswith("data:") and line[5:].strip() == DONE for line in candidates)

    def feed(self, piece: str | bytes, /) -> list[SseEvent]:
        """Parse another piece; return the events that it completes."""
        if self.is_sse is False:
            return []
        lines = self._split_lines(piece)
        if self.is_sse is None:
            self._recognise(next(filter(None, lines), ""))
        events: list[SseEvent] = []
        for line in lines if self.is_sse else ():
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._data_size += len(value) + 1
                if self._data_size > MAX_DATA + 1:
                    self._data = [DONE] if value == DONE else []
                else:
                    self._data.append(value)
            elif name == "event" and len(line) <= MAX_LINE:
                self._name = value
            elif not line:  # a blank line finishes the event; without data it is no event
                if self._data_size:
                    data = "\n".join(self._data) if self._data_size <= MAX_DATA + 1 else None
                    events.append(SseEvent(self._name, data))
                self._name, self._data, self._data_size = "", [], 0
        return events

    def _recognise(self, line: str) -> None:
        """Set `is_sse` by the first line that is not blank, or by its beginning."""
        start = line or "".join(self._line)
        name, colon, _ = start.partition(":")
        if line or colon or not any(field.startswith(name) for field in FIELDS):
            self.is_sse = name in FIELDS
        if self.is_sse is False:
            self._line = []

    def _split_lines(self, piece: str | bytes) -> list[str]:
        """Return the lines that this piece completes, and store the unfinished one."""
        if not piece:  # each stored piece is a line, and the empty one is a blank line
            lines, self._line, self._length = [*self._line, ""], [], 0
            return lines
        text = piece if isinstance(piece, str) else self._decode(bytes(piece))
        if text:
            text = text.removeprefix(self._skipped)
            self._skipped = "\n" if text[-1:] == "\r" else ""
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        unfinished = lines.pop()
        if lines and self._line:
            self._append_to_line(lines[0])
            lines[0] = "".join(self._line)
            self._line, self._length = [], 0
        if unfinished:
            self._append_to_line(unfinished)
        return lines

    def _append_to_line(self, piece: str) -> None:
        """Store a piece of a line, but at most one character more than `MAX_LINE` in all."""
        if self._length <= MAX_LINE:
            self._line.append(piece[: MAX_LINE + 1 - self._length])
            self._length += len(piece)
