"""Connections that are refused, closed, silent or of the wrong protocol: real errors of real clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Kind, Verdict, llm, transient
from tests.libraries import clients
from tests.libraries.servers import closed_port, judged, library, run, sending, silent

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")


def by_port(client: clients.Client, scheme: str = "http") -> clients.Connect:
    return lambda port, read: client(f"{scheme}://127.0.0.1:{port}/", read)


def with_long_timeout(client: clients.Connect) -> Callable[[int], object]:
    return lambda port: client(port, clients.LONG)


HTTP = {name: by_port(client) for name, client in clients.HTTP.items()}
LONG_TIMEOUT = {name: with_long_timeout(client) for name, client in {**HTTP, **clients.REDIS}.items()}
EVERY_CLIENT = {**LONG_TIMEOUT, **clients.POSTGRES, **clients.MYSQL, **clients.GRPC}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # from clients that could not connect


@pytest.mark.parametrize("name", EVERY_CLIENT)
def test_a_refused_connection_was_not_sent(name: str) -> None:
    assert judged(lambda: EVERY_CLIENT[name](closed_port())) == UNSENT


def test_a_refused_connection_of_aiokafka() -> None:
    async def main() -> None:
        producer = library("aiokafka").AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{closed_port()}")
        try:
            await producer.start()
        finally:
            await producer.stop()

    assert judged(lambda: run(main())) == NETWORK


@pytest.mark.parametrize("name", [*HTTP, *clients.REDIS])
def test_a_closed_connection_may_have_been_sent(name: str) -> None:
    """The server has read the request, and closed the connection."""
    with sending(b"") as port:
        found = judged(lambda: EVERY_CLIENT[name](port))
    assert found == NETWORK


def read_with_aiohttp(port: int) -> None:
    async def main() -> None:
        module = library("aiohttp")
        async with module.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            await response.read()

    run(main())


READING = {name: LONG_TIMEOUT[name] for name in ("requests", "httpx", "httpx2, async", "urllib3")}


@pytest.mark.parametrize("read", [*READING.values(), read_with_aiohttp], ids=[*READING, "aiohttp"])
def test_a_truncated_response_is_a_network_error(read: Callable[[int], object]) -> None:
    with sending(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") as port:
        assert judged(lambda: read(port)) == NETWORK


@pytest.mark.parametrize("name", HTTP)
def test_a_silent_server_is_a_read_timeout(name: str) -> None:
    with silent() as port:
        assert judged(lambda: HTTP[name](port, 0.02)) == READ_TIMEOUT


@pytest.mark.parametrize("name", clients.REDIS)
def test_a_silent_redis_is_a_timeout(name: str) -> None:
    with silent() as port:
        found = judged(lambda: clients.REDIS[name](port, 0.02))
    assert found == Verdict.retry(kind=Kind.timeout, reason="timeout")


@pytest.mark.parametrize("name", clients.HTTP)
def test_a_failed_tls_handshake_is_not_retried(name: str) -> None:
    """The server does not speak TLS."""
    with sending(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert judged(lambda: by_port(clients.HTTP[name], "https")(port, clients.LONG)) is None


@pytest.mark.parametrize("name", ["requests", "urllib3", "urllib3, retries=0", "httpx", "httpx2", "aiohttp"])
def test_only_a_temporary_dns_failure_is_retried(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def lookup(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(number, "as the resolver says")

    monkeypatch.setattr("socket.getaddrinfo", lookup)
    number = socket.EAI_NONAME
    assert judged(lambda: clients.HTTP[name]("http://nowhere.invalid/", clients.LONG)) is None
    number = socket.EAI_AGAIN
    assert judged(lambda: clients.HTTP[name]("http://nowhere.invalid/", clients.LONG)) == UNSENT


@pytest.mark.parametrize("name", ["requests", "urllib3", "urllib3, retries=0", "httpx", "httpx2", "aiohttp"])
@pytest.mark.parametrize("number", ["EAI_NONAME", "EAI_AGAIN"])
def test_a_language_model_is_asked_again_after_any_dns_failure(
    name: str, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a provider exists, so the failure is the resolver's."""
    import socket

    def lookup(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(getattr(socket, number), "as the resolver says")

    monkeypatch.setattr("socket.getaddrinfo", lookup)
    with pytest.raises(Exception) as caught:  # noqa: PT011  each library has its own
        clients.HTTP[name]("http://nowhere.invalid/", clients.LONG)
    assert isinstance(caught.value, Exception)
    assert llm.table(caught.value) == UNSENT


def test_only_a_temporary_dns_failure_of_redis_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def lookup(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(number, "as the resolver says")

    monkeypatch.setattr("socket.getaddrinfo", lookup)
    number = socket.EAI_NONAME
    assert judged(lambda: clients.redis(6379)) is None
    number = socket.EAI_AGAIN
    assert judged(lambda: clients.redis(6379)) == UNSENT


POOL_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool")


def test_an_exhausted_connection_pool_was_not_sent() -> None:
    with library("urllib3").HTTPConnectionPool("127.0.0.1", maxsize=1, block=True) as pool:
        pool._get_conn(timeout=0)
        assert judged(lambda: pool._get_conn(timeout=0)) == POOL_TIMEOUT

    sqlalchemy = library("sqlalchemy")
    queue = sqlalchemy.pool.QueuePool
    engine = sqlalchemy.create_engine(
        "sqlite://", poolclass=queue, pool_size=1, max_overflow=0, pool_timeout=0
    )
    with engine.connect():
        assert judged(engine.connect) == POOL_TIMEOUT
    engine.dispose()

    redis = library("redis")
    connections = redis.ConnectionPool(max_connections=0, host="127.0.0.1", port=closed_port())
    connections.max_connections = 0
    found = judged(connections.get_connection)
    assert found == Verdict.retry(kind=Kind.throttled, sent=False, reason="pool_full")


def test_a_silent_grpc_server_is_a_timeout() -> None:
    with silent() as port, library("grpc").insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/service/Method")
        found = judged(lambda: call(b"", timeout=0.02))
    assert found == Verdict.retry(kind=Kind.timeout, reason="timeout")
    assert found == transient(library("grpc").FutureTimeoutError())
