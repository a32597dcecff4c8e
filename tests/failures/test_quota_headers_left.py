"""`quota`: the number of calls left, and the time until the reset."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble._failures.retry_after import quota
from tests.support.failures.quota_headers import EPOCH, NAMES, VALUES


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"RateLimit": '"default";r=5;t=30'}, (5, 30)),
        ({"RateLimit": '"default";r=0;t=30'}, (0, 30)),
        ({"RateLimit": "limit=100, remaining=7, reset=30"}, (7, 30)),
        ({"RateLimit": '"minute";r=30;t=60, "hour";r=10;t=3600'}, (10, 3600)),  # the lowest rate per second
        ({"RateLimit": '"second";r=3;t=1, "hour";r=10;t=3600'}, (10, 3600)),
        ({"RateLimit": '"minute";r=3;t=60, "hour";r=1000;t=3600'}, (3, 60)),
        ({"RateLimit": '"minute";r=30;t=60', "x-ratelimit-remaining": "1", "x-ratelimit-reset": "9"}, (1, 9)),
        ({"RateLimit-Remaining": "2.9", "RateLimit-Reset": "1.5"}, (2, 1.5)),
        ({"anthropic-ratelimit-tokens-remaining": "8", "anthropic-ratelimit-tokens-reset": "4"}, (8, 4)),
        ({"x-ratelimit-remaining": "8", "x-ratelimit-reset": f"{EPOCH + 90}"}, (8, 90)),
        # without the number that remains, without a reset time, or already reset
        ({"RateLimit": '"default";t=30'}, None),
        ({"RateLimit": '"default";r=few;t=30'}, None),
        ({"RateLimit": '"default";r=-1;t=30'}, None),
        ({"RateLimit": '"default";r=5;t=0'}, None),
        ({"RateLimit": '"default";r=5'}, None),
        ({"RateLimit-Reset": "30"}, None),
        ({"x-ratelimit-remaining": "8", "x-ratelimit-reset": f"{EPOCH - 90}"}, None),
        ({}, None),
    ],
)
def test_the_calls_left_and_the_time_to_the_reset(
    headers: dict[str, str], expected: tuple[int, float] | None
) -> None:
    assert quota({**headers, "Date": "Mon, 16 Nov 2026 08:00:00 GMT"}) == expected


def test_without_a_date_header_the_system_clock_is_used() -> None:
    ahead = int(datetime.now(UTC).timestamp()) + 100_000
    found = quota({"x-ratelimit-remaining": "8", "x-ratelimit-reset": f"{ahead}", "Date": "Monday"})
    assert found is not None
    assert found[0] == 8
    assert 0 < found[1] <= 100_000


@given(st.dictionaries(NAMES, VALUES))
def test_any_headers_give_a_quota_or_none(headers: dict[str, str]) -> None:
    found = quota(headers)
    assert found is None or (found[0] >= 0 and math.isfinite(found[0]) and 0 < found[1] < math.inf)
