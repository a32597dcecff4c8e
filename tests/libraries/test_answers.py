"""Error responses over the wire, through the real clients: statuses, codes and hints."""

from __future__ import annotations

import concurrent.futures
import contextlib
import struct
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from redouble import Kind, Verdict, transient
from tests.libraries import clients
from tests.libraries.servers import answering, judged, library, sending

RATE_LIMIT = Verdict.retry(kind=Kind.throttled, sent=True, reason="rate_limit")
HTTP_5XX = Verdict.retry(kind=Kind.server, sent=True, reason="http_5xx")
CONFLICT = Verdict.retry(kind=Kind.server, sent=True, reason="conflict")
UNSENT_BUSY = Verdict.retry(kind=Kind.server, sent=False, reason="busy")
FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="too_many_connections")
ALL = {**clients.PLAIN, **clients.AWS, **clients.LLM}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # from clients that could not connect


def after(verdict: Verdict, seconds: float) -> Verdict:
    return Verdict.retry(kind=verdict.kind, after=seconds, sent=verdict.sent, reason=verdict.reason)


# -------------------------------------------------------------------------------- HTTP


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {"Retry-After": "7"}, after(RATE_LIMIT, 7)),
        (429, {"Retry-After": "7", "Retry-After-Ms": "1500"}, after(RATE_LIMIT, 1.5)),
        (429, {"Retry-After": "soon"}, RATE_LIMIT),
        (503, {"retry-after": "0"}, after(HTTP_5XX, 0)),
        (502, {}, HTTP_5XX),
        (504, {}, HTTP_5XX),
        (501, {}, None),
        (404, {"Retry-After": "7"}, None),
        (401, {}, None),
    ],
)
def test_the_verdict_on_each_status(
    name: str, status: int, headers: dict[str, str], expected: Verdict | None
) -> None:
    with answering(status, headers) as url:
        assert judged(lambda: ALL[name](url, clients.LONG)) == expected


@pytest.mark.parametrize("name", ALL)
def test_a_500_is_retried_by_sdks_that_document_it(name: str) -> None:
    with answering(500) as url:
        assert judged(lambda: ALL[name](url, clients.LONG)) == (None if name in clients.PLAIN else HTTP_5XX)


@pytest.mark.parametrize("name", clients.LLM)
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (409, {}, CONFLICT),
        (529, {}, Verdict.retry(kind=Kind.throttled, sent=True, reason="overloaded")),
        (503, {"x-should-retry": "false"}, None),
        (400, {"x-should-retry": "true"}, Verdict.retry(kind=Kind.server, sent=True, reason="busy")),
        (400, {}, None),
    ],
)
def test_the_verdict_on_statuses_of_language_models(
    name: str, status: int, headers: dict[str, str], expected: Verdict | None
) -> None:
    with answering(status, headers) as url:
        assert judged(lambda: clients.LLM[name](url, clients.LONG)) == expected


def test_an_exhausted_quota_is_not_retried() -> None:
    body = b'{"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "spent"}}'
    with answering(429, {"Retry-After": "7"}, body) as url:
        assert judged(lambda: clients.openai(url)) is None


def stream(name: str, url: str) -> None:
    messages: Any = [{"role": "user", "content": "hello"}]
    module = library(name)
    if name == "openai":
        with module.OpenAI(api_key="none", base_url=url, max_retries=0) as client:
            list(client.chat.completions.create(model="m", messages=messages, stream=True))
    else:
        with module.Anthropic(api_key="none", base_url=url, max_retries=0) as client:
            list(client.messages.create(model="m", max_tokens=9, messages=messages, stream=True))


@pytest.mark.parametrize(
    ("name", "said", "expected"),
    [
        ("openai", "server_error", HTTP_5XX),
        ("openai", "invalid_request_error", None),
        ("anthropic", "overloaded_error", Verdict.retry(kind=Kind.throttled, sent=True, reason="overloaded")),
        ("anthropic", "invalid_request_error", None),
    ],
)
def test_the_verdict_on_an_error_event_in_a_stream(name: str, said: str, expected: Verdict | None) -> None:
    """The status is 200; only the body contains the error."""
    data = f'{{"type": "error", "error": {{"type": "{said}", "message": "so it is"}}}}'
    body = f"event: error\ndata: {data}\n\n".encode()
    with answering(200, body=body, kind="text/event-stream") as url:
        assert judged(lambda: stream(name, url)) == expected


