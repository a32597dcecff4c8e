"""`transient`: errors of brokers, clouds, search engines and streams, by fake classes of the same name.

The real ones are tested in tests/libraries.
"""

from __future__ import annotations

import http.client
import smtplib
import ssl
from types import SimpleNamespace as Thing
from typing import Any

import pytest

from redouble import Kind, Verdict, transient
from tests.support.failures.library_errors import class_named, error_named

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NOT_PROCESSED = Verdict.retry(kind=Kind.network, sent=False, reason="not_processed")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout")
READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")
CONNECT_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_connect")
BUSY = Verdict.retry(kind=Kind.server, reason="busy")
ANSWERED = Verdict.retry(kind=Kind.server, sent=True, reason="busy")
RATE_LIMIT = Verdict.retry(kind=Kind.throttled, sent=True, reason="rate_limit")
LIMITED_HERE = Verdict.retry(kind=Kind.throttled, sent=False, reason="rate_limit")
HTTP_5XX = Verdict.retry(kind=Kind.server, sent=True, reason="http_5xx")
CONFLICT = Verdict.retry(kind=Kind.server, sent=True, reason="conflict")


def after(verdict: Verdict, seconds: float) -> Verdict:
    return Verdict.retry(kind=verdict.kind, after=seconds, sent=verdict.sent, reason=verdict.reason)


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def child(name: str, parent: str, *args: object, **attributes: object) -> Exception:
    return error_named(name, *args, base=class_named(parent), **attributes)


# ---------------------------------------------------------------------- the standard library


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (smtplib.SMTPResponseException(421, "closing"), ANSWERED),
        (smtplib.SMTPDataError(450, "mailbox busy"), ANSWERED),
        (smtplib.SMTPSenderRefused(451, b"error in processing", "a@b.test"), ANSWERED),
        (smtplib.SMTPDataError(452, "no storage"), ANSWERED),
        (smtplib.SMTPConnectError(421, "too many connections"), ANSWERED),
        (smtplib.SMTPHeloError(421, "try again"), ANSWERED),
        (smtplib.SMTPAuthenticationError(454, "temporary failure"), ANSWERED),
        (smtplib.SMTPAuthenticationError(535, "bad password"), None),
        (smtplib.SMTPDataError(550, "no such mailbox"), None),
        (smtplib.SMTPDataError(554, "spam"), None),
        (
            smtplib.SMTPRecipientsRefused({"a": (450, b"greylisted"), "b": (451, b"x")}),
            ANSWERED,
        ),
        (smtplib.SMTPRecipientsRefused({"a": (450, b"greylisted"), "b": (550, b"no")}), None),
        (smtplib.SMTPRecipientsRefused({}), None),
        (smtplib.SMTPNotSupportedError(), None),
        (smtplib.SMTPException(), None),
        (http.client.BadStatusLine("garbage"), NETWORK),
        (http.client.RemoteDisconnected("gone"), NETWORK),
        (http.client.IncompleteRead(b"half"), NETWORK),
        (http.client.LineTooLong("header line"), None),
        (http.client.CannotSendRequest(), None),
    ],
    ids=repr,
)
def test_mail_and_http(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


# ------------------------------------------------------------- streams, HTTP/1 and WebSocket


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("anyio.BrokenResourceError", NETWORK),
        ("anyio.IncompleteRead", NETWORK),
        ("anyio.ClosedResourceError", None),
        ("anyio.EndOfStream", None),
        ("anyio.BusyResourceError", None),
        ("trio.BrokenResourceError", NETWORK),
        ("trio.TooSlowError", TIMEOUT),
        ("trio.ClosedResourceError", None),
        ("trio.EndOfChannel", None),
        ("h11._util.RemoteProtocolError", NETWORK),
        ("h11._util.LocalProtocolError", None),
        ("httpcore.ReadError", None),  # without its parent
        ("httpcore.NetworkError", NETWORK),
        ("httpcore.ConnectTimeout", CONNECT_TIMEOUT),
        ("httpcore2.ReadTimeout", READ_TIMEOUT),
        ("httpcore.RemoteProtocolError", NETWORK),
        ("httpcore.LocalProtocolError", None),
        ("httpcore.ConnectError", UNSENT),
    ],
)
def test_errors_of_streams(name: str, expected: Verdict | None) -> None:
    assert transient(error_named(name, "so it is")) == expected


