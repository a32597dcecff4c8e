"""Many clients who keep calling the limited service at a steady rate, whatever becomes of their calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from random import Random

from demonstration.limited import OK
from demonstration.restraint import Call
from demonstration.verdict import Placed
from demonstration.weather import Weather

SEED = "callers"


class Connection:
    """One client's connection: many requests under way, each known by its number."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        self._reader, self._writer, self._patience = reader, writer, patience
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._asked = 0

    async def ask(self) -> None:
        """Ask once, and stop waiting when patience runs out; the service is not told."""
        self._asked += 1
        number = self._asked
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(b"%d\n" % number)
        try:
            async with asyncio.timeout(self._patience):
                word = await answer
        finally:
            del self._waiting[number]
        if word != OK:
            raise ConnectionError(word.decode())

    async def listen(self) -> None:
        """Hand every answer to whoever waits for it; most late ones find nobody."""
        while said := await self._reader.readline():
            number, word = said.split()
            answer = self._waiting.get(int(number))
            if answer is not None and not answer.done():
                answer.set_result(word)


@asynccontextmanager
async def connected(port: int, patience: float) -> AsyncGenerator[Connection, None]:
    """Open a connection, listen to it, and close it in the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = Connection(reader, writer, patience)
    listening = asyncio.create_task(connection.listen())
    try:
        yield connection
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        writer.close()


async def keep_calling(
    port: int, call: Call, weather: Weather, now: Callable[[], float], calls: list[Placed]
) -> None:
    """Place a call whenever one is due, and note when it was answered, until nobody watches any more."""
    random = Random(SEED)  # noqa: S311  chance, not secrets

    async def one(connection: Connection) -> None:
        calls.append(placed := Placed(now()))
        try:
            await call(connection.ask)
        except OSError:
            return  # or a timeout, which is one too: a call that failed has no answer
        placed.answered = now()

    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connected(port, weather.patience)) for _ in range(weather.clients)
        ]
        under_way: set[asyncio.Task[None]] = set()
        try:
            for number, connection in enumerate(cycle(connections)):
                # By the clock: a machine that lags behind makes up for it, so the load stays what we say.
                due = (number + random.random()) / weather.calls
                if due >= weather.end:
                    break
                await asyncio.sleep(max(0.0, due - now()))
                task = asyncio.create_task(one(connection))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(max(0.0, weather.end - now()))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