@pytest.mark.parametrize(
    ("code", "status", "headers", "expected"),
    [
        ("ThrottlingException", 400, {}, RATE_LIMIT),
        ("ThrottlingException", 400, {"x-amz-retry-after": "1500"}, after(RATE_LIMIT, 1.5)),
        ("SlowDown", 503, {}, RATE_LIMIT),
        ("RequestTimeout", 400, {}, Verdict.retry(kind=Kind.timeout, sent=True, reason="timeout")),
        ("AccessDenied", 403, {}, None),
        ("ExpiredToken", 400, {}, None),
    ],
)
def test_the_verdict_on_aws_codes(
    code: str, status: int, headers: dict[str, str], expected: Verdict | None
) -> None:
    body = f'{{"__type": "{code}", "message": "so it is"}}'.encode()
    with answering(status, headers, body, "application/x-amz-json-1.0") as url:
        assert judged(lambda: clients.botocore(url)) == expected


# --------------------------------------------------------------------------- databases


def postgres_error(code: str, text: str) -> bytes:
    fields = b"".join(
        name + value.encode() + b"\0"
        for name, value in ((b"S", "FATAL"), (b"V", "FATAL"), (b"C", code), (b"M", text))
    )
    return b"E" + struct.pack(">I", len(fields) + 5) + fields + b"\0"


@pytest.mark.parametrize("name", clients.POSTGRES)
@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        ("28P01", 'password authentication failed for user "me"', None),
        ("28000", 'no pg_hba.conf entry for host "127.0.0.1"', None),
        ("3D000", 'database "it" does not exist', None),
        ("57P03", "the database system is starting up", UNSENT_BUSY),
        ("53300", "sorry, too many clients already", FULL),
    ],
)
def test_the_verdict_on_a_refused_postgres_connection(
    name: str, code: str, text: str, expected: Verdict | None
) -> None:
    with sending(postgres_error(code, text)) as port:
        assert judged(lambda: clients.POSTGRES[name](port)) == expected


def postgres_code(code: str) -> Iterator[Exception]:
    yield library("psycopg.errors").lookup(code)("so it is")
    yield library("asyncpg").PostgresError.new({"S": "ERROR", "C": code, "M": "so it is"})


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("40001", CONFLICT),
        ("40P01", CONFLICT),
        ("55P03", Verdict.retry(kind=Kind.server, sent=True, reason="locked")),
        ("08006", Verdict.retry(kind=Kind.network, reason="network")),
        ("57P01", Verdict.retry(kind=Kind.network, reason="network")),
        ("40002", None),
        ("57014", None),
        ("23505", None),
        ("42601", None),
    ],
)
def test_the_verdict_on_sqlstates_with_and_without_sqlalchemy(code: str, expected: Verdict | None) -> None:
    wrap = library("sqlalchemy.exc").DBAPIError.instance
    for error in postgres_code(code):
        assert transient(error) == expected, error
        wrapped = wrap("select 1", {}, error, Exception, dialect=None)
        assert wrapped is not error
        assert transient(wrapped) == expected, error


def test_an_invalidated_connection_of_sqlalchemy_is_retried() -> None:
    exc = library("sqlalchemy.exc")
    unknown = exc.DBAPIError("select 1", {}, ValueError("who knows"), connection_invalidated=True)
    assert transient(unknown) == Verdict.retry(kind=Kind.network, reason="network")
    assert transient(exc.DBAPIError("select 1", {}, ValueError("who knows"))) is None


def test_a_locked_sqlite_database_is_retried(tmp_path: Path) -> None:
    sqlalchemy = library("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'one.db'}", connect_args={"timeout": 0})
    with engine.connect() as holder, engine.connect() as other:
        holder.exec_driver_sql("create table t (x)")
        holder.exec_driver_sql("begin exclusive")
        found = judged(lambda: other.exec_driver_sql("insert into t values (1)"))
    engine.dispose()
    assert found == Verdict.retry(kind=Kind.server, reason="busy")


@pytest.mark.parametrize("name", clients.MYSQL)
@pytest.mark.parametrize(("code", "expected"), [(1040, FULL), (1045, None), (1129, None)])
def test_the_verdict_on_a_refused_mysql_connection(name: str, code: int, expected: Verdict | None) -> None:
    text = b"\xff" + struct.pack("<H", code) + b"so it is"
    with sending(struct.pack("<I", len(text))[:3] + b"\0" + text, first=True) as port:
        assert judged(lambda: clients.MYSQL[name](port)) == expected


BUSY = Verdict.retry(kind=Kind.server, sent=True, reason="busy")


