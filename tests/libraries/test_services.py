"""Databases, brokers, clouds and search engines of which the other tests use no client: real errors."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Kind, Verdict, transient
from tests.libraries.clients import LONG
from tests.libraries.servers import answering, closed_port, judged, library, run, sending, silent

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")
CONNECT_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_connect")
RATE_LIMIT = Verdict.retry(kind=Kind.throttled, sent=True, reason="rate_limit")
HTTP_5XX = Verdict.retry(kind=Kind.server, sent=True, reason="http_5xx")
ANSWERED = Verdict.retry(kind=Kind.server, sent=True, reason="busy")
CONFLICT = Verdict.retry(kind=Kind.server, sent=True, reason="conflict")
FULL = Verdict.retry(kind=Kind.throttled, sent=False, reason="too_many_connections")

pytestmark = pytest.mark.filterwarnings("ignore")  # from clients that could not connect


def after(verdict: Verdict, seconds: float) -> Verdict:
    return Verdict.retry(kind=verdict.kind, after=seconds, sent=verdict.sent, reason=verdict.reason)


# -------------------------------------------------------------------------- the clients


def asyncmy(port: int) -> None:
    run(library("asyncmy").connect(host="127.0.0.1", port=port, user="me", connect_timeout=30))


def oracledb(port: int) -> None:
    library("oracledb").connect(user="me", password="none", dsn=f"127.0.0.1:{port}/it")  # noqa: S106


def pymongo(port: int) -> None:
    with library("pymongo").MongoClient("127.0.0.1", port, serverSelectionTimeoutMS=50) as client:
        client.admin.command("ping")


def cassandra(port: int) -> None:
    cluster = library("cassandra.cluster").Cluster(["127.0.0.1"], port=port)
    try:
        cluster.connect()
    finally:
        cluster.shutdown()


def pika(port: int) -> None:
    module = library("pika")
    module.BlockingConnection(module.ConnectionParameters("127.0.0.1", port))


def websockets(port: int) -> None:
    with library("websockets.sync.client").connect(f"ws://127.0.0.1:{port}/", proxy=None) as connection:
        connection.recv()


def anyio(port: int) -> None:
    run(library("anyio").connect_tcp("127.0.0.1", port))


def trio(port: int) -> None:
    module = library("trio")
    module.run(module.open_tcp_stream, "127.0.0.1", port)


SERVERS = {
    "asyncmy": asyncmy,
    "oracledb": oracledb,
    "pika": pika,
    "websockets": websockets,
    "anyio": anyio,
    "trio": trio,
}


def azure(url: str, read: float = LONG) -> None:
    request = library("azure.core.rest").HttpRequest("GET", url)
    with library("azure.core").PipelineClient(url, policies=[]) as client:
        client.send_request(request, connection_timeout=LONG, read_timeout=read).raise_for_status()


def elasticsearch(url: str, read: float = LONG) -> None:
    with library("elasticsearch").Elasticsearch(url, max_retries=0, request_timeout=read) as client:
        client.info()


def elasticsearch_async(url: str, read: float = LONG) -> None:
    async def main() -> None:
        client = library("elasticsearch").AsyncElasticsearch(url, max_retries=0, request_timeout=read)
        async with client:
            await client.info()

    run(main())


def opensearch(url: str, read: float = LONG) -> None:
    client = library("opensearchpy").OpenSearch(url, max_retries=0, timeout=read)
    try:
        client.info()
    finally:
        client.close()


def httpcore(url: str, read: float = LONG) -> None:
    with library("httpcore").ConnectionPool() as pool:
        pool.request("GET", url, extensions={"timeout": {"read": read}})


def google(url: str, read: float = LONG) -> None:
    """Call as google-cloud's clients do: google-auth sends, and google-api-core makes the error."""
    response = library("google.auth.transport.requests").Request()(url, timeout=read)
    if response.status >= 400:
        raise library("google.api_core.exceptions").from_http_response(response._response)


HTTP = {
    "azure": azure,
    "elasticsearch": elasticsearch,
    "elasticsearch, async": elasticsearch_async,
    "opensearch": opensearch,
    "httpcore": httpcore,
    "google": google,
}


