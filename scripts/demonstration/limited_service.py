"""A service of finite capacity on loopback that processes requests one at a time, in order of arrival.

It does not notice that a client has stopped waiting and processes abandoned requests too, as most services
do. That is why it can stay overloaded after the brownout has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType

from demonstration.scenario import Scenario

SEED = "brownout"
OK, DROPPED = b"ok", b"dropped"


class LimitedService:
    """The service, an async context manager; ``arrived`` lists the arrival time of each request.

    A request is a line with a number; a response is a line with that number and ``ok`` or ``dropped``.
    """

    def __init__(self, scenario: Scenario, now: Callable[[], float]) -> None:
        self.arrived: list[float] = []
        self.port = 0
        self._scenario = scenario
        self._now = now
        self._queue: asyncio.Queue[tuple[float, bytes, asyncio.StreamWriter]] = asyncio.Queue()
        self._random = Random(SEED)  # noqa: S311  chance, not secrets

    async def __aenter__(self) -> LimitedService:
        self._server = await asyncio.start_server(self._read_requests, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.close()
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    async def _read_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while number := await reader.readline():
                self.arrived.append(self._now())
                self._queue.put_nowait((self.arrived[-1], number.strip(), writer))
        except ConnectionError:
            pass  # the client has disconnected
        finally:
            writer.close()

    async def _work(self) -> None:
        free = 0.0
        while True:
            arrived, number, writer = await self._queue.get()
            # By the clock, not by adding up sleeps: a slow machine does not reduce the capacity.
            begun = max(free, arrived)
            free = begun + 1 / self._scenario.capacity_at(begun)
            await asyncio.sleep(max(0.0, free - self._now()))
            word = DROPPED if self._random.random() < self._scenario.failure_rate else OK
            if not writer.is_closing():
                writer.write(number + b" " + word + b"\n")
