"""A timeline per call, drawn from the requests that the service received: attempts, results and waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from demonstration.flaky_service import Busy, Resets, ServedRequest, Works
from demonstration.styled_text import Colour, Line, Span, line

LEGEND = line(
    Span("█✓", "green"),
    " answered   ",
    Span("█✗", "red"),
    " reset   ",
    Span("█!", "yellow"),
    " 503   ",
    Span("·", "dim"),
    " waiting   ",
    Span("─", "cyan"),
    " as asked",
)
NAME, TAIL = 9, 26  # columns: the name of the call, its result


@dataclass
class Call:
    """One call by a client; ``ended`` and ``word`` are its end time and result, once it has ended."""

    name: str
    path: str
    ended: float | None = None
    word: str = ""


def row(call: Call, requests: Sequence[ServedRequest], now: float, horizon: float, width: int) -> Line:
    """Draw one call up to ``now``; the whole bar stands for ``horizon`` seconds."""
    columns = max(8, width - NAME - TAIL)
    cells = bar(requests, now, horizon / columns)
    if call.ended is None and requests and requests[-1].ended is not None:
        _wait(cells, requests[-1], now, horizon / columns)
    if len(cells) > columns:
        cells = [*cells[: columns - 1], Span(">", "dim")]
    rest = " " * (columns - len(cells))
    return (Span(f"{call.name:<{NAME}}"), *cells, Span(rest), *tail(call, len(requests)))


def tail(call: Call, attempts: int) -> Line:
    """Return the result of a call; empty while it is in flight."""
    if call.ended is None:
        return ()
    count = "1 attempt " if attempts == 1 else f"{attempts} attempts"
    word = Span(f"  {call.word:<6}", "green" if call.word == "ok" else "red")
    return line(word, f"{count} {call.ended:5.1f} s")


def bar(requests: Sequence[ServedRequest], now: float, per_cell: float) -> list[Span]:
    """Draw attempts and the waits between them, ``per_cell`` seconds a cell, at least one per attempt."""
    cells: list[Span] = []
    before: ServedRequest | None = None
    for request in requests:
        _wait(cells, before, request.started, per_cell)
        over = request.ended if request.ended is not None else now
        mark, colour = mark_of(request)
        cells += [Span("█", colour)] * (round((over - request.started) / per_cell) - 1)
        cells.append(Span(mark, colour))
        before = request
    return cells


def mark_of(request: ServedRequest) -> tuple[str, Colour]:
    """Return the character that ends an attempt, and its colour."""
    if request.ended is None:
        return "█", ""
    match request.behaviour:
        case Works():
            return "✓", "green"
        case Resets():
            return "✗", "red"
        case Busy():
            return "!", "yellow"


def _wait(cells: list[Span], before: ServedRequest | None, until: float, per_cell: float) -> None:
    """Fill cells with the wait after ``before``; a wait that honoured a ``Retry-After`` is drawn as such."""
    room = int(until / per_cell) - len(cells)
    if before is None:
        cells += [Span(" ")] * room
    elif before.ended is not None:
        asked = isinstance(before.behaviour, Busy) and until - before.ended >= before.behaviour.retry_after
        cells += [Span("─", "cyan") if asked else Span("·", "dim")] * room
