"""A stream may be opened in several shapes; each one is read, and closed at once and exactly once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble.llm import CutShort
from tests.support.llm.chunk_sources import SHAPES, Awaited, CloseFails, Feed, Shape
from tests.support.llm.guarded_streams import PLACES, StreamOutcome, in_place, model, play

LOST = ConnectionResetError
B1 = "before_attempt:1 open:1"

EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES)


@EVERY_PLACE
@EVERY_SHAPE
@pytest.mark.parametrize(
    ("script", "most", "expected"),
    [
        ([["a", "end"]], 9, StreamOutcome(["a", "end"], events=f"{B1} chunk chunk close:1 success:1 left")),
        ([["a", "b", "end"]], 1, StreamOutcome(["a"], events=f"{B1} chunk close:1 success:1 left")),
        (
            [["a", "b", "end"]],
            2,
            StreamOutcome(["a", "b"], events=f"{B1} chunk chunk close:1 success:1 left"),
        ),
        ([[LOST], ["end"]], 9, StreamOutcome(["end"], attempts=2)),
        ([["a", LOST]], 9, StreamOutcome(["a"], LOST, "committed", 1)),
        (
            [["a"]],
            9,
            StreamOutcome(
                ["a"], CutShort, "committed", events=f"{B1} chunk close:1 failure:1 give_up:1 left"
            ),
        ),
    ],
    ids=["end", "break at the first", "break", "retried", "lost", "cut short"],
)
def test_a_stream_of_any_shape_is_closed_once(
    place: str, shape: Shape, script: list[list[Any]], most: int, expected: StreamOutcome
) -> None:
    feed = Feed(*script, shape=shape)
    assert play(place, feed, most=most) == expected
    for word in ("open", "close"):
        numbers = range(1, feed.opened + 1)
        assert [entry for entry in feed.trail if entry.startswith(word)] == [f"{word}:{n}" for n in numbers]


@EVERY_PLACE
def test_iterables_without_close_are_read(place: str) -> None:
    class Ticks:
        def __iter__(self) -> Iterator[int]:
            return iter([1, 2])

        async def __aiter__(self) -> AsyncIterator[int]:
            for number in (1, 2):
                yield number

    asked = model(place, protocol=None)

    def blocking() -> list[Any]:
        return [[*asked.stream(opens)] for opens in (Ticks, lambda: [1, 2], lambda: iter([1, 2]))]

    async def waiting() -> list[Any]:
        return [[chunk async for chunk in asked.stream(Ticks)]] * 3

    assert in_place(place, blocking, waiting) == [[1, 2]] * 3


@EVERY_PLACE
@pytest.mark.parametrize("shape", ["close", "aclose", "iterable"])
@pytest.mark.parametrize(
    ("script", "expected", "logged"),
    [
        ([["a", CloseFails(LOST), "end"]], StreamOutcome(["a", "end"], attempts=1), 1),
        ([["a", CloseFails(KeyError), LOST]], StreamOutcome(["a"], LOST, "committed", 1), 1),
        ([["a", CloseFails(KeyError)]], StreamOutcome(["a"], CutShort, "committed", 1), 1),
        ([[CloseFails(KeyError), LOST], ["end"]], StreamOutcome(["end"], attempts=2), 1),
    ],
    ids=["end", "lost", "cut short", "retried"],
)
def test_an_error_while_closing_is_logged(
    place: str,
    shape: Shape,
    script: list[list[Any]],
    expected: StreamOutcome,
    logged: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It does not replace the result or the error of the stream."""
    assert play(place, Feed(*script, shape=shape)) == expected
    complaint = "a stream that had failed could not be closed either"
    if expected.chunks == ["a", "end"]:
        complaint = "a stream that was complete could not be closed"
    assert [record.getMessage().partition(": ")[0] for record in caplog.records] == [complaint] * logged


# ------------------------------------------------------------------------------ mistakes


class Manager:
    """A context manager that returns a number instead of a stream."""

    def __init__(self, trail: list[str]) -> None:
        self.trail = trail

    def __enter__(self) -> object:
        self.trail.append("entered")
        return 7

    def __exit__(self, *error: object) -> None:
        self.trail.append("left")

    async def __aenter__(self) -> object:
        return self.__enter__()

    async def __aexit__(self, *error: object) -> None:
        self.__exit__()


@EVERY_PLACE
@pytest.mark.parametrize("opens", [lambda: 7, lambda: Manager(TRAIL)], ids=["number", "manager of a number"])
def test_an_opened_object_must_be_iterable(place: str, opens: Any) -> None:
    """The `TypeError` is not retried, and nothing stays open."""
    TRAIL.clear()

    def blocking() -> None:
        with pytest.raises(TypeError, match=r"opened 'int', which cannot be iterated over$"):
            list(model(place).stream(opens))

    async def waiting() -> None:
        with pytest.raises(TypeError, match=r"opened 'int', which `async for` cannot use$"):
            await anext(model(place).stream(opens))

    in_place(place, blocking, waiting)
    assert TRAIL in ([], ["entered", "left"])


TRAIL: list[str] = []


@EVERY_PLACE
def test_a_stream_of_the_other_colour_raises(place: str) -> None:
    """The message names the right kind of loop."""

    async def waits() -> AsyncIterator[int]:
        yield 1

    async def coroutine() -> list[int]:
        return [1]

    def blocking() -> None:
        wrong: list[Any] = [waits, coroutine]
        for opens in wrong:
            with pytest.raises(TypeError, match=r"cannot be iterated over: write `async for`$"):
                list(model(place).stream(opens))

    async def waiting() -> None:
        wrong: list[Any] = [coroutine, lambda: Awaited([1]), lambda: [1]]
        for opens in wrong:
            with pytest.raises(TypeError, match=r"which `async for` cannot use: write `for`$"):
                await anext(model(place).stream(opens))

    in_place(place, blocking, waiting)
