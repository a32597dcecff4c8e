"""What the guard of a stream costs a chunk, and an allowance a call: nothing of it is the model's time.

By hand is what one would write to limit the silence, and that alone: who tells ends and errors apart as well
has to look at each chunk, as the guard does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from threading import Lock

from benchmarks.row import Row
from benchmarks.streams import async_items, items
from benchmarks.timing import Effort, race, statement
from redouble import llm

SILENCE = 30.0
END: object = object()

row = partial(Row, about="asking")


def said(finish: str | None = None) -> dict[str, object]:
    """Make a chunk as the SDKs give them, but as a dict."""
    choice = {"index": 0, "delta": {"content": " hello"}, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice]}


CHUNK, LAST = said(), said("stop")
PIECE = f"data: {json.dumps(CHUNK)}\n\n".encode()
DONE = b"data: [DONE]\n\n"


def parsed(count: int) -> Iterator[object]:
    """Stream what was parsed already."""
    yield from repeat(CHUNK, count - 1)
    yield LAST


def pieces(count: int) -> Iterator[object]:
    """Stream the pieces of a body."""
    yield from repeat(PIECE, count - 1)
    yield DONE


async def aparsed(count: int) -> AsyncGenerator[object, None]:
    """Wait once for each chunk, for no time, as for a socket."""
    for chunk in parsed(count):
        await asyncio.sleep(0)
        yield chunk


async def apieces(count: int) -> AsyncGenerator[object, None]:
    """Wait in the same way for the pieces of a body."""
    for piece in pieces(count):
        await asyncio.sleep(0)
        yield piece


async def alimited(count: int) -> AsyncIterator[object]:
    """Limit the silence by hand."""
    source = aiter(aparsed(count))
    while True:
        async with asyncio.timeout(SILENCE):
            chunk = await anext(source, END)
        if chunk is END:
            return
        yield chunk


def limited(pool: ThreadPoolExecutor, count: int) -> Iterator[object]:
    """Limit the silence of blocking code by hand: on a thread."""
    source = parsed(count)
    while (chunk := pool.submit(next, source, END).result(SILENCE)) is not END:
        yield chunk


class Counted:
    """An allowance by hand: it knows tokens, and no window, no money and no overdraft."""

    def __init__(self, tokens: int) -> None:
        self._left, self._lock = tokens, Lock()

    def reserve(self, tokens: int) -> None:
        """Set tokens aside."""
        with self._lock:
            if tokens > self._left:
                raise RuntimeError("too little is left")
            self._left -= tokens

    def commit(self, held: int, taken: int) -> None:
        """Hand back what was not taken."""
        with self._lock:
            self._left += held - taken


def models(effort: Effort) -> Iterator[Row]:
    """Measure."""
    limits = llm.Timeouts(read=SILENCE, total=None)
    here, there = llm.Model("acme", "large", limits, worker=None), llm.Model("acme", "large", limits)
    blind = llm.Model("acme", "large", limits, protocol=None)
    with asyncio.Runner() as runner:
        ways = {
            "by hand": async_items(runner, alimited),
            "redouble": async_items(runner, here.around_async_stream(aparsed)),
            "nothing is looked at": async_items(runner, blind.around_async_stream(aparsed)),
            "bare": async_items(runner, aparsed),
        }
        yield row("a chunk of a guarded stream, async", race(ways, effort), 1.5)
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
        yield row("a chunk of a guarded stream, blocking", race(blocking, effort), 1.5)
    spend, counted = llm.Spend(tokens=10**15, per=60, warn_at=None), Counted(10**15)
    allowances = {
        "redouble": statement("spend.reserve(tokens=900).commit(tokens=300)", spend=spend),
        "by hand": statement("counted.reserve(900); counted.commit(900, 300)", counted=counted),
    }
    yield row("an allowance, reserved and settled", race(allowances, effort), None)