def by_port(client: Callable[[str, float], object]) -> Callable[[int], object]:
    return lambda port: client(f"http://127.0.0.1:{port}/", LONG)


BY_PORT = {**SERVERS, **{name: by_port(client) for name, client in HTTP.items()}}


# ----------------------------------------------------------------------- the connections


@pytest.mark.parametrize("name", BY_PORT)
def test_a_refused_connection_was_not_sent(name: str) -> None:
    found = judged(lambda: BY_PORT[name](closed_port()))
    if name == "trio":  # it tries several addresses
        assert found == Verdict.retry(kind=Kind.network, sent=False, reason="group")
    elif name == "elasticsearch, async":  # it keeps the reason from its errors
        assert found == NETWORK
    else:
        assert found == UNSENT


def test_a_refused_connection_of_clients_that_choose_a_server() -> None:
    assert judged(lambda: pymongo(closed_port())) == CONNECT_TIMEOUT
    found = judged(lambda: cassandra(closed_port()))
    assert found == Verdict.retry(kind=Kind.network, sent=False, reason="group")


@pytest.mark.parametrize("name", [*HTTP, "websockets", "oracledb"])
def test_a_closed_connection_may_have_been_sent(name: str) -> None:
    with sending(b"") as port:
        assert judged(lambda: BY_PORT[name](port)) == NETWORK


def test_a_connection_of_asyncmy_that_is_closed_is_lost() -> None:
    """The library reports it in two ways, depending on when it notices."""
    with sending(b"", first=True) as port:
        assert judged(lambda: asyncmy(port)) in (NETWORK, UNSENT)


def test_a_broker_that_closes_before_the_handshake_is_starting() -> None:
    with sending(b"") as port:
        assert judged(lambda: pika(port)) == UNSENT


@pytest.mark.parametrize("name", HTTP)
def test_a_silent_server_is_a_timeout(name: str) -> None:
    with silent() as port:
        found = judged(lambda: HTTP[name](f"http://127.0.0.1:{port}/", 0.02))
    assert found in (READ_TIMEOUT, Verdict.retry(kind=Kind.timeout, reason="timeout"))


# --------------------------------------------------------------------------- the answers


@pytest.mark.parametrize("name", ["azure", "elasticsearch", "elasticsearch, async", "opensearch", "google"])
@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (429, {"Retry-After": "7"}, after(RATE_LIMIT, 7)),
        (503, {}, HTTP_5XX),
        (404, {}, None),
        (401, {}, None),
        (409, {}, None),
    ],
)
def test_the_verdict_on_each_status(
    name: str, status: int, headers: dict[str, str], expected: Verdict | None
) -> None:
    if name == "opensearch" and expected is not None:
        expected = after(expected, None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with answering(status, {**headers, "X-Elastic-Product": "Elasticsearch"}) as url:
        assert judged(lambda: HTTP[name](url, LONG)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("azure", HTTP_5XX), ("google", HTTP_5XX), ("elasticsearch", None), ("opensearch", None)],
)
def test_a_500_is_retried_by_clouds_that_document_it(name: str, expected: Verdict | None) -> None:
    with answering(500, {"X-Elastic-Product": "Elasticsearch"}) as url:
        assert judged(lambda: HTTP[name](url, LONG)) == expected


def test_hints_of_azure_in_milliseconds() -> None:
    with answering(429, {"x-ms-retry-after-ms": "250"}) as url:
        assert judged(lambda: azure(url)) == after(RATE_LIMIT, 0.25)


def test_limits_of_google() -> None:
    details = b'[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.7s"}]'
    with answering(429, body=b'{"error": {"message": "so it is", "details": ' + details + b"}}") as url:
        assert judged(lambda: google(url)) == after(RATE_LIMIT, 0.7)
    reason = b'{"error": {"message": "so it is", "errors": [{"reason": "userRateLimitExceeded"}]}}'
    with answering(403, body=reason) as url:
        assert judged(lambda: google(url)) == RATE_LIMIT