def test_failed_connections_of_anyio_and_trio() -> None:
    refused = ConnectionRefusedError(111, "refused")
    several = ExceptionGroup("all", [refused, refused])
    unix = error_named("anyio.ConnectionFailed", "error connecting to '/tmp/x'", base=OSError)
    assert transient(caused(unix, refused)) == UNSENT
    tcp = caused(OSError("all attempts to connect to localhost:1 failed"), several)
    assert transient(tcp) == Verdict.retry(kind=Kind.network, sent=False, reason="group")
    denied = caused(OSError("all attempts to connect to localhost:1 failed"), PermissionError(13, "no"))
    assert transient(denied) is None


@pytest.mark.parametrize("library", ["anyio", "trio"])
def test_a_stream_that_broke_in_its_tls_handshake(library: str) -> None:
    """Trio reports every failure of TLS as a broken stream."""
    broken = f"{library}.BrokenResourceError"
    bad = ssl.SSLCertVerificationError(1, "certificate verify failed")
    assert transient(caused(error_named(broken), bad)) is None
    assert transient(caused(error_named(broken), ssl.SSLEOFError(8, "cut"))) == NETWORK
    assert transient(caused(error_named(broken), OSError("gone"))) == NETWORK


def closed(code: int | None) -> Exception:
    received = None if code is None else Thing(code=code, reason="")
    name, parent = "websockets.exceptions.ConnectionClosedError", "websockets.exceptions.ConnectionClosed"
    return child(name, parent, rcvd=received, sent=None)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (closed(None), NETWORK),
        (closed(1001), NETWORK),
        (closed(1006), NETWORK),
        (closed(1012), NETWORK),
        (closed(1013), BUSY),
        (closed(1014), BUSY),
        (closed(1000), None),
        (closed(1002), None),
        (closed(1008), None),
        (closed(1011), None),
        (closed(4000), None),
        (
            error_named(
                "websockets.exceptions.InvalidStatus",
                response=Thing(status_code=503, headers={"Retry-After": "7"}),
            ),
            after(HTTP_5XX, 7),
        ),
        (
            error_named("websockets.exceptions.InvalidStatus", response=Thing(status_code=401, headers={})),
            None,
        ),
        (
            error_named(
                "websockets.exceptions.InvalidProxyStatus", response=Thing(status_code=502, headers={})
            ),
            Verdict.retry(kind=Kind.server, sent=False, reason="http_5xx"),
        ),
        (
            error_named("websockets.legacy.exceptions.InvalidStatusCode", status_code=503, headers={}),
            HTTP_5XX,
        ),
        (caused(error_named("websockets.exceptions.InvalidMessage"), EOFError("closed")), NETWORK),
        (caused(error_named("websockets.exceptions.InvalidMessage"), ValueError("no HTTP")), None),
        (error_named("websockets.exceptions.InvalidUpgrade"), None),
    ],
)
def test_websockets(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


# --------------------------------------------------------------------------------- HTTP/2


def h2_event(name: str, **attributes: object) -> object:
    event: Any = type(name, (), {"__module__": "h2.events"})()
    event.__dict__ = attributes
    return event


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (h2_event("StreamReset", error_code=7, stream_id=1), NOT_PROCESSED),
        (h2_event("StreamReset", error_code=2, stream_id=1), NETWORK),
        (h2_event("StreamReset", error_code=8, stream_id=1), NETWORK),
        (h2_event("ConnectionTerminated", error_code=0, last_stream_id=0), NOT_PROCESSED),
        (h2_event("ConnectionTerminated", error_code=11, last_stream_id=0), NOT_PROCESSED),
        (h2_event("ConnectionTerminated", error_code=0, last_stream_id=1), NETWORK),
        (h2_event("ConnectionTerminated", error_code=0, last_stream_id=None), NETWORK),
        ("Server disconnected", NETWORK),
    ],
)
@pytest.mark.parametrize("version", ["", "2"])
def test_a_request_that_an_http2_server_refused_was_not_processed(
    version: str, event: object, expected: Verdict
) -> None:
    inner = error_named(f"httpcore{version}.RemoteProtocolError", event)
    assert transient(inner) == expected
    assert (
        transient(caused(error_named(f"httpx{version}.RemoteProtocolError", str(event)), inner)) == expected
    )


# --------------------------------------------------------------------------------- Google

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"


