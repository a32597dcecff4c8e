"""The three date formats of HTTP, and no other."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redouble._failures.http_date import parse_http_date

NOW = datetime(2026, 11, 16, 8, 0, 0, tzinfo=UTC).timestamp()
THEN = 784111777.0  # the date of the examples in RFC 9110


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Sun, 06 Nov 1994 08:49:37 GMT", THEN),
        ("Sunday, 06-Nov-94 08:49:37 GMT", THEN),
        ("Sun Nov  6 08:49:37 1994", THEN),
        ("Wed Nov 16 08:49:37 1994", THEN + 10 * 86400),
        ("sUN, 06 nOV 1994 08:49:37 gmt", THEN),
        ("Sun, 06 Nov 1994 08:49:37 UTC", THEN),
        ("Sun, 06 Nov 1994 08:49:37 +0000", THEN),
        ("Sun, 06 Nov 1994 08:49:37 -0000", THEN),
        ("Sun, 06 Nov 1994 08:49:37", THEN),
        ("Sunday, 06-Nov-94 08:49:37 +0000", THEN),
        ("Sunday, 06-Nov-94 08:49:37", THEN),
        ("Fri, 06 Nov 1994 08:49:37 GMT", THEN),  # the wrong day of the week is ignored
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
        ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
        ("Mon, 01 Jan 0001 00:00:00 GMT", -62135596800),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 253402300799),
        ("Thu, 29 Feb 2024 00:00:00 GMT", at(2024, 2, 29)),
        ("Sat, 31 Dec 2016 23:59:60 GMT", at(2017, 1, 1)),  # a leap second
    ],
)
def test_the_three_formats(text: str, expected: float) -> None:
    assert parse_http_date(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sun, 30 Feb 2025 08:49:37 GMT",
        "Sat, 29 Feb 2025 00:00:00 GMT",
        "Sun, 00 Nov 1994 08:49:37 GMT",
        "Sun, 31 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 24:00:00 GMT",
        "Sun, 06 Nov 1994 08:60:37 GMT",
        "Sun, 06 Nov 1994 08:49:61 GMT",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Sun, 06 Nov 94 08:49:37 GMT",
        "Sun, 06 Nov 19940 08:49:37 GMT",
        "Sun, 06 Nov 99999999999999999999 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 ",
        "Sun, 06 Nov 1994 08:49:37 +0100",
        "Sun, 06 Nov 1994 08:49:37 0000",
        "Sun, 06 Nov 1994 08:49:37+0000",
        "Sun, 06 Nov 1994 08:49:37 EST",
        "Sun, 06 Nov 1994 08:49:37 GMT+0000",
        "Sun, 06 Nov 1994 08:49:37 GMT ",
        "Sun, 06 Nov 1994 08:49:37 GMT\n",
        "Sun,  06 Nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "Sun 06 Nov 1994 08:49:37 GMT",
        "06 Nov 1994 08:49:37 GMT",
        "Son, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Okt 1994 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06-Nov-1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT",
        "Sun Nov 06 08:49:37 94",
        "Sun, 06 Nov 1994 ٠٨:49:37 GMT",
        "\u017fun, 06 Nov 1994 08:49:37 GMT",
        "1994-11-06T08:49:37Z",
        "784111777",
    ],
)
def test_anything_else_is_no_date(text: str) -> None:
    assert parse_http_date(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "now", "year"),
    [
        ("Monday, 16-Nov-26 08:00:00 GMT", NOW, 2026),
        ("Monday, 16-Nov-27 08:00:00 GMT", NOW, 2027),
        ("Monday, 16-Nov-25 08:00:00 GMT", NOW, 2025),
        ("Monday, 16-Nov-76 08:00:00 GMT", NOW, 2076),  # fifty years to the second
        ("Monday, 16-Nov-76 08:00:01 GMT", NOW, 1976),
        ("Monday, 17-Nov-76 00:00:00 GMT", NOW, 1976),
        ("Monday, 15-Nov-76 23:59:59 GMT", NOW, 2076),
        ("Monday, 16-Nov-77 08:00:00 GMT", NOW, 1977),
        ("Monday, 16-Nov-99 08:00:00 GMT", NOW, 1999),
        ("Monday, 16-Nov-00 08:00:00 GMT", NOW, 2000),
        ("Monday, 16-Nov-05 08:00:00 GMT", at(2099, 1, 1), 2105),
        ("Monday, 16-Nov-94 08:00:00 GMT", THEN, 1994),
    ],
)
def test_a_short_year_is_at_most_fifty_years_ahead(text: str, now: float, year: int) -> None:
    found = parse_http_date(text, now)
    assert found is not None
    assert datetime.fromtimestamp(found, UTC).year == year


@pytest.mark.parametrize("now", [-1e308, 1e308, float("nan"), float("inf"), -float("inf"), -62135596801.0])
def test_a_short_year_with_an_extreme_clock(now: float) -> None:
    """Such a year may not exist; the result is a valid time or None."""
    for year in ("00", "01", "50", "52", "99"):
        found = parse_http_date(f"Monday, 16-Nov-{year} 08:00:00 GMT", now)
        assert found is None or at(1, 1, 1) <= found <= at(9999, 12, 31)


MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
    lambda when: when.replace(microsecond=0, tzinfo=UTC)
)


@given(MOMENTS)
@example(datetime(1, 1, 1, tzinfo=UTC))
def test_a_formatted_date_is_parsed(when: datetime) -> None:
    text = format_datetime(when, usegmt=True)
    expected = (when - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    assert parse_http_date(text, NOW) == expected
    assert parse_http_date(f"{when:%a %b} {when.day:2} {when:%H:%M:%S} {when.year:04}", NOW) == expected


@given(MOMENTS, MOMENTS)
def test_a_formatted_date_with_a_short_year_is_parsed(when: datetime, now: datetime) -> None:
    """The result is never more than 50 years ahead, and no longer ago than necessary."""
    seconds = (now - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()
    found = parse_http_date(f"{when:%A, %d-%b}-{when.year % 100:02} {when:%H:%M:%S} GMT", seconds)
    if found is None:
        return
    year = 365.2425 * 86400
    assert seconds - 51 * year < found < seconds + 50 * year + 2 * 86400


@given(st.text(), st.floats())
def test_random_text_is_no_date(text: str, now: float) -> None:
    assert parse_http_date(text, now) is None


SIGNS = st.sampled_from([*"0123456789 ,:-+GMTSunNov", "٣", "\n", "\x00"])


@given(
    st.sampled_from(
        [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ]
    ),
    st.lists(st.tuples(st.integers(0, 40), SIGNS), max_size=4),
    st.floats(),
)
def test_a_damaged_date_is_a_date_or_none(text: str, damage: list[tuple[int, str]], now: float) -> None:
    for place, sign in damage:
        text = text[:place] + sign + text[place + 1 :]
    found = parse_http_date(text, now)
    assert found is None or -62135596800 <= found <= 253402300800
