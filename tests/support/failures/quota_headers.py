"""Quota headers: a date, and Hypothesis strategies for names and values."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

NOW = datetime(2026, 11, 16, 8, 0, 0, tzinfo=UTC)


EPOCH = int(NOW.timestamp())


NAMES = st.sampled_from(
    ["ratelimit", "ratelimit-reset", "ratelimit-remaining", "anthropic-ratelimit-x-reset", "date"]
    + [f"x-ratelimit-{name}" for name in ("reset", "reset-after", "remaining", "reset-", "remaining-x")]
)


NUMBERS = ["0", "1", "9" * 20, ".", "e", "-", "+", "ms", "h", "s", "inf", "nan", "٣"]


LISTED = [";", ",", "=", '"', "\\", "r=0", "t=30", "reset=", " ", "\x00"]


DATES = ["2026-11-16", "08:00:00", "T", "Z", ":", "Mon, 16 Nov 2026 ", " GMT"]


PARTS = st.sampled_from([*NUMBERS, *LISTED, *DATES])


VALUES = st.text() | st.lists(PARTS, max_size=12).map("".join)
