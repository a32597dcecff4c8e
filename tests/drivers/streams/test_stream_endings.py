"""Streams that end in unusual ways: collected in a cycle, cancelled half way, broken and resumed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Retry
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.garbage_collection import without_gc

POLICY = Retry(on=Boom, backoff=[0] * 9)
LOG: list[str] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    LOG.clear()


async def turns(count: int) -> None:
    for _ in range(count):
        await SYSTEM.asleep(0)


# ------------------------------------------------------------------- the garbage collector


class Client:
    """Refers to its own stream, which refers to the client: a reference cycle."""

    def __init__(self) -> None:
        self.events: Any = self.listen()

    @POLICY
    async def listen(self) -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            LOG.append("closing")
            await turns(2)
            LOG.append("closed")


class TwicePolicied(Client):
    """The same with two policies: the collector finalises two of our generators, and the source."""

    listen = Retry(on=Boom, nested="allow")(Client.listen)


@pytest.mark.usefixtures(without_gc.__name__)
@pytest.mark.parametrize("make", [Client, TwicePolicied])
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("colour", ASYNC)
def test_cleanup_that_awaits_is_completed_after_collection(
    colour: str, make: type[Client], backwards: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The garbage collector finalises the source too, before or after the generator that closes it."""
    errors: list[object] = []

    async def main() -> None:
        if colour != "trio":
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        client = make()
        if backwards:
            gc.collect(0)  # the collector finalises objects of the next generation last
        assert await anext(client.events) == 1
        del client
        gc.collect()
        await turns(20)

    in_colour(colour, lambda: None, main)
    assert LOG == ["closing", "closed"]
    assert (errors, caplog.records) == ([], [])


class Response:
    """An iterable whose iterator is a generator, and which has to be closed itself."""

    async def __aiter__(self) -> AsyncIterator[int]:
        for number in (1, 2, 3):
            yield number
            await turns(99)

    async def aclose(self) -> None:
        LOG.append("response closed")
        await turns(1)


@pytest.mark.parametrize("colour", ASYNC[:-1])
def test_the_response_is_closed_when_its_iterator_is_collected(colour: str) -> None:
    async def main() -> None:
        holder: list[Any] = [POLICY.stream(Response)]
        holder.append(aiter(holder[0]))
        holder.append(holder)
        assert await anext(holder[1]) == 1
        del holder
        gc.collect()
        await turns(9)

    in_colour(colour, lambda: None, main)
    assert LOG == ["response closed"]


# ---------------------------------------------------------------------------- cancellation


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize("colour", ASYNC)
def test_the_response_is_closed_when_its_reader_is_cancelled(colour: str, managed: bool) -> None:
    """The cancellation has ended the iterator, but not the response that it belongs to."""

    async def read() -> None:
        stream = POLICY.stream(Response)
        if managed:
            async with stream:
                async for _ in stream:
                    pass
        else:
            async for _ in stream:
                pass

    async def main() -> None:
        if colour == "trio":
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(read)
                    await turns(5)
                    scope.cancel()
        else:
            task = asyncio.ensure_future(read())
            await turns(5)
            task.cancel()
            await asyncio.wait([task])
            del task
        await turns(9)

    in_colour(colour, lambda: None, main)
    assert LOG == ["response closed"] or (
        colour == "trio" and managed and not LOG
    )  # Trio cancels aclose() too


@pytest.mark.parametrize("colour", ASYNC[:-1])
def test_a_cancelled_stream_emits_nothing(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is neither a success nor a failure, and an error of closing it is logged."""

    class Spoilt(Response):
        async def aclose(self) -> None:
            raise Boom("spoilt")

    events: list[Event] = []
    policy = Retry(on=Boom, on_success=events.append, on_failure=events.append, on_give_up=events.append)

    async def main() -> None:
        stream = policy.stream(Spoilt)
        reading = asyncio.ensure_future(anext(aiter(stream)))
        await reading
        reading = asyncio.ensure_future(anext(aiter(stream)))
        await turns(2)
        reading.cancel()
        await asyncio.wait([reading])
        assert reading.cancelled()
        await stream.aclose()

    in_colour(colour, lambda: None, main)
    assert events == []
    assert "spoilt" in caplog.text


@pytest.mark.parametrize("colour", ASYNC)
def test_a_stream_is_running_while_its_failed_source_is_closed(colour: str) -> None:
    class Broken:
        numbers = iter([1])

        def __aiter__(self) -> Broken:
            return self

        async def __anext__(self) -> int:
            for number in self.numbers:
                return number
            raise Boom

        async def aclose(self) -> None:
            for act in (anext(items), items.aclose()):
                with pytest.raises(RuntimeError, match="already running"):
                    await act
                LOG.append("raised")

    async def more(last: int) -> AsyncIterator[int]:
        yield last + 1

    stream: Any = POLICY.stream(Broken, resume=more)
    items = aiter(stream)

    async def main() -> list[int]:
        return [item async for item in stream]

    assert in_colour(colour, lambda: None, main) == [1, 2]
    assert LOG == ["raised", "raised"]
