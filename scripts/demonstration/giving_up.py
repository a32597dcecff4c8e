"""What comes out when retrying does not help: your own exception, a note on it, and its history."""

from __future__ import annotations

import traceback

import redouble
from demonstration.chance import current_call
from demonstration.clients import UnavailableError
from demonstration.ink import Ink, Line, line
from demonstration.screen import Screen
from demonstration.service import FlakyService
from demonstration.ways import seeded_fetch
from redouble import Report


def giving_up(screen: Screen) -> None:
    """Make two calls that are bound to fail."""
    with FlakyService(pace=0.1) as service:
        screen.heading("Giving up: your own exception comes out, and can tell")
        show_failure(screen, service, "/broken")
        screen.heading("Asked to wait longer than we have: given up at once")
        show_failure(screen, service, "/maintenance")


def show_failure(screen: Screen, service: FlakyService, path: str) -> None:
    """Make a call that is bound to fail and show its exception and its report."""
    current_call.set(path)
    try:
        seeded_fetch(service.port, path)
    except (OSError, UnavailableError) as error:
        said, *notes = "".join(traceback.format_exception_only(error)).splitlines()
        screen.say(line(Ink(said, "red")), *(line(Ink(note, "bold")) for note in notes), "")
        report = redouble.report(error)
        if report is not None:
            screen.say(*told(report))


def told(report: Report) -> list[Line]:
    """Tell what `redouble.report` knows of a call."""
    lines = [line(f"reason={report.reason}  limit={report.limit}  attempts={report.attempts}")]
    for record in report.history:
        error = (record.error_type or "").rpartition(".")[-1]
        then = "gave up" if record.delay is None else f"waited {record.delay:.2f} s"
        asked = "" if record.hint is None else f", asked for {record.hint:g} s"
        lines.append(line(f"  {record.number} at {record.started:.2f} s  {error}: {then}{asked}"))
    return lines
