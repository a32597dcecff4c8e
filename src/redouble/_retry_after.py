"""How long the other side asks us to wait, read from the headers of its answer: whole seconds and such.

Any headers will do, and any text in them: what cannot be read is no hint. Dates are not read here.
"""

from __future__ import annotations

import re
from typing import Any

from redouble._verdict import Verdict

__all__ = ["after", "header", "hint", "milliseconds"]

_DECIMAL = re.compile(r"[ \t]*([0-9]+(?:\.[0-9]+)?)[ \t]*")
_WHOLE = re.compile(r"([0-9]+)")


def hint(headers: Any) -> float | None:
    """Return the seconds asked for."""
    found = _read(_DECIMAL, header(headers, "retry-after-ms"), 1000)
    if found is None:
        found = milliseconds(header(headers, "x-amz-retry-after"))
    return _read(_DECIMAL, header(headers, "retry-after"), 1) if found is None else found


def milliseconds(text: str | None) -> float | None:
    """Read a whole number of milliseconds, as seconds."""
    return _read(_WHOLE, text, 1000)


def _read(form: re.Pattern[str], text: str | None, parts: int) -> float | None:
    found = None if text is None else form.fullmatch(text)
    return None if found is None else float(found[1]) / parts  # a thousand digits are infinity


def header(headers: Any, name: str) -> str | None:
    """Return a header, if it is there and a text."""
    if headers is None:
        return None
    text: object = headers.get(name)
    if text is None:
        text = headers.get(name.title())  # in a plain dict
    return text if isinstance(text, str) else None


def after(verdict: Verdict | None, seconds: float | None) -> Verdict | None:
    """Return the verdict with the hint, if there are both."""
    if verdict is None or seconds is None:
        return verdict
    return Verdict.retry(kind=verdict.kind, after=seconds, sent=verdict.sent, reason=verdict.reason)
