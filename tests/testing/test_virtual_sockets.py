"""Real sockets in virtual time: data that has been sent arrives before the clock moves."""

from __future__ import annotations

import asyncio
import selectors
import socket
import threading
from typing import Any

import pytest

from redouble import Retry
from redouble.testing import VirtualClock, virtual_time
from tests.support.virtual_time import ASYNCIO_PLACES, HOUR, in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every line; the line "later" after an hour."""
    while line := await reader.readline():
        if line == b"later\n":
            await asyncio.sleep(HOUR)
        writer.write(line)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_sockets_work_in_virtual_time(place: str) -> None:
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
        await asyncio.sleep(1)  # until the server has closed its side

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_received_data_is_read_before_any_timeout(place: str) -> None:
    """Another thread sent the data, and the next timer is an hour away."""

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

    assert in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", ASYNCIO_PLACES)
def test_connecting_is_retried_in_virtual_time(place: str) -> None:
    async def waiting(clock: VirtualClock) -> tuple[list[float], float]:
        with socket.socket() as not_listening:
            not_listening.bind(("127.0.0.1", 0))  # without listen()
            with pytest.raises(ConnectionRefusedError):
                await Retry(backoff=[HOUR] * 3, give_up_after=None).call(
                    asyncio.open_connection, *not_listening.getsockname()
                )
        return clock.delays, clock.now()

    assert in_virtual_time(place, waiting) == ([HOUR] * 3, 3 * HOUR)


class RecordingSelector(selectors.DefaultSelector):
    """A selector that records its timeouts."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def select(self, timeout: float | None = None) -> Any:
        if timeout is not None:
            self.waits.append(timeout)
        return super().select(timeout)


@pytest.mark.parametrize("sockets", [False, True])
def test_the_loop_waits_a_moment_only_if_sockets_are_open(sockets: bool) -> None:
    """Data on its way has this time to arrive before the clock moves."""
    selector = RecordingSelector()

    async def main(mine: socket.socket) -> list[float]:
        loop = asyncio.get_running_loop()
        if sockets:
            loop.add_reader(mine, print)
        selector.waits.clear()
        await asyncio.sleep(HOUR)
        loop.remove_reader(mine)
        return selector.waits.copy()

    mine, theirs = socket.socketpair()
    runner = asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector))
    with mine, theirs, virtual_time(), runner:
        assert (max(runner.run(main(mine))) > 0) is sockets
