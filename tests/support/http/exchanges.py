"""A policy for exchanges, the error of a lost connection, and the report of an exchange."""

from __future__ import annotations

import httpx

from redouble import Report, report
from tests.support.http.offline_clients import retrying

POLICY = retrying(on=Exception, attempts=3, name="mine", labels={"shop": "books"})


CONNECTION_LOST = httpx.ReadError


def report_of(thing: object) -> Report:
    """Return the report of a response or an error."""
    found = report(thing)
    assert found is not None
    return found


def error_texts(call_report: Report) -> list[str | None]:
    """Return the text of the error of each attempt, None for an attempt without an error."""
    return [record.error_text for record in call_report.history]
