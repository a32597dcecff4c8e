"""What Python's own exceptions mean: the part of `transient` that is there from the start.

An entry is a verdict for all errors of a class, or a function that looks at one of them. It knows nothing
of other modules, not even of the standard library's: see `_known`.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from redouble._failures.verdict import Kind, Verdict

__all__ = ["BUILTIN", "BUSY", "NETWORK", "TIMEOUT", "UNSENT", "Ask", "Entry", "Look"]


Ask: TypeAlias = Callable[[object], Verdict | None]
Look: TypeAlias = Callable[[Any, Ask], Verdict | None]  # at an error, asking about others inside it
Entry: TypeAlias = Verdict | Look | None

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
BUSY = Verdict.retry(kind=Kind.server, reason="busy")

# OSErrors that Python gives no class of their own. ECONNRESET and its like are ConnectionErrors.
_ERRNOS: dict[int, Verdict] = {
    number: verdict
    for verdict, names in {
        UNSENT: ["ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"],
        NETWORK: ["ENETRESET", "ECONNRESET", "ECONNABORTED", "EPIPE", "ESHUTDOWN", "ENOBUFS", "ENOTCONN"],
        TIMEOUT: ["ETIMEDOUT"],
        BUSY: ["EAGAIN", "EWOULDBLOCK", "EINTR", "EBUSY"],
    }.items()
    for name in names
    if (number := getattr(errno, name, None)) is not None
}


def by_errno(error: Any, ask: Ask) -> Verdict | None:
    """Look at the number; where several addresses were tried, at all of their numbers."""
    number = error.errno
    if isinstance(number, int):
        return _ERRNOS.get(number)
    text = str(error)
    if text.startswith("Multiple exceptions: "):  # asyncio's, which keeps nothing but the texts
        found = [_ERRNOS.get(int(digits)) for digits in re.findall(r"\[Errno (\d{1,5})\]", text)]
        return UNSENT if found and None not in found else None
    return ask(error.__cause__) if text == "All connection attempts failed" else None  # AnyIO's


def by_members(group: Any, ask: Ask) -> Verdict | None:
    """Retry a group only if every member is worth it: one bad request among resets stays bad."""
    members: dict[int, Exception] = {}
    groups: list[Any] = [group]
    for one in groups:  # flat, and each only once: groups may be nested a thousand deep
        for member in one.exceptions:
            if id(member) not in members:
                members[id(member)] = member
                if isinstance(member, ExceptionGroup):
                    groups.append(cast("object", member))
    verdicts = [ask(member) for member in members.values() if not isinstance(member, ExceptionGroup)]
    found = [v for v in verdicts if v is not None and v.action == "retry"]
    if len(found) < len(verdicts):
        return None
    kinds = {v.kind for v in found}
    return Verdict.retry(
        kind=kinds.pop() if len(kinds) == 1 else Kind.unknown,
        after=max((v.after for v in found if v.after is not None), default=None),
        sent=False if all(v.sent is False for v in found) else None,
        reason="group",
    )


def by_hint(rejected: Any, _: Ask) -> Verdict | None:
    """Retry a call that was not made, after as long as we were told to wait."""
    try:
        return Verdict.retry(kind=Kind.throttled, after=rejected.retry_after, sent=False, reason="rejected")
    except Exception:  # NaN, or no number at all: that must not cost us the refusal
        return Verdict.retry(kind=Kind.throttled, sent=False, reason="rejected")


BUILTIN: dict[str, Entry] = {
    "builtins.ConnectionError": NETWORK,
    "builtins.ConnectionRefusedError": UNSENT,
    "builtins.ExceptionGroup": by_members,
    "builtins.OSError": by_errno,
    "builtins.TimeoutError": TIMEOUT,
    "redouble.errors.Rejected": by_hint,
}
