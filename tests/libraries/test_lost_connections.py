"""Connections that are lost inside a transaction, and pools of dead connections: the policy retries them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any

import pytest

from redouble import Kind, Retry, Verdict, transient
from tests.libraries.postgres import Postgres, postgres
from tests.libraries.servers import judged, library, run

NETWORK = Verdict.retry(kind=Kind.network, reason="network")
OPTIONS = "sslmode=disable gssencmode=disable"
POLICY = Retry(backoff=[0] * 9)

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def server() -> Generator[Postgres]:
    with postgres() as running:
        yield running


def text_of(server: Postgres) -> str:
    return f"host=127.0.0.1 port={server.port} user=me dbname=it {OPTIONS}"


def psycopg2(server: Postgres, statements: list[str]) -> None:
    connection = library("psycopg2").connect(text_of(server))
    try:
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
    finally:
        connection.close()


def psycopg(server: Postgres, statements: list[str]) -> None:
    with library("psycopg").connect(text_of(server)) as connection, connection.transaction():
        for statement in statements:
            connection.execute(statement)


def asyncpg(server: Postgres, statements: list[str]) -> None:
    async def main() -> None:
        connection = await library("asyncpg").connect(
            host="127.0.0.1", port=server.port, user="me", database="it", ssl=False
        )
        try:
            async with connection.transaction():
                for statement in statements:
                    await connection.execute(statement)
        finally:
            connection.terminate()

    run(main())


def asyncpg_nested(server: Postgres, statements: list[str]) -> None:
    async def main() -> None:
        connection = await library("asyncpg").connect(
            host="127.0.0.1", port=server.port, user="me", database="it", ssl=False
        )
        try:
            async with connection.transaction(), connection.transaction():
                for statement in statements:
                    await connection.execute(statement)
        finally:
            connection.terminate()

    run(main())


def sqlalchemy(server: Postgres, statements: list[str]) -> None:
    module = library("sqlalchemy")
    engine = module.create_engine(
        f"postgresql+psycopg2://me@127.0.0.1:{server.port}/it?sslmode=disable&gssencmode=disable",
        _initialize=False,
    )
    try:
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


DRIVERS = {
    "psycopg2": psycopg2,
    "psycopg": psycopg,
    "asyncpg": asyncpg,
    "asyncpg, nested": asyncpg_nested,
    "sqlalchemy": sqlalchemy,
}
Work = Callable[[Postgres, list[str]], None]


@pytest.mark.parametrize("work", DRIVERS.values(), ids=list(DRIVERS))
def test_a_connection_lost_during_a_statement_is_retried(server: Postgres, work: Work) -> None:
    server.lose = b"second"
    assert judged(lambda: work(server, ["set first = 1", "set second = 2"])) == NETWORK

    def again() -> None:
        server.lose = b"never" if len(calls) else b"second"
        calls.append(1)
        work(server, ["set first = 1", "set second = 2"])

    calls: list[int] = []
    POLICY.call(again)
    assert len(calls) == 2


@pytest.mark.parametrize("work", DRIVERS.values(), ids=list(DRIVERS))
def test_a_connection_lost_during_the_commit_is_retried(server: Postgres, work: Work) -> None:
    server.lose = b"COMMIT"
    assert judged(lambda: work(server, ["set first = 1"])) == NETWORK


@pytest.mark.parametrize("pooled", [True, False], ids=["pool", "connection"])
@pytest.mark.parametrize("commit", [True, False], ids=["before the commit", "before a statement"])
def test_a_connection_of_asyncpg_lost_between_statements_is_retried(
    server: Postgres, commit: bool, pooled: bool
) -> None:
    async def work(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("set first = 1")
            server.restart()
            await asyncio.wait_for(lost.wait(), 30)
            if not commit:
                await connection.execute("set second = 2")

    async def main() -> None:
        options = {"host": "127.0.0.1", "port": server.port, "user": "me", "database": "it", "ssl": False}
        if not pooled:
            connection = await library("asyncpg").connect(**options)
            connection.add_termination_listener(notice)
            await work(connection)
        else:
            pool = await library("asyncpg").create_pool(min_size=1, max_size=1, **options)
            async with pool, pool.acquire() as connection:
                connection.add_termination_listener(notice)
                await work(connection)

    def notice(connection: object) -> None:
        lost.set()

    lost = asyncio.Event()
    assert judged(lambda: run(main())) == NETWORK


def test_a_mistake_in_a_program_is_final(server: Postgres) -> None:
    """A closed connection, a closed cursor, two operations at a time."""

    def closed(connection: Any) -> None:
        connection.close()
        connection.cursor()

    def closed_while_handling(connection: Any) -> None:
        connection.close()
        try:
            raise ConnectionResetError
        except ConnectionResetError:
            connection.cursor()

    def cursor(connection: Any) -> None:
        one = connection.cursor()
        one.close()
        one.execute("set first = 1")

    for mistake in (closed, closed_while_handling, cursor):
        connection = library("psycopg2").connect(text_of(server))
        assert judged(lambda: mistake(connection)) is None  # noqa: B023
        connection.close()

    async def asyncpg_mistakes() -> None:
        connection = await library("asyncpg").connect(
            host="127.0.0.1", port=server.port, user="me", database="it", ssl=False
        )

        async def two_at_a_time() -> None:
            both = connection.execute("set a = 1"), connection.execute("set b = 2")
            raise (await asyncio.gather(*both, return_exceptions=True))[1]

        async def closed() -> None:
            await connection.close()
            await connection.execute("set first = 1")

        for mistake in (two_at_a_time, closed):
            try:
                await mistake()
            except Exception as error:
                verdicts.append((str(error)[:40], transient(error)))

    verdicts: list[tuple[str, object]] = []
    run(asyncpg_mistakes())
    assert verdicts == [
        ("cannot perform operation: another operat", None),
        ("connection is closed", None),
    ]


def attempts_after_a_restart(
    server: Postgres, *, size: int, check: bool = False, replace: bool = False
) -> int | None:
    """Return the attempts that a policy makes with a pool of dead connections; None if all of them fail."""
    pools, attempts = library("psycopg_pool"), 0
    option = pools.ConnectionPool.check_connection if check else None
    with pools.ConnectionPool(text_of(server), min_size=size, max_size=size, check=option, open=True) as pool:
        pool.wait()
        server.restart()

        def work() -> None:
            nonlocal attempts
            attempts += 1
            if replace and attempts > 1:
                pool.check()
            with pool.connection() as connection:
                connection.execute("set first = 1")

        try:
            Retry(backoff=[0] * 3).call(work)
        except library("psycopg").OperationalError:
            return None
    return attempts


def test_a_pool_of_dead_connections(server: Postgres) -> None:
    """As the page says: without a check each attempt takes a dead connection."""
    assert attempts_after_a_restart(server, size=6) is None
    assert attempts_after_a_restart(server, size=6, replace=True) == 2
    assert attempts_after_a_restart(server, size=1, check=True) == 1
