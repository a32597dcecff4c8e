"""`retry_after`: for any input the result is a wait or None."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._failures.retry_after import response_wish, retry_after

pytestmark = pytest.mark.one_python

NOW = datetime(2026, 11, 16, 8, 0, 0, tzinfo=UTC)
NAMES = ["retry-after", "Retry-After", "retry-after-ms", "x-amz-retry-after", "date", "x-should-retry"]
GOOD = ["7", "1.5", "Mon, 16 Nov 2026 08:01:30 GMT", "Monday, 16-Nov-26 08:01:30 GMT", "true", "9" * 64]

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.datetimes(),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NAMED = st.sampled_from(NAMES) | st.sampled_from([name.encode() for name in NAMES]) | st.text()
VALUES = JUNK | st.sampled_from(GOOD) | st.sampled_from(GOOD).map(str.encode)
HEADERS = st.dictionaries(NAMED, VALUES) | st.lists(st.tuples(NAMED, VALUES) | JUNK) | JUNK
TIMES = JUNK | st.datetimes(timezones=st.timezones() | st.none())


def is_a_wait(found: object) -> bool:
    return found is None or (isinstance(found, float) and math.isfinite(found) and found >= 0)


@given(HEADERS, TIMES)
def test_any_object_gives_a_wait_or_none(headers: Any, now: Any) -> None:
    assert is_a_wait(retry_after(headers, now))
    assert response_wish(headers, 503)[0] in {True, False, None}


@given(st.sampled_from(NAMES), st.binary() | st.text())
def test_any_bytes_give_a_wait_or_none(name: str, value: bytes | str) -> None:
    assert is_a_wait(retry_after({name: value}, NOW))


@given(st.sampled_from(GOOD), st.integers(0, 40), st.characters() | st.sampled_from("0123456789.,:- _eE+"))
def test_a_damaged_value_gives_a_wait_or_none(good: str, place: int, sign: str) -> None:
    for text in (good[:place] + sign + good[place:], good[:place] + sign + good[place + 1 :], good[:place]):
        assert is_a_wait(retry_after({"retry-after": text, "date": text}, NOW))
        assert is_a_wait(retry_after({"retry-after": good, "date": text}, NOW))


@given(st.integers(0, 10**12), st.integers(0, 999))
def test_a_formatted_number_is_parsed(whole: int, part: int) -> None:
    expected = float(f"{whole}.{part:03}")
    assert retry_after({"retry-after": f"{whole}.{part:03}"}) == expected
    assert retry_after({"retry-after-ms": f"{whole}"}) == whole / 1000


@given(st.text(st.characters(exclude_characters="0123456789", exclude_categories=["Zs", "Cc"]), min_size=1))
def test_without_ascii_digits_there_is_no_hint(text: str) -> None:
    assert retry_after({"retry-after": text, "retry-after-ms": text}, NOW) is None


def test_a_value_of_a_megabyte_gives_none() -> None:
    for sign in ("9", " ", "9 ", "Mon, ", ".", "\x00"):
        text = sign * (1_000_000 // len(sign))
        assert (
            retry_after({"retry-after": text, "date": text, "ratelimit": text, "ratelimit-reset": text})
            is None
        )