@pytest.mark.parametrize(
    ("status", "expected"),
    [(429, after(RATE_LIMIT, 7)), (503, after(HTTP_5XX, 7)), (500, None), (403, None)],
)
def test_a_refused_websocket(status: int, expected: Verdict | None) -> None:
    with answering(status, {"Retry-After": "7"}) as url:
        assert judged(lambda: websockets(int(url.rpartition(":")[2]))) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (1001, NETWORK),
        (1012, NETWORK),
        (1013, Verdict.retry(kind=Kind.server, reason="busy")),
        (1000, None),
        (1008, None),
        (1011, None),
    ],
)
def test_a_websocket_that_the_server_closes(code: int, expected: Verdict | None) -> None:
    import threading

    def close(connection: Any) -> None:
        connection.close(code)

    with library("websockets.sync.server").serve(close, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        found = judged(lambda: websockets(server.socket.getsockname()[1]))
        server.shutdown()
        thread.join()
    assert found == expected


def test_a_broken_stream_of_trio() -> None:
    module = library("trio")

    async def main() -> None:
        client, server = module.testing.memory_stream_pair()
        await server.aclose()
        await client.send_all(b"x")

    library("trio.testing")
    assert judged(lambda: module.run(main)) == NETWORK

    async def closed() -> None:
        client, _ = module.testing.memory_stream_pair()
        await client.aclose()
        await client.send_all(b"x")

    assert judged(lambda: module.run(closed)) is None


def test_a_broken_stream_of_anyio() -> None:
    module = library("anyio")

    async def main() -> None:
        send, receive = module.create_memory_object_stream()
        receive.close()
        try:
            await send.send(b"x")
        finally:
            send.close()

    assert judged(lambda: run(main())) == NETWORK


def test_h11_reads_garbage() -> None:
    module = library("h11")

    def read() -> None:
        connection = module.Connection(module.CLIENT)
        connection.send(module.Request(method="GET", target="/", headers=[("Host", "a.test")]))
        connection.receive_data(b"garbage\r\n\r\n")
        connection.next_event()

    assert judged(read) == NETWORK


# ------------------------------------------------------------------------------ the codes


@pytest.mark.parametrize(
    ("code", "labels", "expected"),
    [
        (112, ["TransientTransactionError"], CONFLICT),
        (189, [], ANSWERED),
        (251, ["TransientTransactionError"], CONFLICT),
        (11000, [], None),
        (18, [], None),
    ],
)
def test_codes_of_mongo(code: int, labels: list[str], expected: Verdict | None) -> None:
    errors = library("pymongo.errors")
    assert transient(errors.OperationFailure("so it is", code, {"errorLabels": labels})) == expected


def test_mongo_selects_no_server_and_writes_in_bulk() -> None:
    errors = library("pymongo.errors")
    assert transient(errors.WaitQueueTimeoutError()) is not None
    assert transient(errors.BulkWriteError({"errorLabels": ["RetryableWriteError"]})) is None
    assert transient(errors.NotPrimaryError("not primary")) == ANSWERED
    assert transient(errors.AutoReconnect("gone")) == NETWORK


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (60, "ORA-00060: deadlock detected while waiting for resource", CONFLICT),
        (54, "ORA-00054: resource busy", Verdict.retry(kind=Kind.server, sent=True, reason="locked")),
        (3113, "ORA-03113: end-of-file on communication channel", NETWORK),
        (12519, "ORA-12519: TNS:no appropriate service handler found", FULL),
        (
            1033,
            "ORA-01033: ORACLE initialization or shutdown in progress",
            Verdict.retry(kind=Kind.server, sent=False, reason="busy"),
        ),
        (1017, "ORA-01017: invalid username/password", None),
        (942, "ORA-00942: table or view does not exist", None),
    ],
)
def test_codes_of_oracle(code: int, text: str, expected: Verdict | None) -> None:
    details: Any = library("oracledb.errors")._Error(text, code=code)
    assert transient(details.exc_type(details)) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("ERR_CONNECTION_CLOSED", NETWORK),
        (
            "ERR_POOL_NO_CONNECTION_AVAILABLE",
            Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool"),
        ),
        ("ERR_NOT_CONNECTED", None),
        ("ERR_CURSOR_NOT_OPEN", None),
    ],
)
def test_errors_of_the_oracle_driver(number: str, expected: Verdict | None) -> None:
    module = library("oracledb.errors")
    assert transient(module._create_exception(getattr(module, number))) == expected


