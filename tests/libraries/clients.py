"""The same request made with every client, as its users make it, without retries of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.libraries.servers import library, run

__all__ = ["AWS", "GRPC", "HTTP", "LLM", "MYSQL", "PLAIN", "POSTGRES", "REDIS"]

Client = Callable[[str, float], object]  # a URL, and the read timeout
Connect = Callable[[int, float], object]  # a port, and the read timeout

LONG = 30.0  # seconds; never reached


def httpx(url: str, read: float, name: str = "httpx") -> None:
    module = library(name)
    with module.Client(timeout=module.Timeout(LONG, read=read)) as client:
        client.get(url).raise_for_status()


def httpx_async(url: str, read: float, name: str = "httpx") -> None:
    module = library(name)

    async def main() -> None:
        async with module.AsyncClient(timeout=module.Timeout(LONG, read=read)) as client:
            (await client.get(url)).raise_for_status()

    run(main())


def requests(url: str, read: float = LONG) -> None:
    library("requests").get(url, timeout=(LONG, read)).raise_for_status()


def urllib3(url: str, read: float = LONG) -> None:
    timeout = library("urllib3").Timeout(connect=LONG, read=read)
    with library("urllib3").PoolManager(timeout=timeout) as pool:
        pool.request("GET", url, retries=False)


def urllib3_retries(url: str, read: float = LONG) -> None:
    timeout = library("urllib3").Timeout(connect=LONG, read=read)
    with library("urllib3").PoolManager(timeout=timeout) as pool:
        pool.request("GET", url, retries=0)


def aiohttp(url: str, read: float = LONG) -> None:
    module = library("aiohttp")

    async def main() -> None:
        timeout = module.ClientTimeout(sock_connect=LONG, sock_read=read)
        async with module.ClientSession(timeout=timeout, raise_for_status=True) as session:
            await session.get(url)

    run(main())


def botocore(url: str, read: float = LONG) -> None:
    config = library("botocore.config").Config(
        retries={"total_max_attempts": 1}, connect_timeout=LONG, read_timeout=read, proxies={}
    )
    client = (
        library("botocore.session")
        .Session()
        .create_client(
            "sqs",
            region_name="eu-north-1",
            endpoint_url=url,
            aws_access_key_id="none",
            aws_secret_access_key="none",  # noqa: S106
            config=config,
        )
    )
    try:
        client.list_queues()
    finally:
        client.close()


def openai(url: str, read: float = LONG) -> None:
    timeout = library("httpx2").Timeout(LONG, read=read)
    with library("openai").OpenAI(api_key="none", base_url=url, max_retries=0, timeout=timeout) as client:
        client.models.list()


def anthropic(url: str, read: float = LONG) -> None:
    timeout = library("httpx2").Timeout(LONG, read=read)
    with library("anthropic").Anthropic(
        api_key="none", base_url=url, max_retries=0, timeout=timeout
    ) as client:
        client.models.list()


PLAIN: dict[str, Client] = {
    "httpx": httpx,
    "httpx, async": httpx_async,
    "httpx2": lambda url, read: httpx(url, read, "httpx2"),
    "httpx2, async": lambda url, read: httpx_async(url, read, "httpx2"),
    "requests": requests,
    "aiohttp": aiohttp,
}
AWS: dict[str, Client] = {"botocore": botocore}
LLM: dict[str, Client] = {"openai": openai, "anthropic": anthropic}
HTTP: dict[str, Client] = {
    **PLAIN,
    **AWS,
    **LLM,
    "urllib3": urllib3,
    "urllib3, retries=0": urllib3_retries,
}


# ------------------------------------------------------------------------------- others


def redis(port: int, read: float = LONG, **options: Any) -> None:
    retry = library("redis.retry").Retry(library("redis.backoff").NoBackoff(), 0)
    with library("redis").Redis(
        host="127.0.0.1",
        port=port,
        protocol=2,
        retry=retry,
        socket_connect_timeout=LONG,
        socket_timeout=read,
        **options,
    ) as client:
        client.get("key")


def redis_async(port: int, read: float) -> None:
    async def main() -> None:
        retry = library("redis.asyncio.retry").Retry(library("redis.backoff").NoBackoff(), 0)
        async with library("redis.asyncio").Redis(
            host="127.0.0.1",
            port=port,
            protocol=2,
            retry=retry,
            socket_connect_timeout=LONG,
            socket_timeout=read,
        ) as client:
            await client.get("key")

    run(main())


def psycopg(port: int, name: str = "psycopg") -> None:
    library(name).connect(
        f"host=127.0.0.1 port={port} user=me dbname=it sslmode=disable gssencmode=disable connect_timeout=30"
    )


def asyncpg(port: int) -> None:
    run(
        library("asyncpg").connect(
            host="127.0.0.1", port=port, user="me", database="it", ssl=False, timeout=LONG
        )
    )


def pymysql(port: int) -> None:
    library("pymysql").connect(host="127.0.0.1", port=port, user="me", connect_timeout=30, read_timeout=30)


def sqlalchemy(driver: str, port: int, options: str = "") -> None:
    library("sqlalchemy").create_engine(f"{driver}://me@127.0.0.1:{port}/it{options}").connect()


def sqlalchemy_async(port: int) -> None:
    async def main() -> None:
        engine = library("sqlalchemy.ext.asyncio").create_async_engine(
            f"postgresql+asyncpg://me@127.0.0.1:{port}/it", connect_args={"ssl": False}
        )
        async with engine.connect():
            pass

    run(main())


def grpc(port: int) -> None:
    with library("grpc").insecure_channel(f"127.0.0.1:{port}") as channel:
        channel.unary_unary("/service/Method")(b"", timeout=LONG)


def grpc_async(port: int) -> None:
    async def main() -> None:
        async with library("grpc.aio").insecure_channel(f"127.0.0.1:{port}") as channel:
            await channel.unary_unary("/service/Method")(b"", timeout=LONG)

    run(main())


UNENCRYPTED = "?sslmode=disable&gssencmode=disable"
POSTGRES: dict[str, Callable[[int], object]] = {
    "psycopg": psycopg,
    "psycopg2": lambda port: psycopg(port, "psycopg2"),
    "asyncpg": asyncpg,
    "sqlalchemy, psycopg": lambda port: sqlalchemy("postgresql+psycopg", port, UNENCRYPTED),
    "sqlalchemy, asyncpg": sqlalchemy_async,
}
MYSQL: dict[str, Callable[[int], object]] = {
    "pymysql": pymysql,
    "sqlalchemy, pymysql": lambda port: sqlalchemy("mysql+pymysql", port),
}
REDIS: dict[str, Connect] = {"redis": redis, "redis, async": redis_async}
GRPC: dict[str, Callable[[int], object]] = {"grpc": grpc, "grpc, async": grpc_async}
