"""An open-loop load generator: clients that call the limited service at a fixed rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from random import Random

from demonstration.limited_service import OK
from demonstration.recovery import PlacedCall
from demonstration.retry_strategies import Call
from demonstration.scenario import Scenario

SEED = "callers"


class Connection:
    """One client's connection: any number of requests in flight, each identified by its number."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_timeout: float
    ) -> None:
        self._reader, self._writer, self._client_timeout = reader, writer, client_timeout
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._asked = 0

    async def ask(self) -> None:
        """Send one request and wait for its response, no longer than the client timeout."""
        self._asked += 1
        number = self._asked
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(b"%d\n" % number)
        try:
            async with asyncio.timeout(self._client_timeout):
                word = await answer
        finally:
            del self._waiting[number]
        if word != OK:
            raise ConnectionError(word.decode())

    async def read_answers(self) -> None:
        """Read responses and resolve their futures; a response after the client timeout is dropped."""
        while response := await self._reader.readline():
            number, word = response.split()
            answer = self._waiting.get(int(number))
            if answer is not None and not answer.done():
                answer.set_result(word)


@asynccontextmanager
async def connected(port: int, client_timeout: float) -> AsyncGenerator[Connection, None]:
    """Open a connection, read its responses, and close it on exit."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = Connection(reader, writer, client_timeout)
    listening = asyncio.create_task(connection.read_answers())
    try:
        yield connection
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        writer.close()


async def keep_calling(
    port: int, call: Call, scenario: Scenario, now: Callable[[], float], calls: list[PlacedCall]
) -> None:
    """Place calls at the scenario's rate until its end, and record when each was answered."""
    random = Random(SEED)  # noqa: S311  chance, not secrets

    async def one(connection: Connection) -> None:
        calls.append(placed := PlacedCall(now()))
        try:
            await call(connection.ask)
        except OSError:
            return  # a TimeoutError is an OSError too: a failed call has no answer
        placed.answered = now()

    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connected(port, scenario.client_timeout))
            for _ in range(scenario.clients)
        ]
        under_way: set[asyncio.Task[None]] = set()
        try:
            for number, connection in enumerate(cycle(connections)):
                # By the clock: a slow machine catches up, so that the load stays as specified.
                due = (number + random.random()) / scenario.calls
                if due >= scenario.end:
                    break
                await asyncio.sleep(max(0.0, due - now()))
                task = asyncio.create_task(one(connection))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            await asyncio.sleep(max(0.0, scenario.end - now()))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
