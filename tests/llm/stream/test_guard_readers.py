"""Two readers of one stream, garbage collection, Ctrl-C: nothing stays open, and no tokens are lost."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from redouble import SYSTEM
from redouble.llm import Spend, _stream
from tests.support.interruption import SignalHandler, ctrl_c
from tests.support.llm.chunk_sources import SHAPES, SILENT, Feed, Shape
from tests.support.llm.guarded_streams import BLOCKING, PLACES, in_place, model, play

EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
LOOPS = pytest.mark.parametrize("loop", ["asyncio", "trio"])


# ---------------------------------------------------------------------------- two readers


@pytest.mark.parametrize("place", BLOCKING)
@pytest.mark.parametrize("script", [[SILENT, "a", "end"], ["a", SILENT, "end"]], ids=["opening", "reading"])
def test_a_second_thread_that_reads_raises(place: str, script: list[Any]) -> None:
    """A concurrent ``close`` raises too; the first reader continues."""
    feed = Feed(script)
    stream = model(place, timeouts=None).stream(feed.open)
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list[Any], stream)
        while feed.reads < 1 + script.index(SILENT):
            SYSTEM.sleep(0)
        for wrong in (stream.__next__, stream.close):
            with pytest.raises(ValueError, match="already executing"):
                wrong()
        feed.released.set()
        assert reading.result() == ["a", "end"]
    assert feed.trail == ["open:1", "close:1"]


@LOOPS
@pytest.mark.parametrize("script", [[SILENT, "a", "end"], ["a", SILENT, "end"]], ids=["opening", "reading"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_second_task_that_reads_raises(loop: str, shape: Shape, script: list[Any]) -> None:
    feed = Feed(script, shape=shape)
    stream = model(timeouts=None).stream(feed.aopen)

    async def read() -> list[Any]:
        return [chunk async for chunk in stream]

    async def intrude() -> None:
        await SYSTEM.asleep(1)
        for wrong in (stream.__anext__, stream.aclose):
            with pytest.raises(RuntimeError, match=r"already running$"):
                await wrong()

    async def main() -> Any:
        if loop == "asyncio":
            chunks, _ = await asyncio.gather(read(), intrude())
            return chunks
        async with trio.open_nursery() as nursery:
            nursery.start_soon(intrude)
            return await read()

    assert in_place(loop, list, main) == ["a", "end"]
    assert feed.trail == ["open:1", "close:1"]


@LOOPS
def test_a_stream_cannot_be_read_in_both_colours(loop: str) -> None:
    """It would have to be opened twice."""
    feed = Feed(["a", "end"])

    async def main() -> None:
        stream = model().stream(feed.open)
        assert list(stream) == ["a", "end"]
        with pytest.raises(
            RuntimeError, match=r"^this stream has been read: call model\.stream\(\.\.\.\) aga"
        ):
            await anext(stream)

    in_place(loop, lambda: None, main)
    assert feed.opened == 1


@EVERY_PLACE
def test_an_ended_stream_yields_nothing_more(place: str) -> None:
    feed = Feed(["a", "end"])

    def blocking() -> None:
        stream = model(place).stream(feed.open)
        assert (list(stream), list(stream)) == (["a", "end"], [])

    async def waiting() -> None:
        stream = model(place).stream(feed.aopen)
        assert [chunk async for chunk in stream] == ["a", "end"]
        assert [chunk async for chunk in stream] == []

    in_place(place, blocking, waiting)
    assert feed.opened == 1


# ------------------------------------------------------------------ streams without a reader


@EVERY_PLACE
@pytest.mark.parametrize("shape", SHAPES)
def test_a_garbage_collected_stream_is_closed_and_settled(place: str, shape: Shape) -> None:
    """Although its reservation is part of the same garbage."""
    if place == "trio" and "manager" in shape:
        pytest.skip("Trio warns of the generator that the manager is")
    feed, spend = Feed(["a", "b", "end"], shape=shape), Spend(tokens=100)
    asked = model(place, spend=spend, reserve=50)

    def blocking() -> None:
        stream = asked.stream(feed.open)
        next(stream)
        circle: list[Any] = [stream]
        circle.append(circle)
        del stream, circle
        gc.collect()

    async def waiting() -> None:
        stream = asked.stream(feed.aopen)
        await anext(stream)
        circle: list[Any] = [stream]
        circle.append(circle)
        del stream, circle
        gc.collect()
        await SYSTEM.asleep(0.001)
        if place == "trio":
            await wait_all_tasks_blocked()

    gc.disable()
    try:
        in_place(place, blocking, waiting)
    finally:
        gc.enable()
    assert feed.trail == ["open:1", "close:1"]
    assert (spend.snapshot()["tokens"], spend.snapshot()["tokens_reserved"]) == (2, 0)


@LOOPS
def test_a_stream_that_outlives_its_loop_is_settled(loop: str) -> None:
    """With the usage reported so far."""
    feed, spend = Feed(["a", "b", "end"], shape="close"), Spend(tokens=100)
    kept: list[Any] = []

    async def main() -> None:
        stream = model(spend=spend, reserve=50).stream(feed.aopen)
        await anext(stream)
        kept.append(stream)

    in_place(loop, lambda: None, main)
    assert spend.snapshot()["tokens_reserved"] == 50
    kept.clear()
    assert (spend.snapshot()["tokens"], spend.snapshot()["tokens_reserved"]) == (2, 0)


@EVERY_PLACE
def test_an_unread_stream_is_never_opened(place: str) -> None:
    feed, spend = Feed(["a"]), Spend(tokens=9)

    def blocking() -> None:
        with model(place, spend=spend, reserve=5).stream(feed.open):
            pass

    async def waiting() -> None:
        async with model(place, spend=spend, reserve=5).stream(feed.aopen):
            pass

    in_place(place, blocking, waiting)
    assert (feed.opened, spend.snapshot()["tokens_reserved"]) == (0, 0)


@EVERY_PLACE
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("chunks", [[], ["a"]], ids=["before", "after"])
def test_keyboard_interrupt_in_a_chunk_propagates(
    place: str, error: type[BaseException], chunks: list[str]
) -> None:
    """No success or failure is emitted, nothing is retried, and the reservation is settled."""
    spend = Spend(tokens=100)
    read = play(place, Feed([*chunks, error], shape="close"), spend=spend, reserve=50)
    assert (read.chunks, read.raises, read.attempts) == (chunks, error, 1)
    assert read.events is not None
    assert read.events.split()[-2:] == ["close:1", "left"]
    assert not {"failure:1", "success:1", "give_up:1"} & {*read.events.split()}
    assert (spend.snapshot()["tokens"], spend.snapshot()["tokens_reserved"]) == (2 if chunks else 0, 0)


def test_ctrl_c_while_a_stream_is_closed_leaves_nothing_open() -> None:
    """Wherever it comes, the source is closed at the latest with the stream."""
    reached, number = True, 0
    while reached:
        number += 1
        feed, spend = Feed(["a", "b", "end"], shape="close"), Spend(tokens=100)
        chunks = model("alone", spend=spend, reserve=50).stream(feed.open)
        next(chunks)
        handler = SignalHandler({_stream.__file__}, ctrl_c, number, everywhere=True)
        reached = handler.interrupt(chunks.close, KeyboardInterrupt)
        del chunks, handler  # it refers to the frames
        gc.collect()
        assert feed.trail == ["open:1", "close:1"]
        assert spend.snapshot()["tokens_reserved"] == 0
    assert number > 5
