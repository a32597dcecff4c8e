"""Exhausted quotas: the time until the reset, from the headers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._failures.retry_after import retry_after
from tests.support.failures.quota_headers import EPOCH, NAMES, NOW, VALUES

NONE = {"x-ratelimit-remaining": "0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"default";r=0;t=30', 30),
        ("default;r=0;t=30", 30),
        ('"default"; r=0; t=30', 30),
        ('"default";t=30;r=0;pk=:abc=:', 30),
        ('"default";R=0;T=30', 30),
        ('"default";r=1;t=30', None),
        ('"default";r=0', None),
        ('"default";t=30', 30),
        ('"default";r=;t=30', None),
        ('"default";r=-1;t=30', None),
        ('"default";r=0;t=-30', None),
        ('"default";r=0;t=3_0', None),
        ('"default";r=0;t=soon', None),
        ('"default";r=0;t=', None),
        ('"minute";r=0;t=30, "hour";r=0;t=40', 40),
        ('"minute";r=0;t=30, "hour";r=7;t=3000', 30),
        ('"minute";r=3;t=30, "hour";r=7;t=3000', None),
        ('"minute";r=0;t=30,,"hour";r=0;t=x', 30),
        ('"a,b;r=0;t=9";r=0;t=30', 30),
        ('"a\\",r=0;t=9";r=0;t=30', 30),
        ('"a;r=0;t=30', None),
        ("limit=100, remaining=0, reset=30", 30),
        ("limit=100,remaining=0,reset=30", 30),
        ("limit=100;w=60, remaining=0, reset=30", 30),
        ("limit=100, remaining=5, reset=30", None),
        ("limit=100, reset=30", 30),
        ("limit=100, remaining=0", None),
        ("100", None),
        ("", None),
        ('"default";r=0;t=30' + " " * 2000 + ";q=1", None),
        ('"' * 1023, None),
        ('"\\' * 512, None),
    ],
)
def test_the_ratelimit_field_of_the_ietf_draft(text: str, expected: float | None) -> None:
    assert retry_after({"RateLimit": text}, NOW) == expected


@pytest.mark.parametrize("prefix", ["RateLimit", "X-RateLimit"])
@pytest.mark.parametrize(
    ("remaining", "expected"),
    [
        ("0", 30),
        ("0.0", 30),
        (" 0 ", 30),
        ("1", None),
        ("0.5", None),
        ("none", None),
        ("", None),
        ("-1", None),
    ],
)
def test_a_quota_that_is_not_exhausted_gives_no_wait(
    prefix: str, remaining: str, expected: float | None
) -> None:
    headers = {f"{prefix}-Reset": "30", f"{prefix}-Remaining": remaining}
    assert retry_after(headers, NOW) == expected
    assert retry_after({f"{prefix}-Reset": "30"}, NOW) == 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30", 30),
        ("0", 0),
        ("1.5", 1.5),
        ("999999999", 999999999),
        (f"{EPOCH + 90}", 90),
        (f"{EPOCH + 90}.5", 90.5),
        (f"{EPOCH - 90}", 0),
        (f"{EPOCH + 90}000", 90),
        (f"{EPOCH + 90}250", 90.25),
        (f"{EPOCH - 90}000", 0),
        ("9" * 20, 99999999999999999.999 - EPOCH),
        ("9" * 65, None),
        ("1s", 1),
        ("6m0s", 360),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("250us", 0.00025),
        ("0s", 0),
        ("1s ago", None),
        ("in 1s", None),
        ("s", None),
        ("1 s", None),
        ("-1s", None),
        ("1d", None),
        (".5s", None),
        ("٣s", None),
        ("1e3s", None),
        ("1s" * 33, None),
        ("2026-11-16T08:01:30Z", 90),
        ("2026-11-16t08:01:30z", 90),
        ("2026-11-16T08:01:30.25Z", 90.25),
        ("2026-11-16T09:01:30+01:00", 90),
        ("2026-11-16T02:31:30-05:30", 90),
        ("2026-11-16T07:00:00Z", 0),
        ("0001-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59-23:59", 253402300799 + 86340 - EPOCH),
        ("0000-11-16T08:01:30Z", None),
        ("2026-02-30T08:01:30Z", None),
        ("2026-11-16T24:00:00Z", None),
        ("2026-11-16T08:01:30+24:00", None),
        ("2026-11-16T08:01:30+00:60", None),
        ("2026-11-16T08:01:30", None),
        ("2026-11-16 08:01:30Z", None),
        ("2026-11-16", None),
        ("Mon, 16 Nov 2026 08:01:30 GMT", 90),
        ("Mon, 16 Nov 2026 07:01:30 GMT", 0),
        ("-5", None),
        ("+5", None),
        ("1_000", None),
        ("inf", None),
        ("nan", None),
        ("", None),
        ("tomorrow", None),
    ],
)
def test_the_formats_of_a_reset(text: str, expected: float | None) -> None:
    for headers in ({"x-ratelimit-reset": text, **NONE}, {"anthropic-ratelimit-tokens-reset": text}):
        found = retry_after(headers, NOW)
        assert found == (expected if expected is None else pytest.approx(expected, abs=1e-6))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        # OpenAI
        ({"reset-calls": "1s", "remaining-calls": "0", "reset-words": "6m0s", "remaining-words": "9"}, 1),
        ({"reset-calls": "1s", "remaining-calls": "0", "reset-words": "6m0s", "remaining-words": "0"}, 360),
        ({"reset-calls": "1s", "remaining-calls": "5", "reset-words": "6m0s", "remaining-words": "9"}, None),
        ({"reset-requests": "soon", "reset-tokens": "20ms"}, 0.02),
        # Discord
        ({"reset": f"{EPOCH + 1}.5", "reset-after": "1.0", "remaining": "0"}, 1.5),
        ({"reset": f"{EPOCH + 1}.5", "reset-after": "1.0", "remaining": "3"}, None),
        # the remaining number of the same quota has priority over the common one
        ({"reset-day": "9", "remaining-day": "0", "remaining": "3"}, 9),
        ({"reset-day": "9", "remaining-day": "3", "remaining": "0"}, None),
        ({"resets": "9", "reset_after": "9", "limit": "9", "remaining": "0"}, None),
    ],
)
def test_the_longest_wait_of_several_exhausted_quotas(
    headers: dict[str, str], expected: float | None
) -> None:
    assert retry_after({f"x-ratelimit-{name}": text for name, text in headers.items()}, NOW) == expected


@pytest.mark.parametrize(
    ("requests", "tokens", "expected"), [("0", "0", 60), ("0", "9", 30), ("9", "9", None)]
)
def test_quotas_of_anthropic(requests: str, tokens: str, expected: float | None) -> None:
    headers = {
        "anthropic-ratelimit-requests-reset": "2026-11-16T08:00:30Z",
        "anthropic-ratelimit-requests-remaining": requests,
        "anthropic-ratelimit-input-tokens-reset": "2026-11-16T08:01:00Z",
        "anthropic-ratelimit-input-tokens-remaining": tokens,
    }
    assert retry_after(headers, NOW) == expected


def test_the_longest_wait_of_all_header_families() -> None:
    headers = {"ratelimit": '"a";r=0;t=30', "ratelimit-reset": "31", "x-ratelimit-reset": "32"}
    assert retry_after(headers, NOW) == 32
    assert retry_after({**headers, "ratelimit-reset": "33"}, NOW) == 33
    assert retry_after({**headers, "ratelimit": '"a";r=0;t=34'}, NOW) == 34


def test_a_reset_time_is_relative_to_the_date_header() -> None:
    headers = {"x-ratelimit-reset": f"{EPOCH + 90}", "Date": "Mon, 16 Nov 2026 08:01:00 GMT"}
    assert retry_after(headers, NOW) == 30
    assert retry_after({**headers, "Date": "Monday"}, NOW) == 90


def test_retry_after_has_priority_over_quotas() -> None:
    assert retry_after({"x-ratelimit-reset": "9", "retry-after": "2"}, NOW) == 2
    assert retry_after({"x-ratelimit-reset": "9", "retry-after": "soon"}, NOW) == 9


def test_thousands_of_quotas_are_parsed() -> None:
    headers = {f"x-ratelimit-reset-{number}": f"{number}" for number in range(3000)}
    assert retry_after(headers, NOW) == 2999


@given(st.dictionaries(NAMES, VALUES), st.floats())
def test_any_headers_give_a_wait_or_none(headers: dict[str, str], now: float) -> None:
    found = retry_after(headers, now)
    assert found is None or (math.isfinite(found) and found >= 0)
