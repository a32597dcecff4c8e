"""The parser of retry headers: how long the server asks the client to wait, and whether to retry at all.

Headers of any type are accepted. A malformed value is no hint; nothing here raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any, cast

from redouble._failures.http_date import parse_http_date
from redouble._failures.quota_headers import decimal, seconds_to_reset, tightest_quota
from redouble._failures.verdict import Verdict, changed
from redouble._internal.public import public

_WHOLE = re.compile(r"[0-9]+")
_BLANKS = " \t"
_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")  # the second is Azure's
_MAX_HEADERS = 10_000  # more than any response has; an iterator may be endless


@public("redouble.http")
def retry_after(headers: object, now: float | datetime | None = None) -> float | None:
    """Return how many seconds the server asks the client to wait, or None if the headers have no such time.

    ``headers`` are a mapping or pairs, of text or bytes; the case of a name does not matter, and of two with
    the same name the first counts. The first of these that is well-formed decides: ``retry-after-ms``,
    ``x-ms-retry-after-ms``, ``x-amz-retry-after``, ``Retry-After`` in seconds or as a date, and the headers
    with the reset time of an exhausted quota.

    A date is compared with the ``Date`` of the response, so that the local clock may be wrong; without one,
    with ``now`` (seconds since 1970 or a datetime) or the system's wall clock. A date in the past is 0.0.
    """
    return _requested_wait(_fields(headers), now, quota=True)


def response_hint(headers: object, status: object) -> float | None:
    """Return the hint of a response with this status: quota headers count only with a 403 or 429."""
    return response_wish(headers, status)[1]


def response_wish(headers: object, status: object) -> tuple[bool | None, float | None]:
    """Return ``x-should-retry`` (None if it is neither true nor false) and the hint of a response."""
    fields = _fields(headers)
    flag = {"true": True, "false": False}.get(fields.get("x-should-retry", "").lower())
    return flag, _requested_wait(fields, None, quota=status in (403, 429))


def quota(headers: object) -> tuple[int, float] | None:
    """Return the calls that remain in the tightest quota, and the seconds to its reset."""
    fields = _fields(headers)
    return tightest_quota(fields, _response_time(fields, _timestamp(None)))


def _requested_wait(fields: dict[str, str], now: float | datetime | None, *, quota: bool) -> float | None:
    text, amazon = fields.get("retry-after", ""), fields.get("x-amz-retry-after")
    waits = (
        *(_thousandth(decimal(fields.get(name, ""))) for name in _MILLISECONDS),
        milliseconds(amazon),
        decimal(text),
    )
    wait = next((wait for wait in waits if wait is not None), None)
    if wait is not None or not fields:
        return wait
    reference = _response_time(fields, _timestamp(now))
    until = parse_http_date(text, reference)
    if until is not None:
        return max(0.0, until - reference)
    return seconds_to_reset(fields, reference) if quota else None


def _response_time(fields: dict[str, str], now: float) -> float:
    """Return the ``Date`` of the response in seconds since 1970, or ``now``."""
    date = parse_http_date(fields.get("date", ""), now)
    return now if date is None else date


def milliseconds(text: str | None) -> float | None:
    """Parse an integer number of milliseconds to seconds."""
    return _thousandth(decimal(text)) if text is not None and _WHOLE.fullmatch(text) else None


def with_hint(verdict: Verdict | None, seconds: float | None) -> Verdict | None:
    """Return the verdict with the hint added, if there are both."""
    return verdict if verdict is None or seconds is None else changed(verdict, after=seconds)


def _thousandth(number: float | None) -> float | None:
    return None if number is None else number / 1000


# ----------------------------------------------------------------------------- the time


def _timestamp(now: object) -> float:
    """Return ``now`` in seconds since 1970, or the wall clock if it is no time; a naive datetime is UTC."""
    with suppress(Exception):  # the number is too large, or the timezone raises
        if isinstance(now, datetime):
            now = (now if now.tzinfo else now.replace(tzinfo=UTC)).timestamp()
        if isinstance(now, int | float) and math.isfinite(now):
            return float(now)
    return datetime.now(UTC).timestamp()


# ------------------------------------------------------------------------------ headers


def _fields(headers: object) -> dict[str, str]:
    """Return the well-formed headers by lower-case name; a repeated header keeps its first value."""
    fields: dict[str, str] = {}
    with suppress(Exception):  # the iterator raises: keep the headers before that
        for pair in islice(_pairs(headers), _MAX_HEADERS):
            try:
                name, value = pair
                text = _text(value if isinstance(value, str | bytes | int | float) else value[0])
                fields.setdefault(_text(name).lower(), text)
            except Exception:  # noqa: S112  a malformed header does not affect the others
                continue
    return fields


def _pairs(headers: Any) -> Iterator[Any]:
    """Iterate over single headers: ``items()`` of httpx and Tornado joins those of one name."""
    if hasattr(headers, "multi_items"):
        return iter(headers.multi_items())
    if hasattr(headers, "get_list"):
        return ((name, headers.get_list(name)) for name in headers)
    return iter(headers.items() if hasattr(headers, "items") else headers)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    elif isinstance(value, int | float):
        value = str(value)
    return str.strip(cast("str", value), _BLANKS)  # raises TypeError if it is no text
