"""`async_items`: several consumers of one stream at a time, and the operations that only generators have."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from functools import partial
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry, report
from redouble._drivers.async_generator import async_items
from redouble._drivers.opened_stream import StreamOwner, aopen_first
from tests.support.fakes import ASYNC, in_colour
from tests.support.streams import OpenGate

POLICY = Retry(on=OSError, attempts=3, backoff=[0] * 9)


@pytest.mark.parametrize("wrap", [None, POLICY, OpenGate(), POLICY | OpenGate()])
def test_a_generator_that_iterates_over_itself_is_already_executing(wrap: Callable[..., Any] | None) -> None:
    """`next` and `close` from inside the generator raise, before its first item and before a later one."""
    streams: list[Generator[int]] = []
    seen: list[str] = []

    def ask() -> None:
        for act in (streams[0].__next__, streams[0].close):
            with pytest.raises(ValueError, match="already executing") as caught:
                act()
            seen.append(str(caught.value))

    def items() -> Generator[int]:
        ask()
        yield 1
        ask()
        yield 2

    streams.append((wrap(items) if wrap else items)())
    assert list(streams[0]) == [1, 2]
    assert seen == ["generator already executing"] * 4


@pytest.mark.parametrize("wrap", [None, POLICY, OpenGate(), POLICY | OpenGate()])
@pytest.mark.parametrize("when", [1, 2])
def test_an_async_generator_that_iterates_over_itself_is_already_running(
    wrap: Callable[..., Any] | None, when: int
) -> None:
    """`anext`, `asend` and `aclose` from inside the generator raise, and its consumer gets all items."""
    streams: list[AsyncGenerator[int]] = []
    seen: list[str] = []
    log: list[str] = []

    async def items() -> AsyncGenerator[int]:
        try:
            for number in (1, 2, 3):
                if number == when:
                    stream = streams[0]
                    for act in (stream.__anext__, partial(stream.asend, None), stream.aclose):
                        with pytest.raises(RuntimeError, match=r"asynchronous generator is already running"):
                            await act()
                        seen.append("raised")
                yield number
        finally:
            log.append("closed")

    async def main() -> list[int]:
        streams.append((wrap(items) if wrap else items)())
        return [item async for item in streams[0]]

    for colour in ("asyncio", "trio"):
        assert in_colour(colour, lambda: None, main) == [1, 2, 3]
        assert log == ["closed"]
        log.clear()
        streams.clear()
    assert seen == ["raised"] * 6


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("when", [1, 2])
def test_a_second_task_that_reads_the_same_stream_gets_an_error(colour: str, when: int) -> None:
    """The first task gets its item, and the remaining ones."""
    log: list[object] = []

    async def items() -> AsyncIterator[int]:
        try:
            for number in (1, 2, 3):
                if number == when:
                    await turns(9)
                yield number
        finally:
            log.append("closed")

    async def first(stream: AsyncIterator[int]) -> None:
        log.extend([item async for item in stream])

    async def second(stream: AsyncIterator[int]) -> None:
        await turns(5)
        with pytest.raises(RuntimeError, match="already running") as caught:
            await anext(stream)
        assert report(caught.value) is None

    async def main() -> None:
        stream = POLICY(items)()
        if colour == "trio":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(first, stream)
                nursery.start_soon(second, stream)
        else:
            await asyncio.gather(first(stream), second(stream))

    in_colour(colour, lambda: None, main)
    assert log == ["closed", 1, 2, 3]


async def turns(count: int) -> None:
    """Yield to the event loop this many times."""
    for _ in range(count):
        await SYSTEM.asleep(0)


def test_an_error_thrown_before_the_first_item_is_raised() -> None:
    """The error is raised, whether it was passed as an instance or as a class, and nothing is opened."""
    opened: list[None] = []

    async def items() -> AsyncGenerator[int]:
        opened.append(None)
        yield 1

    async def main() -> None:
        error = ValueError("x")
        throws: list[Callable[[AsyncGenerator[int]], Any]] = [
            lambda stream: stream.athrow(error),
            lambda stream: stream.athrow(ValueError),
        ]
        for throw in throws:
            stream = POLICY(items)()
            with pytest.raises(ValueError):  # noqa: PT011  without a message
                await throw(stream)
            assert [item async for item in stream] == []

    asyncio.run(main())
    assert opened == []


@pytest.mark.parametrize("colour", ASYNC)
def test_a_cancelled_anext_ends_the_stream(colour: str) -> None:
    """Its source is closed at once, whether it is a generator or another iterator."""
    log: list[str] = []

    class Ticks:
        def __init__(self) -> None:
            self.number = 0

        def __aiter__(self) -> AsyncIterator[int]:
            return self

        async def __anext__(self) -> int:
            self.number += 1
            if self.number == 2:
                raise asyncio.CancelledError
            return self.number

        async def aclose(self) -> None:
            log.append("closed")

    async def generated() -> AsyncIterator[int]:
        async for item in Ticks():
            yield item

    async def main() -> None:
        stream = POLICY.stream(Ticks)
        assert await anext(stream) == 1
        with pytest.raises(asyncio.CancelledError):
            await anext(stream)
        assert log == ["closed"]
        assert await anext(stream, "over") == "over"
        over = POLICY(generated)()
        assert await anext(over) == 1
        with pytest.raises(asyncio.CancelledError):
            await anext(over)
        assert await anext(over, "over") == "over"

    in_colour(colour, lambda: None, main)
    assert log == ["closed"]


def test_asend_needs_a_generator() -> None:
    """`asend` raises the AttributeError of the source that was opened."""

    class Mere:
        def __aiter__(self) -> AsyncIterator[int]:
            return self

        async def __anext__(self) -> int:
            return 1

    async def main() -> None:
        stream = async_items(StreamOwner(partial(aopen_first, Mere)))
        assert await stream.asend(None) == 1
        with pytest.raises(AttributeError, match="'Mere' object has no attribute 'asend'"):
            await stream.asend("x")

    asyncio.run(main())


@pytest.mark.parametrize("colour", ASYNC)
def test_asend_cannot_send_a_value_into_a_stream_that_has_not_started(colour: str) -> None:
    """As for a generator; the stream can be read afterwards."""

    async def items() -> AsyncGenerator[int, str]:
        yield 1

    async def main() -> None:
        stream = POLICY(items)()
        with pytest.raises(TypeError, match="can't send non-None value to a just-started async generator"):
            await stream.asend("x")
        assert await anext(stream) == 1
        await stream.aclose()

    in_colour(colour, lambda: None, main)


def test_a_stream_dropped_without_an_event_loop_is_closed() -> None:
    """No task can close it later, so that the finalisation of the generator by Python has to."""
    log: list[str] = []

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            log.append("closed")

    stream = POLICY(items)()
    with pytest.raises(StopIteration) as item:
        stream.__anext__().__await__().__next__()
    assert item.value.value == 1
    del stream, item
    gc.collect()
    assert log == ["closed"]


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("items", [1, 2])
def test_a_source_that_ignores_its_closing_gets_pythons_own_error(colour: str, items: int) -> None:
    async def stubborn() -> AsyncGenerator[int]:
        for number in range(9):
            try:
                yield number
            except GeneratorExit:
                log.append(number)

    async def main() -> None:
        stream = POLICY(stubborn)()
        for _ in range(items):
            await anext(stream)
        with pytest.raises(RuntimeError, match="async generator ignored GeneratorExit"):
            await stream.aclose()

    log: list[int] = []
    in_colour(colour, lambda: None, main)
    assert log[0] == items - 1


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("items", [1, 2])
def test_a_source_may_answer_a_thrown_error_with_an_item(colour: str, items: int) -> None:
    """At the first item and at a later one; the items after it follow."""

    async def answers() -> AsyncGenerator[object]:
        for number in range(9):
            try:
                yield number
            except LookupError as error:
                yield error

    async def main() -> None:
        stream, error = POLICY(answers)(), LookupError()
        for _ in range(items):
            await anext(stream)
        assert await stream.athrow(error) is error
        assert await anext(stream) == items
        await stream.aclose()

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("items", [1, 2])
def test_a_source_may_answer_with_its_end(colour: str, items: int) -> None:
    """To a value that is sent, and to an error that is thrown."""

    async def ends() -> AsyncGenerator[int, Any]:
        for number in range(items):
            try:
                if (yield number):
                    return
            except LookupError:
                return

    async def main() -> None:
        for error in (None, LookupError()):
            stream = POLICY(ends)()
            for _ in range(items):
                await anext(stream)
            with pytest.raises(StopAsyncIteration):
                await (stream.asend("end") if error is None else stream.athrow(error))

    in_colour(colour, lambda: None, main)
