"""The parser of HTTP dates, in their three forms; any other text is rejected.

A date is in UTC, however its zone is written; one without a zone is too.

It reads no clock: the caller passes the time, which the form with a two-digit year needs.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_WEEKDAY = "(?:mon|tue|wed|thu|fri|sat|sun)"
_LONG_WEEKDAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_TIME = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_ZONE = "(?: (?:GMT|UTC|[+-]0000))?"  # HTTP knows GMT alone, and all of these mean the same

# The weekday is not compared with the date: a server that gets it wrong still means the date.
_FORMS = [
    re.compile(form, re.ASCII | re.IGNORECASE)
    for form in (
        rf"{_WEEKDAY}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME}{_ZONE}",
        rf"{_LONG_WEEKDAY}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME}{_ZONE}",
        rf"{_WEEKDAY} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})",
    )
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (-62135596800.0, 253402300799.0)  # the first second of year 1, the last of year 9999


def parse_http_date(text: str, now: float) -> float | None:
    """Parse a date to seconds since 1970; ``now``, in the same unit, sets the century of a two-digit year."""
    match = next((match for form in _FORMS if (match := form.fullmatch(text))), None)
    if match is None:
        return None
    month = _MONTHS.index(match["month"].lower()) + 1
    day, hour, minute, second = (int(match[part]) for part in ("day", "hour", "minute", "second"))
    year = int(match["year"])
    if len(match["year"]) == 2:
        year = _century(year, (month, day, hour, minute, second), now)
    try:
        start = datetime(year, month, day, hour, minute, tzinfo=UTC).timestamp()
    except ValueError:  # there is no such day or hour
        return None
    return start + second if second <= 60 else None  # 60 is a leap second


def _century(two_digits: int, within_year: tuple[int, ...], now: float) -> int:
    """Return the last year that ends in these two digits and is not more than 50 years ahead."""
    today = _EPOCH + timedelta(seconds=max(_FIRST, min(_LAST, now)))
    latest = today.year + 50
    if within_year > (today.month, today.day, today.hour, today.minute, today.second):
        latest -= 1
    return latest - (latest - two_digits) % 100