def rpc_error(code: str, details: str = "so it is", **metadata: str) -> Exception:
    return error_named(
        "grpc.RpcError",
        code=lambda: Thing(name=code),
        details=lambda: details,
        trailing_metadata=lambda: tuple((name.replace("_", "-"), value) for name, value in metadata.items()),
    )


def from_rpc(inside: Any, *details: object) -> Exception:
    return error_named(
        "google.api_core.exceptions.GoogleAPICallError",
        code=None,
        grpc_status_code=inside.code(),
        response=inside,
        details=list(details),
        errors=[inside],
    )


def from_http(status: int, *details: object, reason: str = "", **headers: str) -> Exception:
    return error_named(
        "google.api_core.exceptions.GoogleAPICallError",
        code=status,
        grpc_status_code=Thing(name="UNAVAILABLE"),  # the class has one, although there was no gRPC
        response=Thing(headers={name.replace("_", "-"): value for name, value in headers.items()}),
        details=list(details),
        errors=[{"reason": reason}] if reason else [],
    )


def retry_info(seconds: int, nanos: int) -> object:
    return type("RetryInfo", (), {"retry_delay": Thing(seconds=seconds, nanos=nanos)})()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (from_rpc(rpc_error("UNAVAILABLE")), Verdict.retry(kind=Kind.server, reason="unavailable")),
        (from_rpc(rpc_error("UNAVAILABLE", "failed to connect to all addresses; so it is")), UNSENT),
        (from_rpc(rpc_error("UNAVAILABLE", "DNS resolution failed for nowhere.invalid")), UNSENT),
        (
            from_rpc(rpc_error("RESOURCE_EXHAUSTED"), object(), retry_info(0, 700_000_000)),
            after(RATE_LIMIT, 0.7),
        ),
        (
            from_rpc(rpc_error("ABORTED", grpc_retry_pushback_ms="50"), retry_info(9, 0)),
            after(CONFLICT, 0.05),
        ),
        (from_rpc(rpc_error("ABORTED", grpc_retry_pushback_ms="-1"), retry_info(9, 0)), None),
        (from_rpc(rpc_error("INTERNAL")), None),
        (from_rpc(rpc_error("PERMISSION_DENIED")), None),
        (from_http(429), RATE_LIMIT),
        (from_http(429, {"@type": RETRY_INFO, "retryDelay": "0.7s"}), after(RATE_LIMIT, 0.7)),
        (from_http(429, {"@type": RETRY_INFO, "retryDelay": "soon"}), RATE_LIMIT),
        (from_http(429, {"@type": "other"}, Retry_After="7"), after(RATE_LIMIT, 7)),
        (from_http(503, {"@type": RETRY_INFO, "retryDelay": "2s"}, Retry_After="7"), after(HTTP_5XX, 7)),
        (from_http(500), HTTP_5XX),
        (from_http(403, reason="rateLimitExceeded"), RATE_LIMIT),
        (from_http(403, reason="userRateLimitExceeded"), RATE_LIMIT),
        (from_http(403, reason="dailyLimitExceeded"), None),
        (from_http(403), None),
        (from_http(404), None),
        (error_named("google.api_core.exceptions.RetryError", "gave up"), None),
        (caused(error_named("google.auth.exceptions.TransportError"), ConnectionRefusedError()), UNSENT),
        (error_named("google.auth.exceptions.TransportError", "gone"), NETWORK),
        (error_named("google.auth.exceptions.TimeoutError"), TIMEOUT),
        (error_named("google.auth.exceptions.GoogleAuthError", retryable=True), BUSY),
        (error_named("google.auth.exceptions.GoogleAuthError", retryable=False), None),
    ],
)
def test_google(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def test_a_google_error_of_a_status_alone() -> None:
    """`from_grpc_status` makes one without a call."""
    name = "google.api_core.exceptions.GoogleAPICallError"
    aborted, internal = Thing(name="ABORTED"), Thing(name="INTERNAL")
    assert (
        transient(error_named(name, code=500, grpc_status_code=internal, response=None, details=[])) is None
    )
    assert (
        transient(error_named(name, code=409, grpc_status_code=aborted, response=None, details=[]))
        == CONFLICT
    )
    assert (
        transient(error_named(name, code=429, grpc_status_code=None, response=None, details=[])) == RATE_LIMIT
    )
    assert transient(error_named(name, code=None, grpc_status_code=None, response=None, details=[])) is None


# ---------------------------------------------------------------- Azure, Elastic, OpenSearch


def azure(
    name: str, parent: str = "AzureError", inner: Exception | None = None, **attributes: object
) -> Exception:
    text = "" if inner is None else str(inner)
    return child(
        f"azure.core.exceptions.{name}",
        f"azure.core.exceptions.{parent}",
        text,
        inner_exception=inner,
        **attributes,
    )


def azure_response(status: int, **headers: str) -> Exception:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return azure("HttpResponseError", status_code=status, response=Thing(status_code=status, headers=headers))


CUT = error_named("requests.exceptions.ConnectionError", error_named("urllib3.exceptions.ProtocolError"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (azure("ServiceRequestError", inner=ConnectionRefusedError()), UNSENT),
        (
            azure("ServiceRequestError", inner=CUT),
            NETWORK,
        ),  # azure calls it unsent, but it may have been sent
        (azure("ServiceRequestError", inner=error_named("requests.exceptions.InvalidURL")), None),
        (azure("ServiceRequestError"), NETWORK),
        (azure("ServiceRequestTimeoutError", "ServiceRequestError"), CONNECT_TIMEOUT),
        (azure("ServiceResponseTimeoutError", "ServiceResponseError"), READ_TIMEOUT),
        (azure("ServiceResponseError", inner=ConnectionResetError()), NETWORK),
        (azure("IncompleteReadError", "HttpResponseError"), NETWORK),
        (azure("DecodeError", "HttpResponseError", status_code=503, response=None), None),
        (azure("HttpResponseError", inner=CUT, status_code=None, response=None), NETWORK),
        (azure_response(429, Retry_After="7"), after(RATE_LIMIT, 7)),
        (azure_response(429, retry_after_ms="1500", Retry_After="7"), after(RATE_LIMIT, 1.5)),
        (azure_response(503, x_ms_retry_after_ms="250"), after(HTTP_5XX, 0.25)),
        (azure_response(500), HTTP_5XX),
        (azure_response(401), None),
        (azure_response(409), None),
    ],
)
def test_azure(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def elastic(name: str, cause: Exception | None = None, errors: object = (), meta: object = None) -> Exception:
    error = error_named(f"elastic_transport.{name}", "so it is", errors=errors, meta=meta)
    return error if cause is None else caused(error, cause)


def elastic_status(status: int, **headers: str) -> Exception:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return elastic("ApiError", meta=Thing(status=status, headers=headers))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (elastic("ConnectionError", ConnectionRefusedError(111, "refused")), UNSENT),
        (elastic("ConnectionError", errors=(ConnectionRefusedError(), ValueError())), UNSENT),
        (elastic("ConnectionError", errors=[1]), NETWORK),
        (elastic("ConnectionError"), NETWORK),
        (elastic("ConnectionError", ValueError()), None),
        (elastic("TlsError", ValueError()), None),
        (elastic("TlsError"), None),
        (elastic("ConnectionTimeout"), TIMEOUT),
        (elastic("ConnectionTimeout", error_named("urllib3.exceptions.ReadTimeoutError")), READ_TIMEOUT),
        (elastic_status(429, Retry_After="7"), after(RATE_LIMIT, 7)),
        (elastic_status(503), HTTP_5XX),
        (elastic_status(409), None),
        (elastic_status(500), None),
        (error_named("elasticsearch.helpers.BulkIndexError"), None),
    ],
)
def test_elasticsearch(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def opensearch(name: str, status: object, info: object = None) -> Exception:
    name, parent = f"opensearchpy.exceptions.{name}", "opensearchpy.exceptions.TransportError"
    base = class_named(parent)
    error = (base if name == parent else class_named(name, base))(status, "so it is", info)
    vars(error).update(status_code=status, info=info)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (opensearch("ConnectionError", "N/A", ConnectionRefusedError()), UNSENT),
        (opensearch("ConnectionError", "N/A"), NETWORK),
        (opensearch("SSLError", "N/A", ValueError()), None),
        (
            opensearch("ConnectionTimeout", "TIMEOUT", error_named("urllib3.exceptions.ReadTimeoutError")),
            READ_TIMEOUT,
        ),
        (opensearch("ConnectionTimeout", "TIMEOUT"), TIMEOUT),
        (opensearch("TransportError", 429), RATE_LIMIT),
        (opensearch("TransportError", 503, {"error": "x"}), HTTP_5XX),
        (opensearch("ConflictError", 409), None),
        (opensearch("TransportError", 500), None),
    ],
)
def test_opensearch(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


# ------------------------------------------------------------------------------------ pika


def pika(name: str, *args: object, parent: str = "AMQPConnectionError", reply_code: int = 0) -> Exception:
    if name == parent:
        return error_named(f"pika.exceptions.{name}", *args)
    return child(f"pika.exceptions.{name}", f"pika.exceptions.{parent}", *args, reply_code=reply_code)


def phase(inner: BaseException) -> Exception:
    module = "pika.adapters.utils.connection_workflow"
    return child(
        f"{module}.AMQPConnectorSocketConnectError", f"{module}.AMQPConnectorPhaseErrorBase", exception=inner
    )


def workflow(*inner: Exception) -> Exception:
    return error_named(
        "pika.adapters.utils.connection_workflow.AMQPConnectionWorkflowFailed", exceptions=inner
    )


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (pika("AMQPConnectionError", phase(ConnectionRefusedError())), UNSENT),
        (pika("AMQPConnectionError", phase(PermissionError(13, "no"))), None),
        (pika("AMQPConnectionError", workflow(ValueError(), phase(ConnectionRefusedError()))), UNSENT),
        (pika("AMQPConnectionError"), NETWORK),
        (error_named("pika.adapters.utils.connection_workflow.AMQPConnectorStackTimeout"), CONNECT_TIMEOUT),
        (pika("StreamLostError"), NETWORK),
        (pika("AMQPHeartbeatTimeout"), NETWORK),
        (pika("ConnectionBlockedTimeout"), BUSY),
        (pika("ConnectionClosedByBroker", parent="ConnectionClosed", reply_code=320), NETWORK),
        (pika("ConnectionClosedByBroker", parent="ConnectionClosed", reply_code=530), None),
        (pika("ConnectionClosedByClient", parent="ConnectionClosed", reply_code=320), None),
        (pika("ConnectionWrongStateError", "Connection is closed."), None),
        (pika("ProbableAuthenticationError"), None),
        (pika("IncompatibleProtocolError", "StreamLostError: ('Transport indicated EOF',)"), UNSENT),
        (pika("IncompatibleProtocolError", "The protocol returned by the server is not supported"), None),
        (pika("NackError", [], parent="AMQPChannelError"), ANSWERED),
        (pika("UnroutableError", [], parent="AMQPChannelError"), None),
        (pika("ChannelClosedByBroker", 404, "NOT_FOUND", parent="AMQPChannelError"), None),
    ],
)
def test_pika(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


# --------------------------------------------------------------------------------- litellm


def litellm(name: str, parent: str, **attributes: object) -> Exception:
    """Return an error of LiteLLM, whose classes inherit from those of openai."""
    base = class_named(f"openai.{parent}", class_named("openai.APIError"))
    return error_named(f"litellm.exceptions.{name}", "so it is", base=base, **attributes)


def response(**headers: str) -> object:
    return Thing(headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            litellm("RateLimitError", "RateLimitError", status_code=429, response=response(Retry_After="7")),
            after(RATE_LIMIT, 7),
        ),
        (
            litellm("ServiceUnavailableError", "APIStatusError", status_code=503, response=response()),
            HTTP_5XX,
        ),
        (
            litellm("InternalServerError", "InternalServerError", status_code=500, response=response()),
            HTTP_5XX,
        ),
        (
            litellm(
                "RateLimitError",
                "RateLimitError",
                status_code=429,
                response=response(),
                litellm_response_headers={"retry-after": "3"},
            ),
            after(RATE_LIMIT, 3),
        ),
        (litellm("Timeout", "APITimeoutError", status_code=408), TIMEOUT),
        (litellm("APIConnectionError", "APIConnectionError", status_code=500), NETWORK),
        (litellm("AuthenticationError", "AuthenticationError", status_code=401, response=response()), None),
        (
            litellm("ContextWindowExceededError", "BadRequestError", status_code=400, response=response()),
            None,
        ),
        (error_named("litellm.exceptions.BudgetExceededError", "spent"), None),
        (
            error_named("litellm.types.router.RouterRateLimitError", base=ValueError, cooldown_time=4.5),
            after(LIMITED_HERE, 4.5),
        ),
        (error_named("litellm.types.router.RouterRateLimitErrorBasic", base=ValueError), LIMITED_HERE),
    ],
)
def test_litellm(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected
