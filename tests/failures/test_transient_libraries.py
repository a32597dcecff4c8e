"""`transient`: errors of libraries, by fake classes of the same name.

The real ones are tested in tests/libraries, in an environment where the libraries are installed.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Kind, Verdict, transient
from tests.support.failures.library_errors import class_named, error_named
from tests.support.grpc.statuses import DETAILS
from tests.support.grpc.statuses import after as delay

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
CONNECT_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_connect")
BUSY = Verdict.retry(kind=Kind.server, reason="busy")
ANSWERED = Verdict.retry(kind=Kind.server, sent=True, reason="busy")
RATE_LIMIT = Verdict.retry(kind=Kind.throttled, sent=True, reason="rate_limit")
HTTP_5XX = Verdict.retry(kind=Kind.server, sent=True, reason="http_5xx")
CONFLICT = Verdict.retry(kind=Kind.server, sent=True, reason="conflict")
FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="too_many_connections")


class Thing:
    """An object with these attributes, such as a response."""

    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def after(verdict: Verdict, seconds: float) -> Verdict:
    return Verdict.retry(kind=verdict.kind, after=seconds, sent=verdict.sent, reason=verdict.reason)


# ------------------------------------------------------------------------------ statuses


def httpx_error(status: object, **headers: str) -> Exception:
    return error_named("httpx.HTTPStatusError", response=Thing(status_code=status, headers=headers))


def aiohttp_error(status: object, **headers: str) -> Exception:
    name = "aiohttp.client_exceptions.ClientResponseError"
    return error_named(name, status=status, headers=headers or None)


@pytest.mark.parametrize("made", [httpx_error, aiohttp_error])
def test_errors_by_http_status(made: Callable[..., Exception]) -> None:
    assert transient(made(429, **{"retry-after": "3"})) == after(RATE_LIMIT, 3)
    assert transient(made(429, **{"retry-after": "9" * 400})) == RATE_LIMIT
    assert transient(made(408)) == Verdict.retry(kind=Kind.timeout, sent=True, reason="timeout")
    assert transient(made(425)) == Verdict.retry(kind=Kind.server, sent=True, reason="too_early")
    assert transient(made(529)) == Verdict.retry(kind=Kind.throttled, sent=True, reason="overloaded")
    for status in (502, 503, 504, 520, 521, 522, 523, 524):
        assert transient(made(status)) == HTTP_5XX
    for status in (200, 301, 400, 401, 403, 404, 409, 413, 422, 500, 501, 505, 525, 530):
        assert transient(made(status)) is None, status
    for odd in (None, "503", 503.5, {"status": 503}):
        assert transient(made(odd)) is None, odd


class Falsy(Thing):
    """A falsy response: error responses of requests are."""

    def __bool__(self) -> bool:
        return False


def test_a_falsy_response_is_read() -> None:
    answer = Falsy(status_code=503, headers={"Retry-After": "1"})
    assert transient(error_named("requests.exceptions.HTTPError", response=answer)) == after(HTTP_5XX, 1)
    assert transient(error_named("requests.exceptions.HTTPError", response=None)) is None


def test_an_error_status_of_a_proxy_is_unsent() -> None:
    name = "aiohttp.client_exceptions.ClientHttpProxyError"
    found = transient(error_named(name, status=503, headers={"retry-after": "4"}))
    assert found == Verdict.retry(kind=Kind.server, after=4, sent=False, reason="http_5xx")
    assert transient(error_named(name, status=407, headers={})) is None


# -------------------------------------------------------------------- original errors

REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
AGAIN = socket.gaierror(socket.EAI_AGAIN, "try again")
NO_HOST = socket.gaierror(socket.EAI_NONAME, "no such host")
BAD_CERTIFICATE = ssl.SSLCertVerificationError(1, "certificate verify failed")
CUT_TLS = ssl.SSLEOFError(8, "cut")

CONNECTING = [
    (REFUSED, UNSENT),
    (AGAIN, UNSENT),
    (CUT_TLS, UNSENT),
    (TimeoutError(errno.ETIMEDOUT, "timed out"), CONNECT_TIMEOUT),
    (NO_HOST, None),
    (BAD_CERTIFICATE, None),
    (PermissionError(errno.EACCES, "not yours"), None),
    (OSError("all attempts failed"), UNSENT),
    (ValueError("odd"), UNSENT),
]


@pytest.mark.parametrize(("cause", "expected"), CONNECTING, ids=repr)
def test_connection_errors_are_unsent(cause: Exception, expected: Verdict | None) -> None:
    """Some of their causes are permanent."""
    inner = error_named("httpcore.ConnectError", cause)
    assert transient(caused(error_named("httpx.ConnectError", "no"), inner)) == expected
    assert transient(caused(error_named("httpx2.ConnectError", "no"), inner)) == expected
    assert transient(caused(error_named("urllib3.exceptions.NewConnectionError", "no"), cause)) == expected
    aiohttp = error_named("aiohttp.client_exceptions.ClientConnectorError", "key", cause)
    assert transient(aiohttp) == expected
    botocore = error_named(
        "botocore.exceptions.EndpointConnectionError", kwargs={"error": caused(inner, cause)}
    )
    assert transient(botocore) == expected
    assert transient(error_named("httpx.ConnectError")) == UNSENT


def test_the_context_of_an_error_is_ignored() -> None:
    """An unknown host was being handled when the connection was refused: that context is not the cause."""
    error = error_named("httpx.ConnectError", "refused")
    error.__context__ = NO_HOST
    assert transient(error) == UNSENT


def test_errors_that_contain_another_error() -> None:
    refused = caused(error_named("urllib3.exceptions.NewConnectionError", "no"), REFUSED)
    gave_up = error_named("urllib3.exceptions.MaxRetryError", "too often", reason=refused)
    assert transient(gave_up) == UNSENT
    assert transient(error_named("requests.exceptions.ConnectionError", gave_up, base=OSError)) == UNSENT
    assert transient(error_named("requests.exceptions.ConnectionError", "gone", base=OSError)) == NETWORK
    too_many = error_named("urllib3.exceptions.ResponseError", "too many 503 error responses")
    gave_up = error_named("urllib3.exceptions.MaxRetryError", "too often", reason=too_many)
    assert transient(gave_up) is None
    assert transient(error_named("requests.exceptions.ConnectionError", gave_up, base=OSError)) is None
    assert transient(error_named("urllib3.exceptions.ProxyError", "no", original_error=REFUSED)) == UNSENT
    tunnel = OSError("Tunnel connection failed: 407 Proxy Authentication Required")
    assert transient(error_named("urllib3.exceptions.ProxyError", "no", original_error=tunnel)) is None
    assert transient(error_named("urllib3.exceptions.SSLError", BAD_CERTIFICATE)) is None
    assert transient(error_named("urllib3.exceptions.SSLError", CUT_TLS)) == NETWORK
    assert transient(error_named("requests.exceptions.SSLError", CUT_TLS, base=OSError)) == NETWORK
    assert (
        transient(error_named("botocore.exceptions.HTTPClientError", kwargs={"error": TimeoutError()}))
        == TIMEOUT
    )
    assert transient(error_named("botocore.exceptions.HTTPClientError", kwargs={"error": KeyError()})) is None


@pytest.mark.parametrize("library", ["openai", "anthropic"])
def test_connection_errors_of_language_models(library: str) -> None:
    connection, timeout = f"{library}.APIConnectionError", f"{library}.APITimeoutError"
    read = error_named("httpx2.ReadTimeout")
    assert transient(caused(error_named(connection, "no"), error_named("httpx.ConnectError"))) == UNSENT
    assert transient(caused(error_named(connection, "no"), error_named("httpx.LocalProtocolError"))) is None
    assert transient(error_named(connection, "no")) == NETWORK
    assert transient(caused(error_named(timeout, "slow"), read)) == transient(read)
    assert transient(caused(error_named(timeout, "slow"), ValueError())) == TIMEOUT
    assert transient(error_named(timeout, "slow")) == TIMEOUT


def test_a_cycle_of_errors_ends() -> None:
    one, other = error_named("urllib3.exceptions.MaxRetryError"), error_named("urllib3.exceptions.ProxyError")
    one.reason, other.original_error = other, one  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert transient(one) is None
    cyclic = error_named("sqlalchemy.exc.DBAPIError")
    cyclic = error_named("sqlalchemy.exc.StatementError", orig=cyclic)
    cyclic.orig = cyclic  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert transient(cyclic) is None
    connecting = error_named("httpx.ConnectError")
    connecting.__cause__ = connecting
    assert transient(connecting) == UNSENT


def test_an_inner_base_exception_is_not_transient() -> None:
    assert transient(error_named("sqlalchemy.exc.DBAPIError", orig=KeyboardInterrupt())) is None


# ------------------------------------------------------------------------- OSErrors


def test_an_error_of_sending_by_errno() -> None:
    name = "aiohttp.client_exceptions.ClientOSError"
    assert transient(error_named(name, errno.EPIPE, "broken pipe", base=OSError)) == NETWORK
    assert transient(error_named(name, errno.ENOENT, "a file that was to be sent", base=OSError)) is None
    assert transient(error_named(name, base=OSError)) == NETWORK


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] a, [Errno {errno.ECONNREFUSED}] b", UNSENT),
        (f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] a, [Errno {errno.ENETUNREACH}] b", UNSENT),
        (f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] a, [Errno {errno.EACCES}] b", None),
        ("Multiple exceptions: unknown", None),
        ("All connection attempts failed", None),
    ],
)
def test_errors_of_several_addresses(text: str, expected: Verdict | None) -> None:
    """Of asyncio only their texts are left; AnyIO keeps the errors."""
    assert transient(OSError(text)) == expected


def test_errors_of_several_addresses_of_anyio() -> None:
    error = OSError("All connection attempts failed")
    assert transient(caused(error, ExceptionGroup("all", [REFUSED, REFUSED]))) is not None
    assert transient(caused(error, ExceptionGroup("all", [REFUSED, PermissionError(13, "no")]))) is None


# --------------------------------------------------------------------- language models


@pytest.mark.parametrize(
    ("status", "headers", "words", "expected"),
    [
        (429, {"retry-after": "2"}, {}, after(RATE_LIMIT, 2)),
        (500, {}, {}, HTTP_5XX),
        (409, {}, {}, CONFLICT),
        (501, {}, {}, None),
        (401, {}, {}, None),
        (429, {}, {"code": "insufficient_quota"}, None),
        (429, {}, {"type": "billing_error"}, None),
        (503, {"x-should-retry": "false"}, {}, None),
        (400, {"x-should-retry": "true", "retry-after-ms": "50"}, {}, after(ANSWERED, 0.05)),
        (400, {"x-should-retry": "perhaps"}, {}, None),
        (200, {}, {"type": "overloaded_error"}, Verdict("retry", Kind.throttled, None, True, "overloaded")),
        (200, {}, {"code": "server_error"}, HTTP_5XX),
        (401, {}, {"type": "server_error"}, None),  # a gateway's error code does not change the status
        (404, {}, {"type": "overloaded_error"}, None),
        (200, {}, {"type": "invalid_request_error"}, None),
    ],
)
@pytest.mark.parametrize("library", ["openai", "anthropic"])
def test_errors_of_language_models(
    library: str, status: int, headers: dict[str, str], words: dict[str, Any], expected: Verdict | None
) -> None:
    error = error_named(f"{library}.APIError", status_code=status, response=Thing(headers=headers), **words)
    assert transient(error) == expected


# ---------------------------------------------------------------------------- databases


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("connection to server at x failed: Connection refused", UNSENT),
        ("connection failed: timeout expired", CONNECT_TIMEOUT),
        ("server closed the connection unexpectedly", NETWORK),
        ("FATAL: sorry, too many clients already", FULL),
        ("FATAL: password authentication failed", None),
        ("one: Connection refused\ntwo: FATAL: password authentication failed", None),
        ("the connection is closed", None),
        ("", None),
    ],
)
def test_texts_of_libpq(text: str, expected: Verdict | None) -> None:
    for name in ("psycopg.OperationalError", "psycopg2.OperationalError"):
        assert transient(error_named(name, text)) == expected


@pytest.mark.parametrize(("code", "expected"), [("40001", CONFLICT), ("53300", FULL), ("42601", None)])
def test_sqlstates(code: str, expected: Verdict | None) -> None:
    for error in (
        error_named("psycopg.OperationalError", "Connection refused", sqlstate=code),
        error_named("psycopg2.OperationalError", "Connection refused", pgcode=code),
        error_named("psycopg.InternalError", base=class_named("psycopg.Error"), sqlstate=code),
        error_named("asyncpg.exceptions._base.PostgresError", sqlstate=code),
        error_named("sqlalchemy.dialects.postgresql.asyncpg.AsyncAdapt_asyncpg_dbapi.Error", sqlstate=code),
    ):
        assert transient(error) == expected
        assert transient(error_named("sqlalchemy.exc.StatementError", orig=error)) == expected
    assert transient(error_named("psycopg.Error")) is None


def test_mysql() -> None:
    for name in ("pymysql.err.MySQLError", "MySQLdb._exceptions.MySQLError"):
        assert transient(error_named(name, 1213, "Deadlock found")) == CONFLICT
        assert transient(error_named(name, 2013, "Lost connection")) == NETWORK
        assert transient(error_named(name, 1045, "Access denied")) is None
        assert transient(error_named(name)) is None


def test_sqlalchemy_invalidated_connections() -> None:
    name = "sqlalchemy.exc.StatementError"
    assert transient(error_named(name, orig=ValueError(), connection_invalidated=True)) == NETWORK
    assert transient(error_named(name, orig=REFUSED, connection_invalidated=True)) == UNSENT
    assert transient(error_named(name, orig=ValueError(), connection_invalidated=False)) is None
    assert transient(error_named(name, orig=None)) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"Error {errno.ECONNREFUSED} connecting to localhost:6379. Connection refused.", UNSENT),
        (f"Error {int(socket.EAI_AGAIN)} connecting to cache:6379. Try again.", UNSENT),
        (f"Error {int(socket.EAI_NONAME)} connecting to cache:6379. Unknown.", None),
        ("Error 1 connecting to localhost:6379. certificate verify failed", None),
        (f"Error {errno.EPIPE} while writing to socket. Broken pipe.", NETWORK),
        ("Connection closed by server.", NETWORK),
        ("max number of clients reached", FULL),
    ],
)
def test_redis(text: str, expected: Verdict | None) -> None:
    connection = class_named("redis.exceptions.ConnectionError")
    assert transient(connection(text)) == expected
    assert transient(class_named("redis.exceptions.AuthenticationError", connection)(text)) is None


def test_redis_timeouts() -> None:
    assert (
        transient(error_named("redis.exceptions.TimeoutError", "Timeout connecting to server"))
        == CONNECT_TIMEOUT
    )
    assert transient(error_named("redis.exceptions.TimeoutError", "Timeout reading from socket")) == TIMEOUT


# ---------------------------------------------------------------------- gRPC, AWS, Kafka


def grpc_error(
    code: str, details: str | None = "so it is", metadata: Any = None, debug: str | None = None
) -> Exception:
    return error_named(
        "grpc.RpcError",
        code=lambda: Thing(name=code),
        details=lambda: details,
        trailing_metadata=lambda: metadata,
        debug_error_string=lambda: debug,
    )


UNAVAILABLE = Verdict.retry(kind=Kind.server, reason="unavailable")
CORE = "Internal error from Core"
NOT_SENT = 'Failed "execute_batch": (<grpc._cython.cygrpc.SendMessageOperation object at 0x7f3f>,)'
NOT_RECEIVED = 'Failed "execute_batch": (<grpc._cython.cygrpc.ReceiveMessageOperation object at 0x7f3f>,)'


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (grpc_error("UNAVAILABLE"), UNAVAILABLE),
        (grpc_error("UNAVAILABLE", "failed to connect to all addresses; last error"), UNSENT),
        (grpc_error("RESOURCE_EXHAUSTED", None), RATE_LIMIT),
        (grpc_error("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)"), None),
        (grpc_error("DEADLINE_EXCEEDED"), TIMEOUT),
        (grpc_error("ABORTED", metadata=(("grpc-retry-pushback-ms", "250"),)), after(CONFLICT, 0.25)),
        (grpc_error("ABORTED", metadata=(("grpc-retry-pushback-ms", "-1"),)), None),
        (grpc_error("ABORTED", metadata=(("grpc-retry-pushback-ms", "soon"),)), None),
        (grpc_error("INTERNAL", metadata=(("grpc-retry-pushback-ms", "250"),)), None),
        (grpc_error("RESOURCE_EXHAUSTED", metadata=(delay(2),)), after(RATE_LIMIT, 2)),
        (grpc_error("RESOURCE_EXHAUSTED", metadata=((DETAILS, b"\xff"),)), RATE_LIMIT),
        (grpc_error("INTERNAL", metadata=(delay(2),)), None),
        (grpc_error("INTERNAL", CORE, debug=NOT_SENT), UNAVAILABLE),
        (grpc_error("INTERNAL", CORE, debug=NOT_RECEIVED), None),
        (grpc_error("INTERNAL", CORE), None),
        (grpc_error("INTERNAL", "so it is", debug=NOT_SENT), None),
        (grpc_error("CANCELLED"), None),
        (error_named("grpc.RpcError"), None),
    ],
)
def test_grpc(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def aws_error(code: str, status: int | None, **headers: str) -> Exception:
    metadata = None if status is None else {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return error_named(
        "botocore.exceptions.ClientError", response={"Error": {"Code": code}, "ResponseMetadata": metadata}
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (aws_error("ThrottlingException", 400), RATE_LIMIT),
        (aws_error("SlowDown", None), RATE_LIMIT),
        (aws_error("Throttling", 400, **{"x-amz-retry-after": "1500"}), after(RATE_LIMIT, 1.5)),
        (aws_error("Whatever", 500), HTTP_5XX),
        (aws_error("Whatever", 429, **{"retry-after": "2"}), after(RATE_LIMIT, 2)),
        (aws_error("AccessDenied", 403), None),
        (aws_error("Whatever", 501), None),
        (error_named("botocore.exceptions.ClientError", response={}), None),
    ],
)
def test_aws(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def test_kafka() -> None:
    for library in ("kafka", "aiokafka"):
        assert transient(error_named(f"{library}.errors.KafkaError", retriable=True)) == BUSY
        assert transient(error_named(f"{library}.errors.KafkaError", retriable=False)) is None
        assert transient(error_named(f"{library}.errors.Cancelled", retriable=True)) is None


def confluent(name: str, *, fatal: bool = False, retriable: bool = False) -> Exception:
    inside = Thing(name=lambda: name, fatal=lambda: fatal, retriable=lambda: retriable)
    return error_named("cimpl.KafkaException", inside)


def test_confluent_kafka() -> None:
    assert transient(confluent("_TRANSPORT")) == NETWORK
    assert transient(confluent("_TRANSPORT", fatal=True)) is None
    assert transient(confluent("WHATEVER", retriable=True)) == BUSY
    assert transient(confluent("WHATEVER")) is None
