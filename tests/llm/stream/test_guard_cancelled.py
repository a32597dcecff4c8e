"""Cancelling or leaving a reader closes the source at once; a partial stream never looks complete."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import trio

from redouble import SYSTEM
from redouble.llm import CutShort, Spend
from redouble.types import Event
from tests.support.garbage_collection import untraced
from tests.support.llm.chunk_sources import SHAPES, SILENT, CloseFails, Feed, Shape, Takes
from tests.support.llm.guarded_streams import BLOCKING, POLICY, in_place, model
from tests.support.streams import HOOKS

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES)
LOST = ConnectionResetError


async def cancelled(loop: str, seconds: float, read: Callable[[], Awaitable[None]]) -> None:
    """Cancel the reader after some seconds, and wait for its end."""
    if loop == "trio":
        with trio.CancelScope() as scope:
            scope.deadline = trio.current_time() + seconds
            await read()
        assert scope.cancelled_caught
        return

    async def reading() -> None:
        await read()

    task = asyncio.create_task(reading())
    await SYSTEM.asleep(seconds)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def watched(feed: Feed, **options: Any) -> Any:
    """Return a model whose events are recorded in the trail of a feed."""

    def record(event: Event) -> None:
        feed.trail.append(f"{event.what}:{event.attempt}")

    hooks: dict[str, Any] = dict.fromkeys(HOOKS, record)
    return model(policy=replace(POLICY, **hooks), **options)


@LOOPS
@EVERY_SHAPE
@pytest.mark.parametrize(
    ("script", "trail"),
    [
        ([["a", SILENT]], "before_attempt:1 open:1 chunk close:1 left"),
        ([["a", "b", Takes(0.5), "c", SILENT]], "before_attempt:1 open:1 chunk chunk chunk close:1 left"),
        ([[SILENT]], "before_attempt:1 open:1 close:1 left"),
        (
            [[LOST], [SILENT]],
            "before_attempt:1 open:1 close:1 failure:1 retry:1 before_attempt:2 open:2 close:2 left",
        ),
    ],
    ids=["after the first", "later", "before the first", "in the second attempt"],
)
def test_cancellation_closes_the_source_before_it_propagates(
    loop: str, shape: Shape, script: list[list[Any]], trail: str
) -> None:
    """No observer receives a success or a failure."""
    feed = Feed(*script, shape=shape)
    asked = watched(feed, timeouts=None)

    async def read() -> None:
        try:
            async with asked.stream(feed.aopen) as stream:
                async for _ in stream:
                    feed.trail.append("chunk")
        finally:
            feed.trail.append("left")

    in_place(loop, lambda: None, partial(cancelled, loop, 1.5, read))
    assert " ".join(feed.trail) == trail


@LOOPS
def test_cancellation_during_a_delay_ends_the_stream(loop: str) -> None:
    feed = Feed([LOST])
    asked = model(policy=replace(POLICY, backoff=[9, 9]))

    async def read() -> None:
        await anext(asked.stream(feed.aopen))

    in_place(loop, lambda: None, partial(cancelled, loop, 1, read))
    assert feed.trail == ["open:1", "close:1"]


@LOOPS
@pytest.mark.parametrize("script", [["a", SILENT], [SILENT]], ids=["after", "before"])
def test_a_cancelled_stream_never_looks_complete(loop: str, script: list[Any]) -> None:
    """Every further read raises."""
    feed = Feed(script)

    async def main() -> None:
        stream = model().stream(feed.aopen)

        async def read() -> None:
            async for _ in stream:
                pass

        await cancelled(loop, 1, read)
        generator: Any = aiter(stream)
        for read_again in (stream.__anext__, stream.__anext__, partial(generator.asend, None)):
            with pytest.raises(CutShort, match=r"^the stream was cancelled, and closed$"):
                await read_again()
        await stream.aclose()

    in_place(loop, lambda: None, main)
    assert feed.trail == ["open:1", "close:1"]


@LOOPS
@pytest.mark.parametrize("shape", ["close", "aclose"])
def test_an_error_while_closing_does_not_stop_a_cancellation(
    loop: str, shape: Shape, caplog: pytest.LogCaptureFixture
) -> None:
    feed = Feed(["a", CloseFails(KeyError), SILENT], shape=shape)

    async def read() -> None:
        async for _ in model().stream(feed.aopen):
            pass

    in_place(loop, lambda: None, partial(cancelled, loop, 1, read))
    assert feed.trail == ["open:1", "close:1"]
    [record] = caplog.records
    assert record.getMessage().startswith("a stream that had failed could not be closed either: ")


@LOOPS
@EVERY_SHAPE
@pytest.mark.parametrize("chunks", [0, 2])
def test_cancellation_settles_the_usage(loop: str, shape: Shape, chunks: int) -> None:
    spend = Spend(tokens=100, requests=9)
    feed = Feed([*["a"] * chunks, SILENT], shape=shape)

    async def read() -> None:
        async for _ in model(spend=spend, reserve=50).stream(feed.aopen):
            pass

    in_place(loop, lambda: None, partial(cancelled, loop, 1, read))
    seen = spend.snapshot()
    # in the protocol `Words`: one token for the request, and one for each chunk
    assert (seen["tokens"], seen["tokens_reserved"]) == (1 + chunks if chunks else 0, 0)
    assert (seen["requests"], seen["requests_reserved"]) == (1, 0)


# ------------------------------------------------------------------------- leaving a stream


@pytest.mark.parametrize("place", [*BLOCKING, "asyncio", "trio"])
@EVERY_SHAPE
@pytest.mark.parametrize("way", ["break", "error", "close", "drop"])
@pytest.mark.usefixtures(untraced.__name__)
def test_a_reader_that_leaves_closes_the_source(place: str, shape: Shape, way: str) -> None:
    feed = Feed(["a", "b", "end"], shape=shape)
    spend = Spend(tokens=100)
    asked = watched(feed, spend=spend, reserve=50)
    if place == "alone":
        asked = replace(asked, worker=None)

    def blocking() -> None:
        stream = asked.stream(feed.open)
        match way:
            case "break":
                with stream:
                    next(stream)
            case "error":
                with pytest.raises(KeyError), stream:
                    next(stream)
                    raise KeyError
            case "close":
                next(stream)
                stream.close()
                stream.close()
            case _:
                next(stream)
                del stream

    async def waiting() -> None:
        stream = asked.stream(feed.aopen)
        match way:
            case "break":
                async with stream:
                    await anext(stream)
            case "error":
                with pytest.raises(KeyError):
                    async with stream:
                        await anext(stream)
                        raise KeyError
            case "close":
                await anext(stream)
                await stream.aclose()
                await stream.aclose()
            case _:
                await anext(stream)
                del stream
                await SYSTEM.asleep(0.1)

    in_place(place, blocking, waiting)
    assert feed.trail == ["before_attempt:1", "open:1", "close:1", "success:1"]
    assert (spend.snapshot()["tokens"], spend.snapshot()["tokens_reserved"]) == (2, 0)