@pytest.mark.parametrize("text", ["Similar to ORA-12520", "Similar to ORA-12514"])
def test_a_listener_of_oracle_that_refuses(text: str) -> None:
    details: Any = library("oracledb.errors")._Error(f"DPY-6000: Listener refused connection. ({text})")
    expected = FULL if "12520" in text else None
    assert transient(details.exc_type(details)) == expected


@pytest.mark.parametrize(("code", "expected"), [(1040, FULL), (1045, None)])
def test_a_refused_connection_of_asyncmy(code: int, expected: Verdict | None) -> None:
    text = b"\xff" + struct.pack("<H", code) + b"so it is"
    with sending(struct.pack("<I", len(text))[:3] + b"\0" + text, first=True) as port:
        assert judged(lambda: asyncmy(port)) == expected


def test_errors_of_cassandra() -> None:
    module, cluster = library("cassandra"), library("cassandra.cluster")
    assert transient(module.OperationTimedOut()) is not None
    assert (
        transient(module.Unavailable("x", consistency=1, required_replicas=2, alive_replicas=1)) == ANSWERED
    )
    assert transient(module.ReadFailure("x")) is None
    shutdown = library("cassandra.connection").ConnectionShutdown("closed")
    assert transient(cluster.NoHostAvailable("none", {"a": shutdown})) is not None
    refused = module.AuthenticationFailed("no")
    assert transient(cluster.NoHostAvailable("none", {"a": shutdown, "b": refused})) is None
    assert transient(cluster.NoHostAvailable("none", {})) == UNSENT


def test_errors_of_pika() -> None:
    errors = library("pika.exceptions")
    assert transient(errors.ConnectionClosedByBroker(320, "CONNECTION_FORCED")) == NETWORK
    assert transient(errors.ConnectionClosedByBroker(530, "NOT_ALLOWED")) is None
    assert transient(errors.ConnectionClosedByClient(200, "bye")) is None
    assert transient(errors.ChannelClosedByBroker(404, "NOT_FOUND")) is None
    assert transient(errors.NackError([])) == ANSWERED
    reset = library("pika.adapters.utils.connection_workflow").AMQPConnectorSocketConnectError(
        ConnectionResetError(errno.ECONNRESET, "reset")
    )
    assert transient(errors.AMQPConnectionError(reset)) == NETWORK


def test_a_grpc_error_of_google_is_judged_as_such() -> None:
    grpc, errors = library("grpc"), library("google.api_core.exceptions")
    unavailable = errors.from_grpc_status(grpc.StatusCode.UNAVAILABLE, "so it is")
    assert transient(unavailable) == Verdict.retry(kind=Kind.server, reason="unavailable")
    assert transient(errors.from_grpc_status(grpc.StatusCode.INTERNAL, "so it is")) is None
    with (
        grpc.insecure_channel(f"127.0.0.1:{closed_port()}") as channel,
        pytest.raises(grpc.RpcError) as raised,
    ):
        channel.unary_unary("/service/Method")(b"", timeout=LONG)
    assert transient(errors.from_grpc_error(raised.value)) == UNSENT


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("-READONLY You can't write against a read only replica.", ANSWERED),
        ("-NOREPLICAS Not enough good replicas to write.", ANSWERED),
        ("-BUSY Redis is busy running a script.", ANSWERED),
        ("-MASTERDOWN Link with MASTER is down", ANSWERED),
        ("-BUSYGROUP Consumer Group name already exists", None),
    ],
)
def test_words_of_redis(said: str, expected: Verdict | None) -> None:
    from tests.libraries.clients import redis

    with sending(said.encode() + b"\r\n", again=True) as port:
        assert judged(lambda: redis(port)) == expected


def test_retries_of_redis_py_are_noticed(caplog: pytest.LogCaptureFixture) -> None:
    from redouble._failures import database_readers
    from tests.libraries.clients import redis

    database_readers._warn_of_tries.cache_clear()
    assert judged(lambda: redis(closed_port())) == UNSENT
    assert caplog.records == []
    own = library("redis.retry").Retry(library("redis.backoff").NoBackoff(), 3)
    client = library("redis").Redis(port=closed_port(), retry=own)
    assert judged(lambda: client.get("key")) == UNSENT
    assert "redis-py tried 4 times by itself" in caplog.text
