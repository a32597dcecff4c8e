"""The cost of a guarded model stream per chunk, and of a spend limit per call, without the model's own time.

The hand-written stream only limits the time between chunks; to detect ends and errors it would have to
inspect each chunk, as the guard does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from threading import Lock

from benchmarks.streams import async_items, items
from benchmarks.table_row import Row
from benchmarks.timing import Effort, race, statement
from redouble import llm

SILENCE = 30.0
END: object = object()

row = partial(Row, about="llm")


def chunk(finish: str | None = None) -> dict[str, object]:
    """Return a chunk like those of the SDKs, as a dict."""
    choice = {"index": 0, "delta": {"content": " hello"}, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


CHUNK, LAST = chunk(), chunk("stop")
PIECE = f"data: {json.dumps(CHUNK)}\n\n".encode()
DONE = b"data: [DONE]\n\n"


def parsed(count: int) -> Iterator[object]:
    """Yield parsed chunks."""
    yield from repeat(CHUNK, count - 1)
    yield LAST


def pieces(count: int) -> Iterator[object]:
    """Yield the pieces of an event-stream body."""
    yield from repeat(PIECE, count - 1)
    yield DONE


async def aparsed(count: int) -> AsyncGenerator[object, None]:
    """Yield parsed chunks, suspending once for each as for a socket."""
    for item in parsed(count):
        await asyncio.sleep(0)
        yield item


async def apieces(count: int) -> AsyncGenerator[object, None]:
    """Yield pieces of a body in the same way."""
    for piece in pieces(count):
        await asyncio.sleep(0)
        yield piece


async def alimited(count: int) -> AsyncIterator[object]:
    """Limit the time between chunks by hand."""
    source = aiter(aparsed(count))
    while True:
        async with asyncio.timeout(SILENCE):
            item = await anext(source, END)
        if item is END:
            return
        yield item


def limited(pool: ThreadPoolExecutor, count: int) -> Iterator[object]:
    """Limit the time between chunks of blocking code by hand: on a thread."""
    source = parsed(count)
    while (item := pool.submit(next, source, END).result(SILENCE)) is not END:
        yield item


class TokenCounter:
    """A hand-written spend limit: tokens only, without a window, money or overdraft."""

    def __init__(self, tokens: int) -> None:
        self._left, self._lock = tokens, Lock()

    def reserve(self, tokens: int) -> None:
        """Reserve tokens."""
        with self._lock:
            if tokens > self._left:
                raise RuntimeError("too little is left")
            self._left -= tokens

    def commit(self, reserved: int, used: int) -> None:
        """Return the unused part of a reservation."""
        with self._lock:
            self._left += reserved - used


def llm_streams(effort: Effort) -> Iterator[Row]:
    """Measure and yield the rows."""
    limits = llm.Timeouts(read=SILENCE, total=None)
    here, there = llm.Model("acme", "large", limits, worker=None), llm.Model("acme", "large", limits)
    blind = llm.Model("acme", "large", limits, protocol=None)
    with asyncio.Runner() as runner:
        variants = {
            "by hand": async_items(runner, alimited),
            "redouble": async_items(runner, here.around_async_stream(aparsed)),
            "nothing is looked at": async_items(runner, blind.around_async_stream(aparsed)),
            "bare": async_items(runner, aparsed),
        }
        yield row("a chunk of a guarded stream, async", race(variants, effort), 1.5)
        bytes_ = {
            "redouble": async_items(runner, here.around_async_stream(apieces)),
            "bare": async_items(runner, apieces),
        }
        yield row("a piece of a body of events, async", race(bytes_, effort), None, base="bare")
    with ThreadPoolExecutor(1) as pool:
        blocking = {
            "by hand": items(partial(limited, pool)),
            "redouble": items(lambda count: iter(there.stream(parsed, count))),
            "without a worker": items(lambda count: iter(here.stream(parsed, count))),
            "bare": items(parsed),
        }
        yield row("a chunk of a guarded stream, blocking", race(blocking, effort), 1.3)
    spend, counted = llm.Spend(tokens=10**15, per=60, warn_at=None), TokenCounter(10**15)
    allowances = {
        "redouble": statement("spend.reserve(tokens=900).commit(tokens=300)", spend=spend),
        "by hand": statement("counted.reserve(900); counted.commit(900, 300)", counted=counted),
    }
    yield row("an allowance, reserved and settled", race(allowances, effort), 8.0)
