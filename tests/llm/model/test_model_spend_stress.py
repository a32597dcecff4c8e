"""A thousand calls at once, in threads and in an event loop: together they never take more than there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from threading import Barrier
from typing import Any

import pytest

from redouble import SYSTEM
from redouble.llm import Spend, SpendExceeded, SpendRefused, Usage
from tests.support.llm.scripted_model import model_of, said

CALLS = 500  # in each of the two
THREADS = 16
LIMIT = 8_000
RESERVED = 40


@dataclass
class Crowd:
    """Calls of every kind, and the amounts they took."""

    spend: Spend
    worker: bool = False
    taken: list[int] = field(default_factory=list[int])
    ended: list[str] = field(default_factory=list[str])
    seen: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        options: dict[str, Any] = {} if self.worker else {"worker": None}
        self.model = model_of(spend=self.spend, reserve=RESERVED, timeouts=None, **options)

    def look(self) -> None:
        """Assert that no more is spent and reserved than the limit."""
        told = self.spend.snapshot()
        self.seen.append(told["tokens"] + told["tokens_reserved"])
        assert told["tokens"] + told["tokens_reserved"] <= LIMIT
        assert told["tokens_left"] >= 0

    def answer(self, written: int) -> dict[str, Any]:
        """Answer a call, which is paid for then."""
        self.look()
        if written % 7 == 0:
            raise KeyError
        self.taken.append(10 + written)
        return {"usage": {"prompt_tokens": 10, "completion_tokens": written}}

    def chunks(self, written: int) -> Iterator[Any]:
        """Answer in a stream; some break off."""
        self.look()
        for number in range(1, written + 1):
            yield said("a", usage=Usage(10, number))
        if written % 7 == 0:
            raise ConnectionResetError
        yield said("", finish="stop", usage=Usage(10, written))

    async def aanswer(self, written: int) -> dict[str, Any]:
        await SYSTEM.asleep(0)
        return self.answer(written)

    async def achunks(self, written: int) -> AsyncIterator[Any]:
        for chunk in self.chunks(written):
            await SYSTEM.asleep(0)
            yield chunk

    def call(self, kind: int, written: int) -> None:
        """Make a call of one of the kinds."""
        try:
            if kind == 0:
                self.model.call(self.answer, written)
            else:
                with self.model.stream(self.chunks, written) as stream:
                    for number, _ in enumerate(stream):
                        if kind == 2 and number == 5:
                            break  # and leave it
            self.ended.append("ok")
        except (SpendRefused, SpendExceeded, KeyError, ConnectionResetError) as error:
            self.ended.append(type(error).__name__)

    async def acall(self, kind: int, written: int) -> None:
        try:
            if kind == 0:
                await self.model.call(self.aanswer, written)
            else:
                async with self.model.stream(self.achunks, written) as stream:
                    number = 0
                    async for _ in stream:
                        number += 1
                        if kind == 2 and number == 5:
                            break
            self.ended.append("ok")
        except (SpendRefused, SpendExceeded, KeyError, ConnectionResetError) as error:
            self.ended.append(type(error).__name__)


@pytest.mark.parametrize("worker", [False, True], ids=["alone", "worker"])
@pytest.mark.parametrize("limit", [LIMIT, 10**9], ids=["short", "plenty"])
def test_a_thousand_calls(worker: bool, limit: int) -> None:
    """Some fail, some are left, some take more than they have reserved; some are refused, or stopped."""
    crowd = Crowd(Spend(tokens=limit, requests=10**6, warn_at=None), worker)
    if limit > LIMIT:
        crowd.look = lambda: None  # type: ignore[method-assign]
    random = Random(7)
    work = [(random.randrange(3), random.randrange(1, 60)) for _ in range(2 * CALLS)]
    ready = Barrier(THREADS + 1)

    def threads(part: int) -> None:
        ready.wait()
        for kind, written in work[part:CALLS:THREADS]:
            crowd.call(kind, written)

    async def tasks() -> None:
        ready.wait()
        await asyncio.gather(*(crowd.acall(kind, written) for kind, written in work[CALLS:]))

    with ThreadPoolExecutor(THREADS) as pool:
        parts = [pool.submit(threads, part) for part in range(THREADS)]
        asyncio.run(tasks())
        for part in parts:
            part.result()

    told = crowd.spend.snapshot()
    assert len(crowd.ended) == 2 * CALLS
    assert told["tokens_reserved"] == told["requests_reserved"] == 0
    assert told["tokens"] <= limit
    if limit == LIMIT:
        assert {"ok", "SpendRefused"} <= {*crowd.ended}
        assert max(crowd.seen) > LIMIT / 2
    else:
        assert {*crowd.ended} == {"ok", "KeyError", "ConnectionResetError"}
        assert told["requests"] == 2 * CALLS
        assert told["overdrawn_tokens"] == 0
        streams = sum(streamed(kind, written, aio=i >= CALLS) for i, (kind, written) in enumerate(work))
        assert told["tokens"] == sum(crowd.taken) + streams  # to the last token


def streamed(kind: int, written: int, *, aio: bool) -> int:
    """Return the amount that a stream takes."""
    most = 5 if aio else 6
    if kind == 0:
        return 0
    return 10 + (min(written, most) if kind == 2 else written)


def test_a_thousand_that_are_cancelled() -> None:
    """In the middle of anything: what they have said counts, and nothing stays reserved."""
    spend = Spend(tokens=10**6, requests=10**6)
    crowd = Crowd(spend)

    async def main() -> None:
        tasks = [asyncio.create_task(crowd.acall(number % 3, 50)) for number in range(2 * CALLS)]
        for number in range(20):
            await asyncio.sleep(0)
            for task in tasks[number::20]:
                task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())
    told = spend.snapshot()
    assert told["tokens_reserved"] == told["requests_reserved"] == 0
    assert told["tokens"] <= told["requests"] * 60
