"""When a used-up quota is filled again, read from the headers that tell of quotas.

A reader of text only: it is given the headers, their names in lower case, and the time. A quota of which
something is left is no reason to wait; one that does not say is taken for used up. Of several, the longest
wait counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from redouble._failures.http_date import moment, parse

__all__ = ["decimal", "refilled", "tightest"]


_LONGEST = 64  # characters of a number or a date: what is longer is not read
_LONGEST_LIST = 1024

_DECIMAL = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PARAMETER = re.compile(r"[ \t]*([a-z]+)=([^ \t]*)[ \t]*", re.ASCII | re.IGNORECASE)
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(h|ms|us|ns|m|s)")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_RFC_3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))"
)


def refilled(headers: Mapping[str, str], now: float) -> float | None:
    """Return in how many seconds all quotas are there again; ``now`` is in seconds since 1970."""
    return max((wait for left, wait in _quotas(headers, now) if _used_up(left)), default=None)


def tightest(headers: Mapping[str, str], now: float) -> tuple[int, float] | None:
    """Return what is left of the quota that allows the fewest calls a second, and for how many seconds."""
    told = ((decimal(left or ""), wait) for left, wait in _quotas(headers, now))
    found = [(int(left), wait) for left, wait in told if left is not None and wait > 0]
    return min(found, key=lambda quota: quota[0] / quota[1], default=None)


def decimal(text: str) -> float | None:
    """Read a decimal number: ASCII digits, with or without a fraction, and nothing else."""
    return float(text) if len(text) <= _LONGEST and _DECIMAL.fullmatch(text) else None


def _quotas(headers: Mapping[str, str], now: float) -> Iterator[tuple[str | None, float]]:
    """Find what is left of each quota, as it is written, and in how many seconds it is filled again."""
    for left, wait in [*_listed(headers.get("ratelimit", ""), now), *_told_apart(headers, now)]:
        if wait is not None:
            yield left, wait


def _told_apart(headers: Mapping[str, str], now: float) -> Iterator[tuple[str | None, float | None]]:
    for name, text in headers.items():
        left = _remaining(name)
        if left:
            yield next((headers[other] for other in left if other in headers), None), _wait(text, now)


def _remaining(name: str) -> tuple[str, ...]:
    """Return where it is told how much is left, if the header tells when there will be more."""
    if name == "ratelimit-reset":
        return ("ratelimit-remaining",)
    if name == "x-ratelimit-reset" or name.startswith("x-ratelimit-reset-"):
        plain = "x-ratelimit-remaining"
        return plain + name.removeprefix("x-ratelimit-reset"), plain
    if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
        return (name.removesuffix("reset") + "remaining",)
    return ()


def _used_up(left: str | None) -> bool:
    return left is None or decimal(left) == 0


# -------------------------------------------------------------- the field of the draft


def _listed(text: str, now: float) -> Iterator[tuple[str | None, float | None]]:
    """Read ``"name";r=0;t=30``, any number of these; or ``limit=9, remaining=0, reset=30`` of before."""
    bare = _QUOTED.sub("", text) if len(text) <= _LONGEST_LIST else ""
    items = [_parameters(item) for item in bare.split(",") if '"' not in bare]
    whole = {name: value for item in items for name, value in item.items()}
    for item, reset, left in [*((item, "t", "r") for item in items), (whole, "reset", "remaining")]:
        if reset in item:
            yield item.get(left), _number(item[reset], now)


def _parameters(item: str) -> dict[str, str]:
    found = (_PARAMETER.fullmatch(part) for part in item.split(";"))
    return {match[1].lower(): match[2] for match in found if match}


# ------------------------------------------------------------------------------- values


def _wait(text: str, now: float) -> float | None:
    if len(text) > _LONGEST:
        return None
    found = _number(text, now)
    if found is None:
        found = _span(text)
    if found is None:
        then = _rfc_3339(text)
        then = parse(text, now) if then is None else then
        found = None if then is None else max(0.0, then - now)
    return found


def _number(text: str, now: float) -> float | None:
    """Read seconds from now, or since 1970, or milliseconds since then: they cannot be mistaken."""
    found = decimal(text)
    if found is None or found < 1e9:
        return found
    return max(0.0, (found if found < 1e12 else found / 1000) - now)


def _span(text: str) -> float | None:
    """Read ``1h2m3.5s``, as Go writes it."""
    parts: list[tuple[str, str]] = _SPAN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _rfc_3339(text: str) -> float | None:
    found = _RFC_3339.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    then = moment(year, month, day, hour, minute, second)
    hours, minutes = int(found[9] or 0), int(found[10] or 0)
    if then is None or hours > 23 or minutes > 59:
        return None
    ahead = hours * 3600 + minutes * 60
    return then + float(found[7] or 0) + (ahead if found[8] == "-" else -ahead)
