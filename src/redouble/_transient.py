"""The built-in rule: what is worth retrying, known by name, importing nothing.

`transient` answers for the errors of the standard library and for our own `Rejected`; about the rest
it has no opinion, so that it can stand in a list with rules of yours. Types are recognised by their
qualified name through the MRO: neither `socket` nor `ssl` is loaded for it.
"""

from __future__ import annotations

import errno
import sys
from functools import lru_cache
from typing import cast

from redouble._verdict import Kind, Verdict
from redouble.errors import Rejected

__all__ = ["kind_of", "transient"]

# Reading a member off its enum costs a call of its own on Python 3.11.
NETWORK, TIMEOUT, THROTTLED, UNKNOWN = Kind.network, Kind.timeout, Kind.throttled, Kind.unknown

_UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
_NETWORK = Verdict.retry(kind=Kind.network, reason="network")
_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
_BUSY = Verdict.retry(kind=Kind.server, reason="busy")

# OSErrors that Python gives no class of their own. ECONNRESET and its like are ConnectionErrors.
_ERRNOS: dict[int, Verdict] = {
    number: verdict
    for verdict, names in {
        _UNSENT: ["ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "EADDRNOTAVAIL", "ECONNREFUSED"],
        _NETWORK: ["ENETRESET", "ECONNRESET", "ECONNABORTED", "EPIPE", "ESHUTDOWN", "ENOBUFS", "ENOTCONN"],
        _TIMEOUT: ["ETIMEDOUT"],
        _BUSY: ["EAGAIN", "EWOULDBLOCK", "EINTR", "EBUSY"],
    }.items()
    for name in names
    if (number := getattr(errno, name, None)) is not None
}

_NAMED: dict[str, Verdict] = {
    "asyncio.exceptions.IncompleteReadError": _NETWORK,
    "ftplib.error_temp": _BUSY,
    "http.client.IncompleteRead": _NETWORK,
    "imaplib.IMAP4.abort": _NETWORK,
    "smtplib.SMTPServerDisconnected": _NETWORK,
    "subprocess.TimeoutExpired": _TIMEOUT,
}

# A TLS connection that was cut, as opposed to one that was refused: a bad certificate stays bad.
_CUT_TLS = ("ssl.SSLEOFError", "ssl.SSLZeroReturnError", "ssl.SSLSyscallError")
_CUT_TLS_REASONS = ("UNEXPECTED_EOF_WHILE_READING",)


def transient(error: Exception) -> Verdict | None:
    """Answer "retry" for errors that tend to go away by themselves: the default of ``on``."""
    kind = type(error)
    if issubclass(kind, OSError):
        return _os_error(cast("OSError", error))
    if issubclass(kind, ExceptionGroup):
        return _group(cast("ExceptionGroup[Exception]", error))
    if issubclass(kind, Rejected):
        after = cast("Rejected", error).retry_after
        if after is not None and after != after:  # noqa: PLR0124  NaN must not cost us the refusal
            after = None
        return Verdict.retry(kind=THROTTLED, after=after, sent=False, reason="rejected")
    names = _names(error)
    if "sqlite3.OperationalError" in names:
        locked = str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        return _BUSY if locked else None
    return _by_name(names)


def _os_error(error: OSError) -> Verdict | None:
    if isinstance(error, TimeoutError):
        return _TIMEOUT
    if isinstance(error, ConnectionError):
        return _UNSENT if isinstance(error, ConnectionRefusedError) else _NETWORK
    names = _names(error)
    if "ssl.SSLError" in names:
        cut = any(name in names for name in _CUT_TLS) or getattr(error, "reason", None) in _CUT_TLS_REASONS
        return _NETWORK if cut else None
    if "socket.gaierror" in names or "socket.herror" in names:
        # "Try again" is the resolver's own word for transient; "no such host" is an answer.
        again = 2 if "socket.herror" in names else getattr(sys.modules.get("socket"), "EAI_AGAIN", None)
        return _UNSENT if error.errno is not None and error.errno == again else None
    if "urllib.error.URLError" in names and "urllib.error.HTTPError" not in names:
        reason = getattr(error, "reason", None)
        return transient(reason) if isinstance(reason, Exception) else None
    return _by_name(names) or (_ERRNOS.get(error.errno) if isinstance(error.errno, int) else None)


def _by_name(names: tuple[str, ...]) -> Verdict | None:
    return next((_NAMED[name] for name in names if name in _NAMED), None)


def _group(group: ExceptionGroup[Exception]) -> Verdict | None:
    """Retry a group only if every member is worth it: one bad request among resets stays bad."""
    verdicts = [transient(member) for member in group.exceptions]
    found = [v for v in verdicts if v is not None]
    if len(found) < len(verdicts):
        return None
    kinds = {v.kind for v in found}
    return Verdict.retry(
        kind=kinds.pop() if len(kinds) == 1 else Kind.unknown,
        after=max((v.after for v in found if v.after is not None), default=None),
        sent=False if all(v.sent is False for v in found) else None,
        reason="group",
    )


def _names(error: BaseException) -> tuple[str, ...]:
    return _lineage(type(error))  # type: ignore[arg-type]  # mypy does not see that a class is hashable


@lru_cache(maxsize=512)
def _lineage(kind: type[BaseException]) -> tuple[str, ...]:
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)


def kind_of(error: type[BaseException] | None) -> Kind:
    """Tell the kind of an error by its type alone, for verdicts that do not say."""
    if error is None:
        return UNKNOWN
    if issubclass(error, TimeoutError):
        return TIMEOUT
    if issubclass(error, ConnectionError):
        return NETWORK
    return THROTTLED if issubclass(error, Rejected) else UNKNOWN
