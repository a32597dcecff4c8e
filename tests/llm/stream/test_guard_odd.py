"""Protocols that raise, and unusual ways of reading: errors are raised, and nothing stays open."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Generator, Iterator
from contextvars import copy_context
from types import coroutine
from typing import Any

import pytest

from redouble import Pipeline, Retry
from redouble._drivers.opened_stream import END
from redouble.llm import Call, CutShort, ErrorEvent, Protocol, Timeouts, Usage, current
from redouble.llm._call import in_context
from redouble.llm._stream import AsyncStream, BlockingStream
from tests.support.llm.chunk_sources import SILENT, Feed, Words
from tests.support.llm.guarded_streams import PLACES, StreamOutcome, in_place, model, play

LOST = ConnectionResetError
EVERY_PLACE = pytest.mark.parametrize("place", PLACES)


# ------------------------------------------------------------------- protocols that raise


class Broken(Words):
    """A protocol that raises in the method that ``where`` names."""

    where = ""

    def read(self, chunk: object, /) -> ErrorEvent | None:
        if self.where == "read" or (self.where == "second" and self.pieces):
            raise ZeroDivisionError
        return super().read(chunk)

    def cut_short(self) -> str:
        return "" if self.where != "end" else str(1 / 0)


@EVERY_PLACE
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("read", StreamOutcome([], ZeroDivisionError, "stopped", 1)),
        ("second", StreamOutcome(["a"], ZeroDivisionError, "committed", 1)),
        ("end", StreamOutcome(["a", "b"], ZeroDivisionError, "committed", 1)),
    ],
)
def test_an_error_of_a_protocol_is_raised_and_closes_the_source(
    place: str, where: str, expected: StreamOutcome
) -> None:
    feed = Feed(["a", "b"])
    assert play(place, feed, protocol=type("Mine", (Broken,), {"where": where})) == expected
    assert feed.trail.count("close:1") == 1


class UnreadableUsage(Words):
    """A protocol whose usage cannot be read."""

    usage = property(lambda self: Usage(1, 1 // 0), lambda self, value: None)  # pyright: ignore[reportAssignmentType]


@EVERY_PLACE
def test_an_error_in_usage_closes_the_source(place: str) -> None:
    feed = Feed(["a", "b", "end"], shape="close")
    assert play(place, feed, most=1, protocol=UnreadableUsage).raises is ZeroDivisionError
    assert feed.trail.count("close:1") == 1


@EVERY_PLACE
def test_an_error_of_a_protocol_factory_is_raised(place: str) -> None:
    def mine() -> Protocol:
        raise ZeroDivisionError

    assert play(place, Feed(["a"]), protocol=mine) == StreamOutcome([], ZeroDivisionError, "stopped", 1)


@EVERY_PLACE
def test_a_function_that_raises_the_end_of_an_iterator_opens_no_complete_stream(place: str) -> None:
    """It has called ``next`` or ``anext`` on an empty iterator, for instance."""

    def opens() -> Iterator[str]:
        raise StopIteration

    async def aopens() -> AsyncIterator[str]:
        raise StopAsyncIteration

    async def waiting() -> None:
        with pytest.raises(CutShort, match="ended before its first chunk"):
            await anext(model(place).stream(aopens))

    def blocking() -> None:
        with pytest.raises(CutShort, match="ended before its first chunk"):
            next(model(place).stream(opens))

    in_place(place, blocking, waiting)


# ------------------------------------------------------------- contexts, workers, pipelines


@EVERY_PLACE
def test_a_source_can_read_its_call(place: str) -> None:
    """`current()` returns the call from the first chunk to the last, and nowhere else."""
    seen: list[Any] = []

    class Curious(Feed):
        def _next(self, kind: Any) -> Any:
            made = super()._next(kind)
            inner = made.run_step

            def run_step(step: object) -> bool:
                seen.append(current())
                return bool(inner(step))

            made.run_step = run_step
            return made

    assert play(place, Curious(["a", "b", "end"]), idempotency="auto").chunks == ["a", "b", "end"]
    assert len(seen) == 3
    assert len({call.key for call in seen}) == 1
    assert (seen[0].provider, seen[0].stream) == ("acme", True)
    with pytest.raises(LookupError, match=r"^current\(\) is for functions that an llm\.Model calls"):
        current()


def test_a_first_chunk_after_the_timeout_is_closed() -> None:
    """It arrives on an abandoned worker, whose attempt is ignored."""
    feed = Feed([SILENT, "a"], shape="close")

    def opens() -> Iterator[Any]:
        return iter(model(worker=None, policy=Retry(attempts=1), timeouts=None).stream(feed.open))

    outer = model(policy=Retry(attempts=1), timeouts=0.05, protocol=None)
    with pytest.raises(TimeoutError):
        list(outer.stream(opens))
    feed.released.set()
    assert feed.closed.wait(30)
    assert feed.trail == ["open:1", "close:1"]


@EVERY_PLACE
def test_a_pipeline_guards_streams(place: str) -> None:
    feed = Feed([LOST], ["a", "end"])
    layers = Pipeline(model(place))

    def blocking() -> None:
        assert list(layers(feed._generator)()) == ["a", "end"]

    async def waiting() -> None:
        assert [chunk async for chunk in layers(feed._agenerator)()] == ["a", "end"]

    in_place(place, blocking, waiting)
    assert feed.trail == ["open:1", "close:1", "open:2", "close:2"]


def test_a_read_after_close_returns_the_end() -> None:
    """On a busy machine a worker may start to read after the stream was closed."""
    chunks = BlockingStream[str](Call("acme", "m-1", Timeouts()), lambda: iter("ab"), None, None)
    assert next(chunks) == "a"
    chunks.close()
    assert chunks._read_on_worker() is END


def test_a_call_may_end_in_another_context() -> None:
    """For example, a coroutine that is closed after its event loop: the call of that context stays."""
    other = Call("acme", "m-2", Timeouts())
    scope = in_context(Call("acme", "m-1", Timeouts()))
    copy_context().run(scope.__enter__)
    with in_context(other):
        scope.__exit__(None, None, None)
        assert current() is other


def test_a_read_may_end_in_another_context() -> None:
    class Endless:
        def __aiter__(self) -> Endless:
            return self

        @coroutine
        def __anext__(self) -> Generator[None, None, int]:
            yield
            return 1

    other = Call("acme", "m-2", Timeouts())
    reading = AsyncStream[int](Call("acme", "m-1", Timeouts()), Endless, None, None).__anext__()
    copy_context().run(reading.send, None)
    with in_context(other):
        reading.close()
        assert current() is other


# ---------------------------------------------------------------- the methods of a generator


@EVERY_PLACE
def test_sending_to_a_generator_returns_the_next_chunk(place: str) -> None:
    feed = Feed(["a", "b", "end"])

    def blocking() -> None:
        chunks: Any = model(place)(feed._generator)()
        assert [next(chunks), chunks.send(7), chunks.send(None)] == ["a", "b", "end"]

    async def waiting() -> None:
        chunks: Any = model(place)(feed._agenerator)()
        assert [await anext(chunks), await chunks.asend(7), await chunks.asend(None)] == ["a", "b", "end"]
        await chunks.aclose()

    in_place(place, blocking, waiting)
    assert feed.trail == ["open:1", "close:1"]


@EVERY_PLACE
@pytest.mark.parametrize("more", [(), (None,), (KeyError("own"),)])
def test_an_error_thrown_into_a_generator_is_raised(place: str, more: tuple[Any, ...]) -> None:
    """The source is closed."""
    feed = Feed(["a", "b", "end"])
    error = KeyError("own")
    kinds = (KeyError, *more) if more and more[0] is not None else (error,)

    def blocking() -> None:
        chunks: Any = model(place)(feed._generator)()
        next(chunks)
        with pytest.raises(KeyError, match="own"):
            chunks.throw(kinds[-1])

    async def waiting() -> None:
        chunks: Any = model(place)(feed._agenerator)()
        await anext(chunks)
        with pytest.raises(KeyError, match="own"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await chunks.athrow(*kinds)

    in_place(place, blocking, waiting)
    assert feed.trail == ["open:1", "close:1"]
