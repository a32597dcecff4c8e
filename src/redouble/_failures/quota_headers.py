"""The parser of quota headers (RateLimit, X-RateLimit-*, Anthropic's): what remains, and the reset time.

The caller passes the headers, their names in lower case, and the time. Only an exhausted quota requires a
wait; a quota that does not state what remains counts as exhausted. Of several quotas the longest wait counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

from redouble._failures.http_date import parse_http_date

_MAX_LENGTH = 64  # characters of a number or a date: a longer value is ignored
_MAX_LIST_LENGTH = 1024

_RESET = re.compile(r"(ratelimit-|x-ratelimit-|anthropic-ratelimit-(?:.*-)?)reset(-.*)?")
_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PARAMETER = re.compile(r"[ \t]*([a-z]+)=([^ \t]*)[ \t]*", re.ASCII | re.IGNORECASE)
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|us|ns|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_HOUR_MINUTE = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_RFC_3339 = re.compile(
    rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_HOUR_MINUTE}:[0-5][0-9](?:\.[0-9]+)?(?:Z|[+-]{_HOUR_MINUTE})"
)


def seconds_to_reset(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds until all exhausted quotas are reset; ``now`` is in seconds since 1970."""
    exhausted = (wait for left, wait in _quotas(headers, now) if left is None or decimal(left) == 0)
    return max(exhausted, default=None)


def tightest_quota(headers: Mapping[str, str], now: float) -> tuple[int, float] | None:
    """Return the remaining calls of the quota with the fewest calls per second, and the time to its reset."""
    parsed = ((decimal(remaining or ""), wait) for remaining, wait in _quotas(headers, now))
    quotas = [(int(remaining), wait) for remaining, wait in parsed if remaining is not None and wait > 0]
    return min(quotas, key=lambda quota: quota[0] / quota[1], default=None)


def decimal(text: str) -> float | None:
    """Parse a decimal number: ASCII digits, with or without a fraction, and nothing else."""
    return float(text) if len(text) <= _MAX_LENGTH and _DECIMAL.fullmatch(text) else None


def _quotas(headers: Mapping[str, str], now: float) -> Iterator[tuple[str | None, float]]:
    """Return for each quota the remaining amount, as text, and the seconds to its reset."""
    quotas = [*_ratelimit_field(headers.get("ratelimit", ""), now), *_separate_headers(headers, now)]
    return ((remaining, wait) for remaining, wait in quotas if wait is not None)


def _separate_headers(headers: Mapping[str, str], now: float) -> Iterator[tuple[str | None, float | None]]:
    for name, text in headers.items():
        match = _RESET.fullmatch(name)
        if match and (match[2] is None or match[1] == "x-ratelimit-"):
            plain = f"{match[1]}remaining"
            yield headers.get(f"{plain}{match[2] or ''}", headers.get(plain)), _wait(text, now)


# ------------------------------------------------ the RateLimit field of the IETF draft


def _ratelimit_field(text: str, now: float) -> Iterator[tuple[str | None, float | None]]:
    """Parse a list of ``"name";r=0;t=30``, or ``limit=9, remaining=0, reset=30`` of earlier drafts."""
    bare = _QUOTED.sub("", text) if len(text) <= _MAX_LIST_LENGTH else ""
    items = [_parameters(item) for item in bare.split(",") if '"' not in bare]
    merged = {name: value for item in items for name, value in item.items()}
    for item, reset, remaining in [*((item, "t", "r") for item in items), (merged, "reset", "remaining")]:
        if reset in item:
            yield item.get(remaining), _number(item[reset], now)


def _parameters(item: str) -> dict[str, str]:
    matches = (_PARAMETER.fullmatch(part) for part in item.split(";"))
    return {match[1].lower(): match[2] for match in matches if match}


# ------------------------------------------------------------------------------- values


def _wait(text: str, now: float) -> float | None:
    if len(text) > _MAX_LENGTH:
        return None
    for wait in (_number(text, now), _go_duration(text)):
        if wait is not None:
            return wait
    reset = _rfc_3339(text.upper())
    reset = parse_http_date(text, now) if reset is None else reset
    return None if reset is None else max(0.0, reset - now)


def _number(text: str, now: float) -> float | None:
    """Parse seconds from now, or seconds or milliseconds since 1970: their magnitudes do not overlap."""
    number = decimal(text)
    if number is None or number < 1e9:
        return number
    return max(0.0, (number if number < 1e12 else number / 1000) - now)


def _go_duration(text: str) -> float | None:
    """Parse ``1h2m3.5s``, Go's format of durations."""
    parts: list[tuple[str, str]] = _SPAN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _rfc_3339(text: str) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if _RFC_3339.fullmatch(text) else None
    except ValueError:  # there is no such day
        return None
