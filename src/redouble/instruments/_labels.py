"""Label values and log fields derived from an event: status, error code, kind, reason."""

from __future__ import annotations

import re
from functools import lru_cache

from redouble._failures.error_readers import response_of
from redouble._failures.verdict import CANCELLED_BY_LIMIT, Kind
from redouble._redaction.rendering import shortened, without_secrets
from redouble._telemetry.events import Event

MAX_LENGTH = 64  # characters of a label value
MAX_REDACTED = 256  # characters of the text that it is made of
CLIENTS = frozenset({"httpx", "httpx2", "requests", "aiohttp", "urllib3"})
UNFIT = re.compile(r"[^A-Za-z0-9_.:-]")


def http_status(event: Event) -> int | None:
    """Return the HTTP status of the error or of the returned response, or None."""
    try:
        status = response_of(event.error)[0] if event.error is not None else None
        if status is None and event.value is not None:
            value = event.value
            status = getattr(value, "status_code", None) or getattr(value, "status", None)
    except Exception:  # an attribute of the user's object raised
        return None
    return int(status) if isinstance(status, int) and 100 <= status <= 999 else None


def code_of(event: Event) -> str:
    """Return the code of the error that the call raised: status, SQLSTATE or type, never its message."""
    error, status = event.error, http_status(event)
    if event.verdict is CANCELLED_BY_LIMIT:
        return "DeadlineExceeded"  # the call raises this, not the error that cut the attempt
    if status is not None:
        return str(status)
    if error is None:
        refused = event.attempt or event.what == "fallback"
        return "not_accepted" if refused else "DeadlineExceeded"  # before the first attempt
    try:
        state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    except Exception:
        state = None
    return label_value(state) if isinstance(state, str) else label_value(type(error).__name__)


def kind_of(event: Event) -> str:
    """Return the kind of failure; if no rule classified a response, the kind of its status."""
    kind, status = event.kind or Kind.unknown, http_status(event)
    if kind is Kind.unknown and status is not None and status >= 400:
        kind = Kind.server if status >= 500 else Kind.client
    return str(kind)


def is_http(event: Event) -> bool:
    """Return True if the event has an HTTP status or an error of an HTTP client."""
    module = type(event.error).__module__.partition(".")[0]
    return module in CLIENTS or http_status(event) is not None


def reason_of(event: Event) -> str:
    """Return the reason of the verdict, or else the kind of failure."""
    verdict = event.verdict
    reason = verdict.reason if verdict is not None else None
    return label_value(reason) if reason else str(event.kind or "unknown")


def cause_of(event: Event) -> str | None:
    """Return the reason for giving up, or else that of the verdict; None if there is neither."""
    if event.reason is not None:
        return str(event.reason)
    return None if event.verdict is None else reason_of(event)


def label_value(text: str) -> str:
    """Redact, shorten and escape a text for a label value, because a rule may give any reason."""
    return _label_value(shortened(text, MAX_REDACTED))


@lru_cache(maxsize=256)
def _label_value(text: str) -> str:
    return UNFIT.sub("_", without_secrets(text)[:MAX_LENGTH])
