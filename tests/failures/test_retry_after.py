"""`retry_after`: the delay that the server asks for, in each of its formats."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest

from redouble._failures.retry_after import milliseconds, response_hint, retry_after

NOW = datetime(2026, 11, 16, 8, 0, 0, tzinfo=UTC)
IN_90 = "Mon, 16 Nov 2026 08:01:30 GMT"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30),
        ("0", 0),
        (" 7\t", 7),
        ("1.5", 1.5),
        ("007", 7),
        ("9" * 20, 1e20),
        ("9" * 64, 1e64),
        ("9" * 65, None),
        ("9" * 400, None),
        ("9" * 5000, None),
        ("0" * 5000, None),
        ("", None),
        (" ", None),
        ("-5", None),
        ("+3", None),
        ("1_000", None),
        ("1e3", None),
        (".5", None),
        ("5.", None),
        ("1.2.3", None),
        ("0x10", None),
        ("٣", None),
        ("\uff13", None),
        ("²", None),
        ("\xa07", None),
        ("7\n", None),
        ("7\x00", None),
        ("2, 3", None),
        ("3s", None),
        ("nan", None),
        ("inf", None),
        ("Infinity", None),
        ("tomorrow", None),
        ("2026-11-16T08:01:30Z", None),
    ],
)
def test_a_number_of_seconds(text: str, expected: float | None) -> None:
    """Only the documented syntax: other numbers that Python would parse are no value."""
    assert retry_after({"retry-after": text}, NOW) == expected
    assert retry_after({"Retry-After": text.encode("utf-8")}, NOW) == expected
    assert retry_after([("RETRY-AFTER", text)], NOW) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        (0.5, 0.5),
        (-7, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        (10**20, 1e20),
        (10**5000, None),
        (None, None),
        ([], None),
        (["7", "8"], 7),
        ((b"7", b"8"), 7),
        ([7], 7),
        ([None, "7"], None),
        ([["7"]], None),
        ({"7"}, None),
        (object(), None),
        (timedelta(seconds=7), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_that_are_not_strings(value: object, expected: float | None) -> None:
    assert retry_after({"retry-after": value}, NOW) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IN_90, 90),
        (f" {IN_90}\t", 90),
        ("Monday, 16-Nov-26 08:01:30 GMT", 90),
        ("Mon Nov 16 08:01:30 2026", 90),
        ("Mon, 16 Nov 2026 07:59:59 GMT", 0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("Sun, 06 Nov 1994 08:49:37 +0000", 0),
        ("Sun, 06 Nov 1994 08:49:37", 0),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 253402300799 - NOW.timestamp()),
        ("Fri, 31 Dec 99999999999999999999 23:59:59 GMT", None),
        ("Mon, 30 Feb 2026 08:01:30 GMT", None),
        ("Mon, 16 Nov 2026 08:01:30 PST", None),
    ],
)
def test_a_date_gives_the_time_until_then(text: str, expected: float | None) -> None:
    assert retry_after({"retry-after": text}, NOW) == expected


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("Mon, 16 Nov 2026 08:01:00 GMT", 30),
        ("Monday, 16-Nov-26 08:01:00 GMT", 30),
        ("Mon Nov 16 08:01:00 2026", 30),
        ("Mon, 16 Nov 2026 09:00:00 GMT", 0),
        ("Tue, 16 Nov 1999 08:01:30 GMT", 852076800),
        ("just now", 90),
        ("", 90),
        ("1794816060", 90),
    ],
)
def test_a_date_is_relative_to_the_date_header(date: str, expected: float) -> None:
    """So that a wrong local clock does not matter."""
    assert retry_after({"Retry-After": IN_90, "Date": date}, NOW) == expected


class Nowhere(tzinfo):
    """A time zone whose offset cannot be read."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        raise LookupError("where are we?")

    tzname = dst = lambda self, dt: None


@pytest.mark.parametrize(
    "now",
    [
        NOW,
        NOW.replace(tzinfo=None),
        NOW.astimezone(timezone(timedelta(hours=-7))),
        NOW.timestamp(),
        int(NOW.timestamp()),
    ],
)
def test_the_current_time_may_be_passed(now: Any) -> None:
    assert retry_after({"Retry-After": IN_90}, now) == 90


@pytest.mark.parametrize(
    "now", [None, "noon", math.nan, math.inf, 10**400, datetime(2026, 11, 16, tzinfo=Nowhere())]
)
def test_without_a_valid_time_the_system_clock_is_used(now: Any) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    found = retry_after({"Retry-After": f"{soon:%a, %d %b %Y %H:%M:%S} GMT"}, now)
    assert found is not None
    assert 0 < found <= 86400
    assert retry_after({"Retry-After": "Sun, 06 Nov 1994 08:49:37 GMT"}, now) == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500", 1.5),
        ("0", 0),
        ("20", 0.02),
        ("invalid", None),
        ("1.5", None),
        ("-100", None),
        ("", None),
        ("9" * 65, None),
    ],
)
def test_the_milliseconds_of_aws(text: str, expected: float | None) -> None:
    assert milliseconds(text) == expected
    assert retry_after({"x-amz-retry-after": text}) == expected
    assert milliseconds(None) is None


def test_headers_in_milliseconds_have_priority() -> None:
    assert retry_after({"retry-after": "2", "retry-after-ms": "1500.5"}) == 1.5005
    assert retry_after({"retry-after": "2", "x-amz-retry-after": "700"}) == 0.7
    assert retry_after({"x-amz-retry-after": "700", "retry-after-ms": "1500"}) == 1.5
    assert retry_after({"retry-after": "2", "retry-after-ms": "soon", "x-amz-retry-after": "-1"}) == 2
    assert response_hint({"Retry-After": "2"}, 503) == 2
