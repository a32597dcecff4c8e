"""What the other side asks of us in the headers of its answer: how long to wait, and whether to come again.

Any headers will do, and anything in them: what cannot be read is no hint. Nothing here raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from redouble._failures.http_date import parse
from redouble._failures.quota_headers import decimal, refilled, tightest
from redouble._failures.verdict import Verdict
from redouble._internal.public import public

__all__ = ["after", "hint", "milliseconds", "quota", "retry_after", "should_retry"]


_WHOLE = re.compile(r"[0-9]+")
_BLANKS = " \t"
_MOST = 10_000  # headers: no answer has so many, but an iterator may never end


@public("redouble.http")
def retry_after(headers: object, now: float | datetime | None = None) -> float | None:
    """Return how many seconds the other side asks us to wait, or None where it does not say.

    ``headers`` are a mapping or pairs, in any case, of text or bytes; of two with the same name the first
    counts. The first of these that can be read is the answer: ``retry-after-ms``, ``x-amz-retry-after``,
    ``Retry-After`` in seconds or as a date, and the headers that tell when a used-up quota is filled again.

    A date is judged by the ``Date`` of the answer, so that our clock may be wrong; without one, by ``now``:
    seconds since 1970 or a datetime, or else the clock on the wall. A date in the past is 0.0.
    """
    return _asked(_fields(headers), now, quota=True)


def hint(headers: object, status: object) -> float | None:
    """Return the same for an answer with this status: of a quota only those speak that refuse for it."""
    return _asked(_fields(headers), None, quota=status in (403, 429))


def quota(headers: object) -> tuple[int, float] | None:
    """Return how many calls are left, and in how many seconds there are more, by the tightest quota."""
    fields = _fields(headers)
    clock = _moment(None)
    said = parse(fields.get("date", ""), clock)
    return tightest(fields, clock if said is None else said)


def _asked(fields: dict[str, str], now: float | datetime | None, *, quota: bool) -> float | None:
    asked = fields.get("retry-after", "")
    found = _thousandth(decimal(fields.get("retry-after-ms", "")))
    if found is None:
        found = milliseconds(fields.get("x-amz-retry-after"))
    if found is None:
        found = decimal(asked)
    if found is not None or not fields:
        return found
    clock = _moment(now)
    said = parse(fields.get("date", ""), clock)
    moment = clock if said is None else said
    until = parse(asked, moment)
    if until is not None:
        return max(0.0, until - moment)
    return refilled(fields, moment) if quota else None


def should_retry(headers: object) -> bool | None:
    """Return what ``x-should-retry`` says, if it says true or false."""
    return {"true": True, "false": False}.get(_fields(headers).get("x-should-retry", "").lower())


def milliseconds(text: str | None) -> float | None:
    """Read a whole number of milliseconds, as seconds."""
    return _thousandth(decimal(text)) if text is not None and _WHOLE.fullmatch(text) else None


def after(verdict: Verdict | None, seconds: float | None) -> Verdict | None:
    """Return the verdict with the hint, if there are both."""
    if verdict is None or seconds is None:
        return verdict
    return Verdict.retry(kind=verdict.kind, after=seconds, sent=verdict.sent, reason=verdict.reason)


def _thousandth(number: float | None) -> float | None:
    return None if number is None else number / 1000


# ----------------------------------------------------------------------------- the time


def _moment(now: object) -> float:
    """Return the time that was given, if it is one; a datetime without a zone is in UTC."""
    with suppress(Exception):  # a number too large, or a zone that knows no answer
        if isinstance(now, datetime):
            now = (now if now.tzinfo else now.replace(tzinfo=UTC)).timestamp()
        if isinstance(now, int | float) and math.isfinite(now):
            return float(now)
    return datetime.now(UTC).timestamp()


# ------------------------------------------------------------------------------ headers


def _fields(headers: object) -> dict[str, str]:
    """Return all headers that can be read, by their name in lower case; the first of each name."""
    found: dict[str, str] = {}
    with suppress(Exception):  # whatever they are, they end here
        for pair in islice(_pairs(headers), _MOST):
            name, text = _field(pair)
            if name is not None and text is not None:
                found.setdefault(name.lower(), text)
    return found


def _pairs(headers: Any) -> Iterator[Any]:
    """Go through them one by one: most libraries' ``items()`` do so, httpx's and Tornado's join them."""
    if hasattr(headers, "multi_items"):
        return iter(headers.multi_items())
    if hasattr(headers, "get_list"):
        return ((name, headers.get_list(name)) for name in headers)
    return iter(headers.items() if hasattr(headers, "items") else headers)


def _field(pair: Any) -> tuple[str | None, str | None]:
    try:
        name, value = pair
        return _text(name), _text(value if isinstance(value, str | bytes | int | float) else value[0])
    except Exception:  # one that cannot be read does not spoil the others
        return None, None


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    elif isinstance(value, int | float):
        value = str(value)
    return str.strip(value, _BLANKS) if isinstance(value, str) else None
