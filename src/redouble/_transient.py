"""The built-in rule: what is worth retrying, known by name, importing nothing.

`transient` answers for the errors of the standard library and for our own `Rejected`; about the rest
it has no opinion, so that it can stand in a list with rules of yours. Types are recognised by their
qualified name through the MRO: neither `socket` nor `ssl` is loaded for it.
"""

from __future__ import annotations

import errno
import sys
from functools import lru_cache

from redouble._verdict import Kind, Verdict
from redouble.errors import Rejected

__all__ = ["kind_of", "transient"]

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
    if isinstance(error, OSError):
        return _os_error(error)
    if isinstance(error, ExceptionGroup):
        return _group(error)
    if isinstance(error, Rejected):
        return Verdict.retry(kind=Kind.throttled, after=error.retry_after, sent=False, reason="rejected")
    names = _names(type(error))
    if "sqlite3.OperationalError" in names:
        locked = str(getattr(error, "sqlite_errorname", "")).startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))
        return _BUSY if locked else None
    return next((_NAMED[name] for name in names if name in _NAMED), None)


def _os_error(error: OSError) -> Verdict | None:
    if isinstance(error, TimeoutError):
        return _TIMEOUT
    if isinstance(error, ConnectionError):
        return _UNSENT if isinstance(error, ConnectionRefusedError) else _NETWORK
    names = _names(type(error))
    if "ssl.SSLError" in names:
        cut = any(name in names for name in _CUT_TLS) or getattr(error, "reason", None) in _CUT_TLS_REASONS
        return _NETWORK if cut else None
    if "socket.gaierror" in names or "socket.herror" in names:
        # "Try again" is the resolver's own word for transient; "no such host" is an answer.
        socket = sys.modules.get("socket")
        again = (getattr(socket, "EAI_AGAIN", None), 2) if "socket.herror" in names else (getattr(socket, "EAI_AGAIN", None),)
        return _UNSENT if error.errno is not None and error.errno in again else None
    if "urllib.error.URLError" in names and "urllib.error.HTTPError" not in names:
        reason = getattr(error, "reason", None)
        return transient(reason) if isinstance(reason, Exception) else None
    by_name = next((_NAMED[name] for name in names if name in _NAMED), None)
    return by_name or (None if error.errno is None else _ERRNOS.get(error.errno))


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


@lru_cache(maxsize=512)
def _names(kind: type[BaseException]) -> tuple[str, ...]:
    return tuple(f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__)


@lru_cache(maxsize=512)
def kind_of(error: type[BaseException] | None) -> Kind:
    """Tell the kind of an error by its type alone, for verdicts that do not say."""
    if error is None:
        return Kind.unknown
    if issubclass(error, TimeoutError):
        return Kind.timeout
    if issubclass(error, Rejected):
        return Kind.throttled
    names = _names(error)
    if issubclass(error, ConnectionError) or "socket.gaierror" in names or "ssl.SSLError" in names:
        return Kind.network
    return Kind.unknown
