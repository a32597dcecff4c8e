"""A service of finite capacity on loopback: one request after another, in the order they came.

It never learns that a client has stopped waiting, and does the abandoned work all the same, as most services
do. That is why it can stay overloaded after its trouble is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType

from demonstration.weather import Weather

SEED = "brownout"
OK, DROPPED = b"ok", b"dropped"


class LimitedService:
    """The service; use it in an ``async with``. ``arrived`` says when each request came.

    A request is a line with a number, an answer is a line with that number and a word.
    """

    def __init__(self, weather: Weather, now: Callable[[], float]) -> None:
        self.arrived: list[float] = []
        self.port = 0
        self._weather = weather
        self._now = now
        self._queue: asyncio.Queue[tuple[float, bytes, asyncio.StreamWriter]] = asyncio.Queue()
        self._random = Random(SEED)  # noqa: S311  chance, not secrets

    async def __aenter__(self) -> LimitedService:
        self._server = await asyncio.start_server(self._take_in, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._worker = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._server.close()
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)

    async def _take_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while number := await reader.readline():
                self.arrived.append(self._now())
                self._queue.put_nowait((self.arrived[-1], number.strip(), writer))
        except ConnectionError:
            pass  # this client has gone: there is nobody to tell
        finally:
            writer.close()

    async def _work(self) -> None:
        free = 0.0
        while True:
            arrived, number, writer = await self._queue.get()
            # By the clock and not by sleeps added up: a machine that lags behind loses no capacity.
            begun = max(free, arrived)
            free = begun + 1 / self._weather.capacity_at(begun)
            await asyncio.sleep(max(0.0, free - self._now()))
            word = DROPPED if self._random.random() < self._weather.dropped else OK
            if not writer.is_closing():
                writer.write(number + b" " + word + b"\n")
