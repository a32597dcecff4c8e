"""The table of built-in exceptions and of our own: the part of `transient` that is always loaded.

An entry is a verdict for all errors of a class, or a function that reads one of them. Errors of other
modules, the standard library's included, are in `known_errors`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

from redouble._failures.verdict import Kind, Verdict, unwrapped, with_retry_after

T = TypeVar("T")

Ask: TypeAlias = Callable[[object], Verdict | None]
ErrorReader: TypeAlias = Callable[[Any, Ask], Verdict | None]  # `Ask` judges an error inside the error
Entry: TypeAlias = Verdict | ErrorReader | None

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
BUSY = Verdict.retry(kind=Kind.server, reason="busy")
REJECTED = Verdict.retry(kind=Kind.throttled, sent=False, reason="rejected")


def by_name(groups: Mapping[T, str], separator: str | None = None) -> dict[str, T]:
    """Return the entry of each name or code, from a text of the names of each entry."""
    return {name: entry for entry, names in groups.items() for name in names.split(separator)}


# OSErrors without a class of their own. ECONNRESET and similar ones are usually ConnectionErrors.
_ERRNO_NAMES = by_name(
    {
        UNSENT: "ENETDOWN ENETUNREACH EHOSTDOWN EHOSTUNREACH EADDRNOTAVAIL ECONNREFUSED",
        NETWORK: "ENETRESET ECONNRESET ECONNABORTED EPIPE ESHUTDOWN ENOBUFS ENOTCONN",
        TIMEOUT: "ETIMEDOUT",
        BUSY: "EAGAIN EWOULDBLOCK EINTR EBUSY",
    }
)
# The names that this platform lacks share the key None.
_ERRNOS = {getattr(errno, name, None): verdict for name, verdict in _ERRNO_NAMES.items()}


def by_errno(error: Any, ask: Ask) -> Verdict | None:
    """Judge by the errno; if several addresses were tried, by all of their errnos."""
    number = error.errno
    if isinstance(number, int):
        return _ERRNOS.get(number)
    text = str(error)
    if text.startswith("Multiple exceptions: "):  # asyncio's, which keeps only the texts
        verdicts = [_ERRNOS.get(int(digits)) for digits in re.findall(r"\[Errno (\d{1,5})\]", text)]
        return UNSENT if verdicts and None not in verdicts else None
    several = text == "All connection attempts failed" or text.startswith("all attempts to connect to ")
    return ask(error.__cause__) if several else None  # AnyIO's and Trio's


def by_members(group: Any, ask: Ask) -> Verdict | None:
    """Retry a group only if every member is retryable: a bad request among resets would fail again."""
    members: dict[int, Exception] = {}
    groups: list[Any] = [group]
    for nested in groups:  # iterative, and each member once: groups may be nested a thousand deep
        for member in nested.exceptions:
            if id(member) not in members:
                members[id(member)] = member
                if isinstance(member, ExceptionGroup):
                    groups.append(cast("object", member))
    return combined([ask(member) for member in members.values() if not isinstance(member, ExceptionGroup)])


def combined(verdicts: Sequence[Verdict | None]) -> Verdict | None:
    """Return the verdict on several errors of one attempt; None unless all of them are retryable."""
    retries = [v for v in verdicts if v is not None and v.action == "retry"]
    if not retries or len(retries) < len(verdicts):
        return None
    kinds = {v.kind for v in retries}
    return Verdict.retry(
        kind=kinds.pop() if len(kinds) == 1 else Kind.unknown,
        after=max((v.after for v in retries if v.after is not None), default=None),
        sent=False if all(v.sent is False for v in retries) else None,
        reason="group",
    )


def by_hint(rejected: Any, _: Ask) -> Verdict | None:
    """Retry a rejected call after its ``retry_after``."""
    return with_retry_after(REJECTED, rejected)


def by_last(error: Any, ask: Ask) -> Verdict | None:
    """Judge a `RetryError` by the error that it wraps; if there is none, by its own type."""
    inner = unwrapped(error)
    verdict = None if inner is error else ask(inner)
    return TIMEOUT if verdict is None and isinstance(error, TimeoutError) else verdict


BUILTIN: dict[str, Entry] = {
    "builtins.ConnectionError": NETWORK,
    "builtins.ConnectionRefusedError": UNSENT,
    "builtins.ExceptionGroup": by_members,
    "builtins.OSError": by_errno,
    "builtins.TimeoutError": TIMEOUT,
    "redouble.errors.Rejected": by_hint,
    "redouble.errors.RetryError": by_last,
}
