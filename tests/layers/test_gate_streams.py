"""Gates around streams: passed once, held while the stream is open, left exactly once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from redouble import SYSTEM, Gate, Retry, errors, report
from tests.support.fakes import ASYNC, Boom, Panic, Virtual, in_colour
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


def play(colour: str, gate: Gate, script: list[Any], reader: Reader = Reader()) -> list[object]:  # noqa: B008  frozen
    """Read a gated stream; return its items, and its error if there is one."""
    tape, taken = ScriptedSource([script], Virtual(), []), list[object]()

    async def waiting() -> None:
        await reader.aread(gate(tape.aitems), taken)

    try:
        in_colour(colour, lambda: reader.read(gate(tape.items), taken), waiting)
    except BaseException as error:
        taken.append(error)
    assert tape.trail.count("open:1") == tape.trail.count("close:1") == tape.opened
    return taken


BOOM, PANIC = Boom("x"), Panic()


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
        # leaving early is a good end
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
def test_one_stream(
    colour: str, script: list[Any], reader: Reader, taken: list[Any], left: list[Any]
) -> None:
    gate = RecordingGate()
    assert play(colour, gate, script, reader) == taken
    assert gate.left == left
    assert gate.inside == 0


def test_held_while_it_is_open(colour: str) -> None:
    """From the first item asked for until the end, by the gate's own clock."""
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


def test_turned_away(colour: str) -> None:
    """Then nothing is opened; and once there is room, another one may pass."""
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


def test_retried_through_a_gate(colour: str) -> None:
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
    said = report(late)
    assert said is not None
    assert (said.reason, said.attempts) == ("committed", 3)


def test_a_rejection_is_retried(colour: str) -> None:
    """A gate that is closed when the stream begins is worth another attempt."""
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
    said = report(caught.value)
    assert said is not None
    assert said.attempts == 3
    assert tape.opened == 0
    assert all(2 <= wait <= 2.2 for wait in gate.virtual.waits)


@pytest.mark.parametrize("after", [1, 2])
def test_a_source_that_cannot_be_closed(colour: str, after: int) -> None:
    """No slot is lost."""
    gate = RecordingGate()

    def spoilt() -> Generator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def aspoilt() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
        finally:
            raise Boom

    async def waiting() -> None:
        await Reader("close", after).aread(gate(aspoilt), [])

    with pytest.raises(Boom) as caught:
        in_colour(colour, lambda: Reader("close", after).read(gate(spoilt), []), waiting)
    assert gate.inside == 0
    assert gate.left == [caught.value]


def test_a_layer_of_one_s_own(colour: str) -> None:
    """A gate may override one method for streams; the others are not affected."""
    log: list[str] = []

    class Own(RecordingGate):
        def around_stream(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
            def wrapped(*args: Any) -> Iterator[Any]:
                log.append("own")
                yield from fn(*args)

            return wrapped

    gate = Own()
    assert play(colour, gate, [1]) == [1]
    assert (log, len(gate.left)) == (([], 1) if colour in ASYNC else (["own"], 0))
