"""Calls that are given up: the original exception with its note, and its report."""

from __future__ import annotations

import traceback

import redouble
from demonstration.fetchers import seeded_fetch
from demonstration.flaky_service import FlakyService
from demonstration.http_client import UnavailableError
from demonstration.screen import Screen
from demonstration.seeded_random import current_call
from demonstration.styled_text import Line, Span, line
from redouble import Report


def giving_up(screen: Screen) -> None:
    """Make two calls that fail for good."""
    with FlakyService(pace=0.1) as service:
        screen.heading("Giving up: your own exception comes out, and can tell")
        show_failure(screen, service, "/broken")
        screen.heading("Asked to wait longer than we have: given up at once")
        show_failure(screen, service, "/maintenance")


def show_failure(screen: Screen, service: FlakyService, path: str) -> None:
    """Make a call that fails for good, and show its exception and its report."""
    current_call.set(path)
    try:
        seeded_fetch(service.port, path)
    except (OSError, UnavailableError) as error:
        message, *notes = "".join(traceback.format_exception_only(error)).splitlines()
        screen.show(line(Span(message, "red")), *(line(Span(note, "bold")) for note in notes), "")
        report = redouble.report(error)
        if report is not None:
            screen.show(*report_lines(report))


def report_lines(report: Report) -> list[Line]:
    """Return the lines that show a report: the reason, and one line per attempt."""
    lines = [line(f"reason={report.reason}  limit={report.limit}  attempts={report.attempts}")]
    for record in report.history:
        error = (record.error_type or "").rpartition(".")[-1]
        then = "gave up" if record.delay is None else f"waited {record.delay:.2f} s"
        asked = "" if record.hint is None else f", asked for {record.hint:g} s"
        lines.append(line(f"  {record.number} at {record.started:.2f} s  {error}: {then}{asked}"))
    return lines
