"""Real sockets in virtual time: what is on its way arrives before the clock moves."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from typing import Any

import pytest

from redouble import Retry
from redouble.testing import VirtualClock, virtual_time
from tests.support.virtual_time import unwaiting
from tests.testing.test_virtual_loop import BOTH, HOUR, in_time

pytestmark = pytest.mark.usefixtures(unwaiting.__name__)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every line, after an hour if it asks for one."""
    while line := await reader.readline():
        if line == b"later\n":
            await asyncio.sleep(HOUR)
        writer.write(line)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("place", BOTH)
def test_sockets_work(place: str) -> None:
    async def waiting(clock: VirtualClock) -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        began = clock.now()
        for line in [b"now\n"] * 20 + [b"later\n"]:
            writer.write(line)
            assert await reader.readline() == line
        assert clock.now() - began == HOUR
        writer.write(b"later\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readline(), HOUR / 2)
        assert clock.now() - began == 1.5 * HOUR
        assert await reader.readline() == b"later\n"
        assert clock.now() - began == 2 * HOUR
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(1)  # the other side ends

    in_time(place, waiting)


@pytest.mark.parametrize("place", BOTH)
def test_what_has_arrived_comes_before_any_timeout(place: str) -> None:
    """It was sent by another thread, and the next timer is an hour away."""

    async def waiting(clock: VirtualClock) -> bool:
        ours, theirs = socket.socketpair()
        sent = threading.Event()

        def send() -> None:
            theirs.sendall(b"line\n")
            sent.set()

        reader, writer = await asyncio.open_connection(sock=ours)
        for _ in range(20):
            sent.clear()
            threading.Thread(target=send).start()
            sent.wait()
            async with asyncio.timeout(HOUR):
                assert await reader.readline() == b"line\n"
        theirs.close()
        writer.close()
        await writer.wait_closed()
        return clock.now() < HOUR

    assert in_time(place, waiting)


@pytest.mark.parametrize("place", BOTH)
def test_connecting_is_retried_in_virtual_time(place: str) -> None:
    async def waiting(clock: VirtualClock) -> tuple[list[float], float]:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            with pytest.raises(ConnectionRefusedError):
                await Retry(backoff=[HOUR] * 3, give_up_after=None).call(
                    asyncio.open_connection, *nobody.getsockname()
                )
        return clock.delays, clock.now()

    assert in_time(place, waiting) == ([HOUR] * 3, 3 * HOUR)


class Noting(selectors.DefaultSelector):
    """Writes down how long it was to wait for something to happen."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None:
            self.waits.append(timeout)
        return super().select(timeout)


@pytest.mark.parametrize("sockets", [False, True])
def test_only_with_sockets_open_is_there_a_moment_of_patience(sockets: bool) -> None:
    """What is on its way from elsewhere has that long to arrive before the clock moves."""
    noting = Noting()

    async def main(mine: socket.socket) -> list[float]:
        loop = asyncio.get_running_loop()
        if sockets:
            loop.add_reader(mine, print)
        noting.waits.clear()
        await asyncio.sleep(HOUR)
        loop.remove_reader(mine)
        return noting.waits.copy()

    mine, theirs = socket.socketpair()
    runner = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(noting))
    with mine, theirs, virtual_time(), runner:
        assert (max(runner.run(main(mine))) > 0) is sockets