@pytest.mark.parametrize(
    ("said", "options", "expected"),
    [
        ("-LOADING Redis is loading the dataset in memory", {}, BUSY),
        ("-TRYAGAIN Multiple keys request during rehashing of slot", {}, BUSY),
        ("-CLUSTERDOWN The cluster is down", {}, BUSY),
        ("-ERR max number of clients reached", {}, FULL),
        ("-NOAUTH Authentication required.", {}, None),
        ("-WRONGPASS invalid username-password pair", {"password": "none"}, None),
        ("-NOPERM this user has no permissions", {}, None),
        ("-OOM command not allowed when used memory > 'maxmemory'.", {}, None),
        ("-ERR unknown command", {}, None),
    ],
)
def test_the_verdict_on_redis_errors(said: str, options: dict[str, Any], expected: Verdict | None) -> None:
    with sending(said.encode() + b"\r\n", again=True) as port:
        assert judged(lambda: clients.redis(port, **options)) == expected


# -------------------------------------------------------------------------- gRPC, Kafka


@contextlib.contextmanager
def grpc_server(code: str, metadata: tuple[tuple[str, str | bytes], ...]) -> Generator[int, None, None]:
    grpc = library("grpc")

    def fail(request: bytes, context: Any) -> None:
        context.set_trailing_metadata(metadata)
        context.abort(getattr(grpc.StatusCode, code), "so it is")

    handler = grpc.method_handlers_generic_handler(
        "service", {"Method": grpc.unary_unary_rpc_method_handler(fail)}
    )
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, handlers=(handler,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield port
        server.stop(None).wait()


PUSHBACK = "grpc-retry-pushback-ms"


@pytest.mark.parametrize("call", clients.GRPC.values(), ids=list(clients.GRPC))
@pytest.mark.parametrize(
    ("code", "metadata", "expected"),
    [
        ("UNAVAILABLE", (), Verdict.retry(kind=Kind.server, reason="unavailable")),
        ("RESOURCE_EXHAUSTED", (), RATE_LIMIT),
        ("RESOURCE_EXHAUSTED", ((PUSHBACK, "1500"),), after(RATE_LIMIT, 1.5)),
        ("RESOURCE_EXHAUSTED", ((PUSHBACK, "-1"),), None),
        ("ABORTED", (), CONFLICT),
        ("INTERNAL", (), None),
        ("UNKNOWN", (), None),
        ("UNAUTHENTICATED", (), None),
        ("PERMISSION_DENIED", (), None),
        ("CANCELLED", (), None),
    ],
)
def test_the_verdict_on_grpc_codes(
    call: Callable[[int], object],
    code: str,
    metadata: tuple[tuple[str, str], ...],
    expected: Verdict | None,
) -> None:
    with grpc_server(code, metadata) as port:
        assert judged(lambda: call(port)) == expected


@pytest.mark.parametrize("call", clients.GRPC.values(), ids=list(clients.GRPC))
def test_a_retry_info_of_googleapis_is_a_hint(call: Callable[[int], object]) -> None:
    """In a status that Google's own classes write, among other details."""
    details, code = library("google.rpc.error_details_pb2"), library("google.rpc.code_pb2")
    status = library("google.rpc.status_pb2").Status(code=code.RESOURCE_EXHAUSTED, message="so it is")
    info = details.RetryInfo()
    info.retry_delay.FromMilliseconds(2_700)
    for detail in (details.ErrorInfo(reason="QUOTA", domain="a.test", metadata={"x": "y"}), info):
        status.details.add().Pack(detail)
    metadata = library("grpc_status.rpc_status").to_status(status).trailing_metadata
    with grpc_server("RESOURCE_EXHAUSTED", metadata) as port:
        assert judged(lambda: call(port)) == after(RATE_LIMIT, 2.7)


@pytest.mark.parametrize(
    ("code", "options", "kind"),
    [
        ("_TRANSPORT", {}, Kind.network),
        ("_TIMED_OUT", {}, Kind.timeout),
        ("THROTTLING_QUOTA_EXCEEDED", {}, Kind.throttled),
        ("CONCURRENT_TRANSACTIONS", {"retriable": True}, Kind.server),
        ("_TRANSPORT", {"fatal": True}, None),
        ("_AUTHENTICATION", {}, None),
        ("TOPIC_AUTHORIZATION_FAILED", {}, None),
    ],
)
def test_the_verdict_on_confluent_kafka_errors(
    code: str, options: dict[str, bool], kind: Kind | None
) -> None:
    module = library("confluent_kafka")
    inside = module.KafkaError(getattr(module.KafkaError, code), "so it is", **options)
    found = transient(module.KafkaException(inside))
    assert (None if found is None else found.kind) == kind
