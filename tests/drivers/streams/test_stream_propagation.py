"""Gates around streams: each admission ends exactly once, however and wherever the stream ends."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM
from tests.support.fakes import ASYNC, Virtual, in_colour
from tests.support.layers.gates import BOOM, PANIC, read_gated
from tests.support.streams import Reader, RecordingGate, ScriptedSource, until_closed


@pytest.mark.parametrize("where", ["first", "later", "body"])
@pytest.mark.parametrize("colour", ASYNC)
def test_a_cancelled_stream_ends_its_admission(colour: str, where: str) -> None:
    """The gate gets the cancellation of a wait for an item; a cancellation of the body closes the stream."""
    gate, begun = RecordingGate(), asyncio.Event()

    async def items() -> AsyncIterator[int]:
        if where == "later":
            yield 1
        if where != "body":
            begun.set()
            await SYSTEM.asleep(1e6)
        yield 2

    async def work() -> None:
        async for _ in gate(items)():
            if where == "body":
                begun.set()
                await SYSTEM.asleep(1e6)

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(work())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            while not begun.is_set():
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    cancelled = trio.Cancelled if colour == "trio" else asyncio.CancelledError
    assert [type(error) for error in gate.left] == [type(None) if where == "body" else cancelled]
    assert gate.inside == 0


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # Trio's hook warns, correctly
@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("where", ["thread", "after"])
def test_a_stream_dropped_outside_its_loop_ends_its_admission(colour: str, where: str) -> None:
    """In another thread, or after the event loop has ended, nothing can be awaited."""
    gate, kept = RecordingGate(), list[Any]()
    tape = ScriptedSource([[1, 2]], Virtual(), [])

    async def main() -> None:
        kept.append(gate(tape.aitems)())
        assert await anext(kept[0]) == 1
        if where == "thread":
            thread = threading.Thread(target=kept.clear)
            thread.start()
            thread.join()
            assert gate.inside == 0
            await SYSTEM.asleep(0)

    in_colour(colour, lambda: None, main)
    kept.clear()
    gc.collect()
    assert gate.inside == 0
    assert len(gate.left) == 1


@pytest.mark.parametrize("colour", ASYNC)
def test_a_stream_in_a_reference_cycle_ends_its_admission_when_collected(colour: str) -> None:
    """The source is closed without a warning, because only the gate refers to it."""
    gate, tape = RecordingGate(), ScriptedSource([[1, 2]], Virtual(), [])

    class Node:
        stream: Any
        itself: Any

    async def main() -> None:
        node = Node()
        node.stream, node.itself = gate(tape.aitems)(), node
        await anext(node.stream)
        del node
        gc.collect()
        await until_closed(colour)
        assert tape.trail == ["open:1", "close:1"]

    in_colour(colour, lambda: None, main)
    assert gate.left == [None]


@given(
    steps=st.lists(st.sampled_from([1, 2, BOOM, PANIC]), max_size=5),
    reader=st.builds(
        Reader, st.sampled_from(["exhaust", "break", "close", "drop", "send"]), st.integers(0, 4)
    ),
    colour=st.sampled_from(["sync", "asyncio", "trio"]),
)
def test_every_admission_ends(steps: list[Any], reader: Reader, colour: str) -> None:
    """However the stream ends, the gate is left once."""
    gate = RecordingGate()
    read_gated(colour, gate, steps, reader)
    assert gate.inside == 0
    assert len(gate.left) <= 1
