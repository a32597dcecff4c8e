"""`transient`: the verdicts on real errors of the standard library."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import ftplib
import http.client
import imaplib
import os
import smtplib
import socket
import sqlite3
import ssl
import subprocess
import sys
import urllib.error
from email.message import Message
from math import inf, nan
from pathlib import Path

import pytest

from redouble import Kind, Retry, Verdict, errors, transient
from redouble._failures.transient import kind_of

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
BUSY = Verdict.retry(kind=Kind.server, reason="busy")


def os_error(name: str) -> OSError:
    number = getattr(errno, name)
    return OSError(number, os.strerror(number))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("ENETDOWN ENETUNREACH EHOSTDOWN EHOSTUNREACH EADDRNOTAVAIL ECONNREFUSED", UNSENT),
        ("ENETRESET ECONNRESET ECONNABORTED EPIPE ESHUTDOWN ENOBUFS ENOTCONN", NETWORK),
        ("ETIMEDOUT", TIMEOUT),
        ("EAGAIN EWOULDBLOCK EINTR EBUSY", BUSY),
        ("ENOENT EACCES EPERM EEXIST EISDIR ENOTDIR ENOTEMPTY ENOSPC EROFS EMFILE EINVAL EBADF EDOM", None),
    ],
)
def test_os_errors_by_errno(names: str, expected: Verdict | None) -> None:
    for name in names.split():
        assert transient(os_error(name)) == expected, name


def tls(kind: type[ssl.SSLError], reason: str | None = None) -> ssl.SSLError:
    error = kind(1, "the peer said so")
    if reason is not None:
        error.reason = reason
    return error


def http_error(code: int) -> urllib.error.HTTPError:
    headers = Message()
    if code == 429:
        headers["Retry-After"] = "7"
    return urllib.error.HTTPError("http://localhost", code, "so it is", headers, None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionError(), NETWORK),
        (ConnectionResetError(), NETWORK),
        (ConnectionAbortedError(), NETWORK),
        (BrokenPipeError(), NETWORK),
        (ConnectionRefusedError(), UNSENT),
        (TimeoutError(), TIMEOUT),
        (subprocess.TimeoutExpired("sleep", 3), TIMEOUT),
        (errors.AttemptTimeout(), TIMEOUT),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), UNSENT),
        (socket.gaierror(socket.EAI_NONAME, "no such host"), None),
        (socket.gaierror(), None),
        (socket.herror(2, "try again"), UNSENT),
        (socket.herror(1, "no such host"), None),
        (tls(ssl.SSLEOFError), NETWORK),
        (tls(ssl.SSLZeroReturnError), NETWORK),
        (tls(ssl.SSLSyscallError), NETWORK),
        (tls(ssl.SSLError, "UNEXPECTED_EOF_WHILE_READING"), NETWORK),
        (tls(ssl.SSLError, "WRONG_VERSION_NUMBER"), None),
        (tls(ssl.SSLError), None),
        (tls(ssl.SSLCertVerificationError), None),
        (http.client.RemoteDisconnected("gone"), NETWORK),
        (http.client.IncompleteRead(b"half"), NETWORK),
        (http.client.InvalidURL(), None),
        (asyncio.IncompleteReadError(b"half", 8), NETWORK),
        (imaplib.IMAP4.abort(), NETWORK),
        (imaplib.IMAP4.error(), None),
        (smtplib.SMTPServerDisconnected(), NETWORK),
        (ftplib.error_temp("450 busy"), BUSY),  # noqa: S321
        (ftplib.error_perm("550 no"), None),  # noqa: S321
        (urllib.error.URLError(ConnectionRefusedError()), UNSENT),
        (urllib.error.URLError(socket.gaierror(socket.EAI_AGAIN, "again")), UNSENT),
        (urllib.error.URLError(tls(ssl.SSLCertVerificationError)), None),
        (urllib.error.URLError("unknown url type"), None),
        (http_error(404), None),
        (http_error(503), Verdict.retry(kind=Kind.server, sent=True, reason="http_5xx")),
        (http_error(429), Verdict.retry(kind=Kind.throttled, after=7, sent=True, reason="rate_limit")),
        (OSError(), None),
        (OSError("only a text"), None),
        (PermissionError(), None),
        (FileNotFoundError(), None),
        (IsADirectoryError(), None),
        (ValueError(), None),
        (KeyError("x"), None),
        (EOFError(), None),
        (RuntimeError(), None),
        (Exception(), None),
        (errors.RetryError(), None),
        (errors.DeadlineExceeded(), TIMEOUT),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_by_type(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected
    if isinstance(error, urllib.error.HTTPError):
        error.close()


class OwnReset(ConnectionResetError):
    """A subclass that a library might define."""


class OwnRead(http.client.IncompleteRead):
    """Another one, which is no OSError."""


@pytest.mark.parametrize("error", [OwnReset(), OwnRead(b"")])
def test_a_subclass_has_the_verdict_of_its_parent(error: Exception) -> None:
    assert transient(error) == NETWORK


def test_a_locked_database_is_transient(tmp_path: Path) -> None:
    """Another connection holds the lock. A mistake in the SQL is not transient."""
    path = tmp_path / "one.db"
    holder, other = sqlite3.connect(path, timeout=0), sqlite3.connect(path, timeout=0)
    try:
        holder.execute("create table t (x)")
        holder.execute("begin exclusive")
        with pytest.raises(sqlite3.OperationalError, match="locked") as locked:
            other.execute("insert into t values (1)")
        holder.rollback()
        with pytest.raises(sqlite3.OperationalError, match="syntax") as syntax:
            other.execute("insret into t values (1)")
    finally:
        holder.close()
        other.close()
    assert transient(locked.value) == BUSY
    assert transient(syntax.value) is None
    assert transient(sqlite3.OperationalError("made by hand")) is None
    assert transient(sqlite3.IntegrityError()) is None


@pytest.mark.parametrize(
    "kind", [errors.Rejected, errors.CircuitOpen, errors.BulkheadFull, errors.RateLimited]
)
def test_rejections_have_their_hint(kind: type[errors.Rejected]) -> None:
    expected = Verdict.retry(kind=Kind.throttled, sent=False, reason="rejected")
    assert transient(kind("closed")) == expected
    hinted = transient(kind("closed", retry_after=2.5))
    assert hinted == Verdict.retry(kind=Kind.throttled, after=2.5, sent=False, reason="rejected")
    assert transient(kind("closed", retry_after=nan)) == expected
    for_ever = transient(kind("closed", retry_after=inf))
    assert for_ever is not None
    assert for_ever.after == 1e300


RESET, REFUSED, BAD = ConnectionResetError(), ConnectionRefusedError(), ValueError("bad")


def rejected(seconds: float | None) -> errors.Rejected:
    return errors.Rejected("closed", retry_after=seconds)


def group(*members: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", members)


@pytest.mark.parametrize(
    ("error", "kind", "sent", "after"),
    [
        (group(RESET), Kind.network, None, None),
        (group(RESET, REFUSED), Kind.network, None, None),
        (group(REFUSED, REFUSED), Kind.network, False, None),
        (group(RESET, TimeoutError()), Kind.unknown, None, None),
        (group(RESET, group(REFUSED, group(RESET))), Kind.network, None, None),
        (group(rejected(2), rejected(None), rejected(5)), Kind.throttled, False, 5),
        (group(RESET, group(rejected(3), rejected(0))), Kind.unknown, None, 3),
    ],
)
def test_a_group_of_transient_errors_is_transient(
    error: Exception, kind: Kind, sent: bool | None, after: float | None
) -> None:
    """The longest hint counts; it is unsent only if all members are."""
    assert transient(error) == Verdict.retry(kind=kind, after=after, sent=sent, reason="group")


@pytest.mark.parametrize("error", [group(BAD), group(RESET, BAD), group(RESET, group(RESET, group(BAD)))])
def test_a_group_with_one_other_error_is_not_transient(error: Exception) -> None:
    assert transient(error) is None


def test_transient_is_the_default_and_works_in_lists() -> None:
    assert Retry().on is transient
    calls: list[int] = []

    def operation() -> str:
        calls.append(1)
        raise ConnectionResetError if len(calls) == 1 else KeyError if len(calls) == 2 else BAD

    with pytest.raises(ValueError, match="bad"):
        Retry(on=[transient, KeyError], backoff=[0, 0, 0]).call(operation)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (None, Kind.unknown),
        (TimeoutError, Kind.timeout),
        (errors.AttemptTimeout, Kind.timeout),
        (ConnectionRefusedError, Kind.network),
        (errors.BulkheadFull, Kind.throttled),
        (ValueError, Kind.unknown),
    ],
)
def test_kind_of_a_type(error: type[Exception] | None, kind: Kind) -> None:
    assert kind_of(error) is kind


def test_all_timeout_errors_are_one_class() -> None:
    assert TimeoutError is asyncio.TimeoutError is concurrent.futures.TimeoutError is socket.timeout


def test_transient_imports_no_library() -> None:
    script = (
        "import sys, redouble\n"
        "assert redouble.transient(OSError()) is None\n"
        "assert redouble.transient(ValueError()) is None\n"
        "assert redouble.transient(ConnectionError()) is not None\n"
        "print(*sorted({'socket', 'ssl', 'http', 'sqlite3', 'asyncio', 'trio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("platform", ["linux", "freebsd14", "darwin", "win32"])
def test_no_such_name_is_final_only_where_the_resolver_knows(
    platform: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MacOS and Windows report the same number while the network is down."""
    monkeypatch.setattr(sys, "platform", platform)
    unknown = UNSENT if platform in ("darwin", "win32") else None
    assert transient(socket.gaierror(socket.EAI_NONAME, "no such host")) == unknown
    assert transient(socket.gaierror(socket.EAI_AGAIN, "try again")) == UNSENT
    assert transient(socket.gaierror(socket.EAI_FAMILY, "no such family")) is None
