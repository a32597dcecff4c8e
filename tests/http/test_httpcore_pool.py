"""A request cut at the worst moment leaves no connection in the pool that no other request can get."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import httpx2
import pytest

from redouble import Retry
from redouble.http._httpcore import aclose_stream, close_stream, drop_lost_connections, pool_of

URL = "http://there/"
LIBRARIES = pytest.mark.parametrize("library", ["httpx", "httpx2"])
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])
ANSWER = [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", b"hel", b"lo"]


class Network:
    """The connections of a pool."""

    def __init__(self, library: str) -> None:
        self.core: Any = importlib.import_module(library.replace("x", "core"))
        self.opened = self.closed = 0
        # Functions called at these moments.
        self.after_connecting: Callable[[], object] = int
        self.after_reading: Callable[[], object] = int
        self.after_closing: Callable[[], object] = int

    def backend(self) -> Any:
        network = self

        stream_type, backend = self.core.AsyncMockStream, self.core.AsyncMockBackend([])

        async def connect_tcp(*_: object, **__: object) -> Any:
            stream = stream_type(ANSWER * 3)
            read, aclose = stream.read, stream.aclose

            async def reads(*args: Any, **options: Any) -> bytes:
                data: bytes = await read(*args, **options)
                if data == ANSWER[-1]:
                    network.after_reading()
                return data

            async def closes() -> None:
                network.closed += 1
                await aclose()
                network.after_closing()

            stream.read, stream.aclose = reads, closes
            network.opened += 1
            network.after_connecting()
            return stream

        backend.connect_tcp = connect_tcp
        return backend


def client(library: str, network: Network) -> Any:
    """Return an async client whose pool has one connection."""
    theirs: Any = importlib.import_module(library)
    ours: Any = importlib.import_module(f"redouble.{library}")
    wrapped = theirs.AsyncHTTPTransport(limits=theirs.Limits(max_connections=1))
    wrapped._pool._network_backend = network.backend()
    transport = ours.AsyncTransport(Retry(attempts=1), wrapped=wrapped)
    return theirs.AsyncClient(transport=transport, timeout=5, trust_env=False)


@LIBRARIES
@LOOPS
def test_a_wait_for_the_pool_that_ends_as_a_connection_is_assigned(library: str, loop: str) -> None:
    """Version 1.0 of httpcore keeps the new connection, which no request opens, for ever."""
    network = Network(library)

    async def main() -> None:
        async with client(library, network) as http, anyio.create_task_group() as tasks:
            waiting = anyio.CancelScope()

            async def wait() -> None:
                with waiting:
                    await http.get(URL)

            async with http.stream("GET", URL):
                tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                network.after_closing = waiting.cancel
            await anyio.wait_all_tasks_blocked()
            assert waiting.cancelled_caught
            network.after_closing = int
            assert (await http.get(URL)).content == b"hello"

    anyio.run(main, backend=loop)


@LIBRARIES
@LOOPS
def test_a_request_cancelled_between_connecting_and_sending(library: str, loop: str) -> None:
    """Its connection is open, and is closed."""
    network = Network(library)

    async def main() -> None:
        async with client(library, network) as http:
            with anyio.CancelScope() as scope:
                network.after_connecting = scope.cancel
                await http.get(URL)
            network.after_connecting = int
            await anyio.wait_all_tasks_blocked()
            assert (await http.get(URL)).content == b"hello"
            await anyio.wait_all_tasks_blocked()
            assert network.opened <= 2
        assert network.closed == network.opened

    anyio.run(main, backend=loop)


@LIBRARIES
def test_a_response_whose_closing_is_cancelled(library: str) -> None:
    """By `Task.cancel`, which no shield of httpcore stops."""
    network = Network(library)

    async def main() -> None:
        async with client(library, network) as http:
            task = asyncio.create_task(http.get(URL))
            network.after_reading = task.cancel
            with suppress(asyncio.CancelledError):
                await task
            network.after_reading = int
            assert (await http.get(URL)).content == b"hello"

    asyncio.run(main())


@LIBRARIES
def test_the_connection_of_a_request_in_progress_is_kept(library: str) -> None:
    """Another request fails meanwhile, because there is no second connection."""
    network = Network(library)
    theirs: Any = importlib.import_module(library)

    async def main() -> None:
        async with client(library, network) as http:
            async with http.stream("GET", URL) as response:
                with pytest.raises(theirs.PoolTimeout):
                    await http.get(URL, timeout=0.001)
                assert await response.aread() == b"hello"
            assert network.opened == 1

    asyncio.run(main())


# --------------------------------------------------------------------------------- blocking


@LIBRARIES
def test_a_blocking_pool_gets_its_connection_back(library: str) -> None:
    """It is as after a wait that ended in the thread of one request as another assigned the connection."""
    theirs: Any = importlib.import_module(library)
    ours: Any = importlib.import_module(f"redouble.{library}")
    network = Network(library)
    wrapped = theirs.HTTPTransport(limits=theirs.Limits(max_connections=1))
    pool = wrapped._pool
    pool._network_backend = network.core.MockBackend(ANSWER)
    pool._connections.append(pool.create_connection(network.core.URL(URL).origin))
    with theirs.Client(transport=ours.Transport(Retry(attempts=1), wrapped=wrapped)) as http:
        if library == "httpx":  # the other library finds it by itself
            with pytest.raises(theirs.PoolTimeout):
                http.get(URL, timeout=0.001)
        assert http.get(URL).content == b"hello"


class Interrupted:
    """A stream of httpx that Ctrl-C interrupts while it is closed."""

    def __init__(self, stream: object) -> None:
        self._httpcore_stream = stream

    def close(self) -> None:
        raise KeyboardInterrupt

    async def aclose(self) -> None:
        raise KeyboardInterrupt


@LIBRARIES
def test_a_blocking_response_whose_closing_is_interrupted(library: str) -> None:
    core = Network(library).core
    with core.ConnectionPool(max_connections=1, network_backend=core.MockBackend(ANSWER)) as pool:
        answer = pool.handle_request(core.Request("GET", URL, headers={"host": "there"}))
        with pytest.raises(KeyboardInterrupt):
            close_stream(Interrupted(answer.stream))
        assert (pool._requests, pool.connections) == ([], [])
        assert pool.request("GET", URL).content == b"hello"


def test_a_stream_of_another_transport_has_no_pool() -> None:
    with pytest.raises(KeyboardInterrupt):
        close_stream(Interrupted(None))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(aclose_stream(Interrupted(None)))


def test_other_transports_have_no_pool() -> None:
    assert pool_of(httpx2.MockTransport(lambda _: httpx2.Response(200))) is None
    with httpx2.HTTPTransport() as transport:
        assert pool_of(transport) is not None
        drop_lost_connections(pool_of(transport))
