"""A timeline per call, drawn from what the service saw: attempts, how each ended, and the waits between.

Nothing here knows what time it is, or prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demonstration.ink import Colour, Ink, Line, line
from demonstration.service import Busy, Resets, Seen, Works

LEGEND = line(
    Ink("█✓", "green"),
    " answered   ",
    Ink("█✗", "red"),
    " reset   ",
    Ink("█!", "yellow"),
    " 503   ",
    Ink("·", "dim"),
    " waiting   ",
    Ink("─", "cyan"),
    " as asked",
)
NAME, TAIL = 9, 26  # columns: what the call is called, how it ended


@dataclass
class Call:
    """One call by a client: when it ended, if it has, and with which word."""

    name: str
    path: str
    ended: float | None = None
    word: str = ""


def row(call: Call, requests: Sequence[Seen], now: float, horizon: float, width: int) -> Line:
    """Draw one call as it is now; the whole bar stands for ``horizon`` seconds."""
    columns = max(8, width - NAME - TAIL)
    cells = bar(requests, now, horizon / columns)
    if call.ended is None and requests and requests[-1].ended is not None:
        _wait(cells, requests[-1], now, horizon / columns)
    if len(cells) > columns:
        cells = [*cells[: columns - 1], Ink(">", "dim")]
    rest = " " * (columns - len(cells))
    return (Ink(f"{call.name:<{NAME}}"), *cells, Ink(rest), *tail(call, len(requests)))


def tail(call: Call, attempts: int) -> Line:
    """Say how a call ended; nothing while it is under way."""
    if call.ended is None:
        return ()
    count = "1 attempt " if attempts == 1 else f"{attempts} attempts"
    word = Ink(f"  {call.word:<6}", "green" if call.word == "ok" else "red")
    return line(word, f"{count} {call.ended:5.1f} s")


def bar(requests: Sequence[Seen], now: float, per_cell: float) -> list[Ink]:
    """Draw attempts and the waits between, a cell for so many seconds; every attempt gets at least one."""
    cells: list[Ink] = []
    before: Seen | None = None
    for request in requests:
        _wait(cells, before, request.started, per_cell)
        over = request.ended if request.ended is not None else now
        mark, colour = mark_of(request)
        cells += [Ink("█", colour)] * (round((over - request.started) / per_cell) - 1)
        cells.append(Ink(mark, colour))
        before = request
    return cells


def mark_of(request: Seen) -> tuple[str, Colour]:
    """Return the character that ends an attempt, and its colour."""
    if request.ended is None:
        return "█", ""
    match request.luck:
        case Works():
            return "✓", "green"
        case Resets():
            return "✗", "red"
        case Busy():
            return "!", "yellow"


def _wait(cells: list[Ink], before: Seen | None, until: float, per_cell: float) -> None:
    """Fill up with waiting. Drawn as asked for only if it was: from an answer 503, at least so long."""
    room = int(until / per_cell) - len(cells)
    if before is None:
        cells += [Ink(" ")] * room
    elif before.ended is not None:
        asked = isinstance(before.luck, Busy) and until - before.ended >= before.luck.retry_after
        cells += [Ink("─", "cyan") if asked else Ink("·", "dim")] * room
