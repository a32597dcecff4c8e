"""A thousand concurrent calls, in threads and in an event loop, never spend more than the limit."""

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
from tests.support.llm.scripted_model import model_of, text_chunk

pytestmark = pytest.mark.stress

CALLS = 500  # in threads, and as many in the event loop
THREADS = 16
LIMIT = 8_000
RESERVED = 40


@dataclass
class ManyCalls:
    """Calls of every kind, and the amounts they took."""

    spend: Spend
    worker: bool = False
    taken: list[int] = field(default_factory=list[int])
    ended: list[str] = field(default_factory=list[str])
    seen: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        options: dict[str, Any] = {} if self.worker else {"worker": None}
        self.model = model_of(spend=self.spend, reserve=RESERVED, timeouts=None, **options)

    def check_limit(self) -> None:
        """Assert that no more is spent and reserved than the limit."""
        snapshot = self.spend.snapshot()
        self.seen.append(snapshot["tokens"] + snapshot["tokens_reserved"])
        assert snapshot["tokens"] + snapshot["tokens_reserved"] <= LIMIT
        assert snapshot["tokens_left"] >= 0

    def answer(self, written: int) -> dict[str, Any]:
        """Answer a call; record its tokens, or raise."""
        self.check_limit()
        if written % 7 == 0:
            raise KeyError
        self.taken.append(10 + written)
        return {"usage": {"prompt_tokens": 10, "completion_tokens": written}}

    def chunks(self, written: int) -> Iterator[Any]:
        """Answer as a stream; some streams break off."""
        self.check_limit()
        for number in range(1, written + 1):
            yield text_chunk("a", usage=Usage(10, number))
        if written % 7 == 0:
            raise ConnectionResetError
        yield text_chunk("", finish="stop", usage=Usage(10, written))

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
                            break  # close it early
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
def test_a_thousand_calls_never_exceed_the_limit(worker: bool, limit: int) -> None:
    """Some fail, are closed early, or use more than they reserved; some are rejected or stopped."""
    calls = ManyCalls(Spend(tokens=limit, requests=10**6, warn_at=None), worker)
    if limit > LIMIT:
        calls.check_limit = lambda: None  # type: ignore[method-assign]
    random = Random(7)
    work = [(random.randrange(3), random.randrange(1, 60)) for _ in range(2 * CALLS)]
    ready = Barrier(THREADS + 1)

    def threads(part: int) -> None:
        ready.wait()
        for kind, written in work[part:CALLS:THREADS]:
            calls.call(kind, written)

    async def tasks() -> None:
        ready.wait()
        await asyncio.gather(*(calls.acall(kind, written) for kind, written in work[CALLS:]))

    with ThreadPoolExecutor(THREADS) as pool:
        parts = [pool.submit(threads, part) for part in range(THREADS)]
        asyncio.run(tasks())
        for part in parts:
            part.result()

    snapshot = calls.spend.snapshot()
    assert len(calls.ended) == 2 * CALLS
    assert snapshot["tokens_reserved"] == snapshot["requests_reserved"] == 0
    assert snapshot["tokens"] <= limit
    if limit == LIMIT:
        assert {"ok", "SpendRefused"} <= {*calls.ended}
        assert max(calls.seen) > LIMIT / 2
    else:
        assert {*calls.ended} == {"ok", "KeyError", "ConnectionResetError"}
        assert snapshot["requests"] == 2 * CALLS
        assert snapshot["overdrawn_tokens"] == 0
        streams = sum(streamed(kind, written, aio=i >= CALLS) for i, (kind, written) in enumerate(work))
        assert snapshot["tokens"] == sum(calls.taken) + streams  # exactly


def streamed(kind: int, written: int, *, aio: bool) -> int:
    """Return the tokens that a stream uses."""
    most = 5 if aio else 6
    if kind == 0:
        return 0
    return 10 + (min(written, most) if kind == 2 else written)


def test_cancelled_calls_are_settled_and_leave_nothing_reserved() -> None:
    """They are cancelled at different moments; the tokens reported so far count."""
    spend = Spend(tokens=10**6, requests=10**6)
    calls = ManyCalls(spend)

    async def main() -> None:
        tasks = [asyncio.create_task(calls.acall(number % 3, 50)) for number in range(2 * CALLS)]
        for number in range(20):
            await asyncio.sleep(0)
            for task in tasks[number::20]:
                task.cancel()
        await asyncio.wait(tasks)

    asyncio.run(main())
    snapshot = spend.snapshot()
    assert snapshot["tokens_reserved"] == snapshot["requests_reserved"] == 0
    assert snapshot["tokens"] <= snapshot["requests"] * 60
