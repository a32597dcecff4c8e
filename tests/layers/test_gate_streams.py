"""Gates around streams: each stream is admitted once, and its admission ends once, with the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from redouble import SYSTEM, Retry, errors, report
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour
from tests.support.layers.gates import BOOM, PANIC, read_gated
from tests.support.streams import Reader, RecordingGate, Returns, ScriptedSource


class Timed(RecordingGate):
    """A gate that records times too, and admits at most this many."""

    def __init__(self, most: int = 1) -> None:
        super().__init__()
        self.most = most
        self.clock = self.virtual = Virtual()
        self.times: list[float] = []

    def admit(self, now: float, /) -> None:
        if self.inside == self.most:
            raise errors.Rejected("full", retry_after=2)
        self.times.append(now)
        super().admit(now)

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        self.times.append(now)
        super().ended(ticket, error, now)


@pytest.mark.parametrize(
    ("script", "reader", "taken", "left"),
    [
        ([1, 2], Reader(), [1, 2], [None]),
        ([], Reader(), [], [None]),
        ([1, Returns("x")], Reader(), [1], [None]),
        ([BOOM], Reader(), [BOOM], [BOOM]),
        ([1, BOOM], Reader(), [1, BOOM], [BOOM]),
        ([PANIC], Reader(), [PANIC], [PANIC]),
        ([1, PANIC], Reader(), [1, PANIC], [PANIC]),
        # closing early counts as success
        *(([1, 2], Reader(way), [1], [None]) for way in ("break", "close", "drop")),
        *(([1, 2, 3], Reader(way, 2), [1, 2], [None]) for way in ("break", "close", "drop")),
        ([1, 2], Reader("raise", 1, BOOM), [1, BOOM], [None]),
        # not started: not admitted
        ([1, 2], Reader("close", 0), [], []),
        ([1, 2], Reader("drop", 0), [], []),
        # values that are sent and errors that are thrown reach the generator
        ([1, 2], Reader("send", 1, "x"), [1, 2], [None]),
        ([1, 2], Reader("throw", 1, BOOM), [1, BOOM], [BOOM]),
        ([1, 2], Reader("throw", 1, PANIC), [1, PANIC], [PANIC]),
    ],
)
def test_how_the_admission_of_a_stream_ends(
    colour: str, script: list[Any], reader: Reader, taken: list[Any], left: list[Any]
) -> None:
    gate = RecordingGate()
    assert read_gated(colour, gate, script, reader) == taken
    assert gate.left == left
    assert gate.inside == 0


def test_an_admission_lasts_while_the_stream_is_open(colour: str) -> None:
    """From the request of the first item until the end, by the gate's own clock."""
    gate = Timed()

    def steps() -> Iterator[int]:
        yield 1
        assert gate.inside == 1
        gate.virtual.time += 3
        yield 2

    async def asteps() -> AsyncIterator[int]:
        for item in steps():
            await SYSTEM.asleep(0)
            yield item

    def blocking() -> None:
        stream = gate(steps)()
        gate.virtual.time = 5
        assert [*stream] == [1, 2]

    async def waiting() -> None:
        stream = gate(asteps)()
        gate.virtual.time = 5
        assert [item async for item in stream] == [1, 2]

    in_colour(colour, blocking, waiting)
    assert gate.times == [5, 8]


def test_a_rejected_stream_is_not_opened(colour: str) -> None:
    """When the admitted stream has ended, another one is admitted."""
    gate, tape = Timed(), ScriptedSource([[1, 2]], Virtual(), [])

    def blocking() -> None:
        first = gate(tape.items)()
        assert next(first) == 1
        second = gate(tape.items)()
        with pytest.raises(errors.Rejected, match="full"):
            next(second)
        assert list(second) == []
        first.close()
        assert list(gate(tape.items)()) == [1, 2]

    async def waiting() -> None:
        first = gate(tape.aitems)()
        assert await anext(first) == 1
        second = gate(tape.aitems)()
        with pytest.raises(errors.Rejected, match="full"):
            await anext(second)
        assert [item async for item in second] == []
        await first.aclose()
        assert [item async for item in gate(tape.aitems)()] == [1, 2]

    in_colour(colour, blocking, waiting)
    assert tape.opened == 2
    assert gate.left == [None, None]


def test_a_retried_stream_through_gates(colour: str) -> None:
    """Inside the policy, the gate sees every attempt; outside, one stream. A late error is committed."""
    late = Boom("late")
    outer, inner = RecordingGate(), RecordingGate()
    tape = ScriptedSource([["fail"], ["fail"], [1, late]], Virtual(), [])
    policy = Retry(on=Boom, backoff=[0] * 9)

    def blocking() -> None:
        list((outer | policy | inner)(tape.items)())

    async def waiting() -> None:
        async for _ in (outer | policy | inner)(tape.aitems)():
            pass

    with pytest.raises(Boom, match="late"):
        in_colour(colour, blocking, waiting)
    assert [type(error) for error in inner.left] == [Boom] * 3
    assert outer.left == [late]
    found = report(late)
    assert found is not None
    assert (found.reason, found.attempts) == ("committed", 3)


def test_a_rejection_is_retried(colour: str) -> None:
    """A gate that rejects a stream when it begins causes another attempt."""
    gate = Timed()
    policy = Retry(backoff=[0] * 9, attempts=3, clock=gate.virtual)
    tape = ScriptedSource([[1]], Virtual(), [])

    def blocking() -> object:
        with gate:
            return next((policy | gate)(tape.items)())

    async def waiting() -> object:
        with gate:
            return await anext((policy | gate)(tape.aitems)())

    with pytest.raises(errors.Rejected) as caught:
        in_colour(colour, blocking, waiting)
    found = report(caught.value)
    assert found is not None
    assert found.attempts == 3
    assert tape.opened == 0
    assert all(2 <= wait <= 2.2 for wait in gate.virtual.waits)


@pytest.mark.parametrize("after", [1, 2])
def test_a_stream_whose_close_raises_ends_its_admission(colour: str, after: int) -> None:
    gate = RecordingGate()

    def failing() -> Generator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def afailing() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def waiting() -> None:
        await Reader("close", after).aread(gate(afailing), [])

    with pytest.raises(Boom) as caught:
        in_colour(colour, lambda: Reader("close", after).read(gate(failing), []), waiting)
    assert gate.inside == 0
    assert gate.left == [caught.value]


def test_a_gate_may_override_one_method_for_streams(colour: str) -> None:
    """The other methods are not affected."""
    log: list[str] = []

    class Own(RecordingGate):
        def around_stream(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
            def wrapped(*args: Any) -> Iterator[Any]:
                log.append("own")
                yield from fn(*args)

            return wrapped

    gate = Own()
    assert read_gated(colour, gate, [1]) == [1]
    assert (log, len(gate.left)) == (([], 1) if colour in ASYNC else (["own"], 0))
