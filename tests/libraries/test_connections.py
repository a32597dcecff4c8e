"""Connections that are refused, cut, silent or of the wrong protocol: real errors of real clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Kind, Verdict, transient
from tests.libraries import clients
from tests.libraries.servers import closed_port, judged, library, run, sending, silent

UNSENT = Verdict.retry(kind=Kind.network, sent=False, reason="network")
NETWORK = Verdict.retry(kind=Kind.network, reason="network")
READ_TIMEOUT = Verdict.retry(kind=Kind.timeout, reason="timeout_read")


def by_port(client: clients.Client, scheme: str = "http") -> clients.Connect:
    return lambda port, read: client(f"{scheme}://127.0.0.1:{port}/", read)


def patient(client: clients.Connect) -> Callable[[int], object]:
    return lambda port: client(port, clients.LONG)


HTTP = {name: by_port(client) for name, client in clients.HTTP.items()}
PATIENT = {name: patient(client) for name, client in {**HTTP, **clients.REDIS}.items()}
EVERYBODY = {**PATIENT, **clients.POSTGRES, **clients.MYSQL, **clients.GRPC}

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # of clients that could not connect


@pytest.mark.parametrize("name", EVERYBODY)
def test_a_refused_connection_was_not_sent(name: str) -> None:
    assert judged(lambda: EVERYBODY[name](closed_port())) == UNSENT


def test_a_refused_connection_of_aiokafka() -> None:
    async def main() -> None:
        producer = library("aiokafka").AIOKafkaProducer(bootstrap_servers=f"127.0.0.1:{closed_port()}")
        try:
            await producer.start()
        finally:
            await producer.stop()

    assert judged(lambda: run(main())) == NETWORK


@pytest.mark.parametrize("name", [*HTTP, *clients.REDIS])
def test_a_connection_that_is_cut(name: str) -> None:
    """It may have been sent: the server has read it, and closed."""
    with sending(b"") as port:
        found = judged(lambda: EVERYBODY[name](port))
    assert found == NETWORK


def read_with_aiohttp(port: int) -> None:
    async def main() -> None:
        module = library("aiohttp")
        async with module.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/") as response:
            await response.read()

    run(main())


READING = {name: PATIENT[name] for name in ("requests", "httpx", "httpx2, async", "urllib3")}


@pytest.mark.parametrize("read", [*READING.values(), read_with_aiohttp], ids=[*READING, "aiohttp"])
def test_an_answer_that_breaks_off(read: Callable[[int], object]) -> None:
    with sending(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") as port:
        assert judged(lambda: read(port)) == NETWORK


@pytest.mark.parametrize("name", HTTP)
def test_an_answer_that_does_not_come(name: str) -> None:
    with silent() as port:
        assert judged(lambda: HTTP[name](port, 0.02)) == READ_TIMEOUT


@pytest.mark.parametrize("name", clients.REDIS)
def test_redis_does_not_answer(name: str) -> None:
    with silent() as port:
        found = judged(lambda: clients.REDIS[name](port, 0.02))
    assert found == Verdict.retry(kind=Kind.timeout, reason="timeout")


@pytest.mark.parametrize("name", clients.HTTP)
def test_tls_that_is_refused_stays_refused(name: str) -> None:
    """The server does not speak TLS: a retry changes nothing."""
    with sending(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        assert judged(lambda: by_port(clients.HTTP[name], "https")(port, clients.LONG)) is None


@pytest.mark.parametrize("name", ["requests", "urllib3", "urllib3, retries=0", "httpx", "httpx2", "aiohttp"])
def test_a_host_that_does_not_exist(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def lookup(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(number, "as the resolver says")

    monkeypatch.setattr("socket.getaddrinfo", lookup)
    number = socket.EAI_NONAME
    assert judged(lambda: clients.HTTP[name]("http://nowhere.invalid/", clients.LONG)) is None
    number = socket.EAI_AGAIN
    assert judged(lambda: clients.HTTP[name]("http://nowhere.invalid/", clients.LONG)) == UNSENT


def test_redis_does_not_find_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def lookup(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(number, "as the resolver says")

    monkeypatch.setattr("socket.getaddrinfo", lookup)
    number = socket.EAI_NONAME
    assert judged(lambda: clients.redis(6379)) is None
    number = socket.EAI_AGAIN
    assert judged(lambda: clients.redis(6379)) == UNSENT


POOL_TIMEOUT = Verdict.retry(kind=Kind.timeout, sent=False, reason="timeout_pool")


def test_full_pools() -> None:
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


def test_grpc_does_not_answer() -> None:
    with silent() as port, library("grpc").insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/service/Method")
        found = judged(lambda: call(b"", timeout=0.02))
    assert found == Verdict.retry(kind=Kind.timeout, reason="timeout")
    assert found == transient(library("grpc").FutureTimeoutError())
