"""`Fallback` around generators: replaced as a whole, and only before the first item."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from inspect import isasyncgenfunction, isgeneratorfunction
from typing import Any

import pytest

from redouble import SYSTEM, Fallback, Layer, Retry, errors
from redouble._runtime.backend import backend
from tests.support.fakes import ASYNC, SYNC, Boom, Panic, Virtual, always, in_colour
from tests.support.runtime.cancellation import cancelled
from tests.support.streams import Catches, FailsToClose, Reader, RecordingGate, Returns, ScriptedSource

LOOPS = pytest.mark.parametrize("colour", ASYNC)
THREADS = pytest.mark.parametrize("colour", SYNC)
A_WHILE = 1e6
BOOM, PANIC = Boom("x"), Panic()


def play(colour: str, layer: Layer, tape: ScriptedSource, reader: Reader = Reader()) -> list[object]:  # noqa: B008  frozen
    """Read a stream; return its items, and its error or return value if there is one."""
    taken: list[object] = []

    def blocking() -> None:
        returned = reader.read(layer(tape.items), taken)
        taken.extend([] if returned is None else [returned])

    async def waiting() -> None:
        await reader.aread(layer(tape.aitems), taken)

    try:
        in_colour(colour, blocking, waiting)
    except BaseException as error:
        taken.append(error)
    gc.collect()
    opened = [f"open:{number}" for number in range(1, tape.opened + 1)]
    assert sorted(tape.trail) == sorted([*opened, *(word.replace("open", "close") for word in opened)])
    return taken


def tape(*script: Any) -> ScriptedSource:
    return ScriptedSource([script], Virtual(), [])


def letters(_: Exception) -> Iterator[str]:
    yield "a"
    yield "b"


async def aletters(_: Exception) -> AsyncIterator[str]:
    yield "a"
    await SYSTEM.asleep(0)
    yield "b"


class Letters:
    """An iterable that is no generator."""

    def __iter__(self) -> Iterator[str]:
        return iter("ab")


class OnlyAsync:
    def __aiter__(self) -> AsyncIterator[str]:
        return aletters(BOOM)


async def soon(_: Exception) -> list[str]:
    await SYSTEM.asleep(0)
    return ["a", "b"]


async def asoon(error: Exception) -> AsyncIterator[str]:
    await SYSTEM.asleep(0)
    return aletters(error)


# --------------------------------------------------------------------------- substitutes


@pytest.mark.parametrize(
    "fallback",
    [Fallback(value=["a", "b"]), Fallback(value="ab"), Fallback(letters), Fallback(always(Letters()))],
    ids=repr,
)
def test_a_stream_is_replaced_as_a_whole(colour: str, fallback: Fallback) -> None:
    assert play(colour, fallback, tape(BOOM)) == ["a", "b"]
    assert play(colour, Fallback(value=[]), tape(BOOM)) == []


@LOOPS
@pytest.mark.parametrize(
    "fn", [aletters, soon, asoon, always(OnlyAsync())], ids=["generator", "soon", "asoon", "plain"]
)
def test_a_stream_is_replaced_by_an_async_substitute(colour: str, fn: Callable[[Exception], Any]) -> None:
    assert play(colour, Fallback(fn), tape(BOOM)) == ["a", "b"]


@pytest.mark.parametrize(
    ("script", "taken"),
    [
        ([1, 2], [1, 2]),
        ([], []),
        ([1, BOOM], [1, BOOM]),  # not replaced after the first item
        ([1, 2, BOOM], [1, 2, BOOM]),
        ([PANIC], [PANIC]),
        ([1, PANIC], [1, PANIC]),
        ([KeyError], ["a", "b"]),
        ([None, False, BOOM], [None, False, BOOM]),  # items like any other
    ],
)
def test_a_stream_is_replaced_only_before_its_first_item(
    colour: str, script: list[Any], taken: list[object]
) -> None:
    steps = [step() if step is KeyError else step for step in script]
    assert play(colour, Fallback(value="ab"), tape(*steps)) == taken


def test_an_error_that_on_does_not_match_is_not_replaced(colour: str) -> None:
    boom = Boom("x")
    assert play(colour, Fallback(value="ab", on=OSError), tape(boom)) == [boom]
    assert not hasattr(boom, "__notes__")


def test_a_stream_does_not_run_before_it_is_iterated_over(colour: str) -> None:
    """A stream that is dropped or closed before that never runs at all."""
    received: list[Exception] = []
    for way in (Reader("drop", 0), Reader("close", 0)):
        source = tape(BOOM)
        assert play(colour, Fallback(received.append), source, way) == []
        assert (source.opened, received) == (0, [])


# ------------------------------------------------------------------ the consumer's side


@pytest.mark.parametrize(
    ("script", "reader", "taken", "got"),
    [
        ([1, 2, 3], Reader("send", 1, "x"), [1, 2, 3], ["x", None, None]),
        ([1, 2, 3], Reader("send", 2, "x"), [1, 2, 3], [None, "x", None]),
        ([Catches(1), 2], Reader("throw", 1, BOOM), [1, 2], ["caught", None]),
        ([1, Catches(2), 3], Reader("throw", 2, BOOM), [1, 2, 3], [None, "caught", None]),
        ([1, 2], Reader("throw", 1, BOOM), [1, BOOM], []),
        ([1, 2], Reader("throw", 1, PANIC), [1, PANIC], []),
        ([1, 2], Reader("close", 1), [1], []),
        ([1, 2, 3], Reader("close", 2), [1, 2], [None]),
        ([1, 2], Reader("break", 1), [1], []),
        ([1, 2], Reader("drop", 1), [1], []),
        ([1, 2], Reader("raise", 1, BOOM), [1, BOOM], []),
        ([FailsToClose(), 1, 2], Reader("close", 1), [1, Boom], []),  # its error while closing is raised
    ],
)
def test_send_throw_and_close_reach_the_stream(
    colour: str, script: list[Any], reader: Reader, taken: list[object], got: list[object]
) -> None:
    source = tape(*script)
    seen = play(colour, Fallback(value="ab"), source, reader)
    assert [type(item) if Boom in taken and isinstance(item, Boom) else item for item in seen] == taken
    assert source.got == got


@pytest.mark.parametrize(
    ("reader", "taken", "got"),
    [
        (Reader("send", 1, "x"), [1, 2], ["x", None]),
        (Reader("throw", 1, BOOM), [1, 2], ["caught", None]),
        (Reader("close", 1), [1], []),
        (Reader("drop", 1), [1], []),
    ],
)
def test_send_throw_and_close_reach_the_substitute(
    colour: str, reader: Reader, taken: list[object], got: list[object]
) -> None:
    other = tape(Catches(1), 2)
    instead = other.aitems if colour in ASYNC else other.items
    assert play(colour, Fallback(lambda _: instead()), tape(BOOM), reader) == taken
    assert other.got == got
    assert other.trail == ["open:1", "close:1"]


@THREADS
def test_the_return_value_of_a_generator(colour: str) -> None:
    other = tape(1, Returns("other"))
    for fallback, source, taken in (
        (Fallback(value="ab"), tape(1, Returns("own")), [1, "own"]),
        (Fallback(value="ab"), tape(Returns("own")), ["own"]),
        (Fallback(lambda _: other.items()), tape(BOOM), [1, "other"]),
    ):
        assert play(colour, fallback, source) == taken


# ------------------------------------------------------------------------ failing fallbacks


def test_the_error_of_a_failing_fallback_is_raised(colour: str) -> None:
    taken = play(colour, Fallback(lambda _: 1 // 0), tape(BOOM))
    assert isinstance(taken[0], ZeroDivisionError)
    assert taken[0].__context__ is BOOM


def test_a_substitute_that_fails_is_closed_and_not_replaced(colour: str) -> None:
    for script in ([BOOM], [1, BOOM]):
        other = tape(*script)
        instead = other.aitems if colour in ASYNC else other.items
        assert play(colour, Fallback(always(instead())), tape(Boom("first"))) == script
        assert other.trail == ["open:1", "close:1"]


@pytest.mark.parametrize("substitute", [None, 3, object()], ids=["None", "3", "object"])
def test_a_substitute_that_is_not_iterable_raises_type_error(colour: str, substitute: object) -> None:
    message = rf"^Fallback\(value=...\) returned '{type(substitute).__name__}', which cannot be iterated over"
    taken = play(colour, Fallback(value=substitute), tape(BOOM))
    with pytest.raises(TypeError, match=message) as caught:
        raise taken[0] if isinstance(taken[0], Exception) else AssertionError(taken)
    assert caught.value.__cause__ is BOOM


def deferred(error: Exception) -> object:
    """Return an awaitable from a plain function."""
    return soon(error)


@THREADS
def test_a_plain_fallback_that_returns_an_awaitable_raises_type_error(colour: str) -> None:
    """No coroutine is left unawaited."""
    for fn in (deferred, always(OnlyAsync())):
        taken = play(colour, Fallback(fn), tape(BOOM))
        assert isinstance(taken[0], TypeError)
        assert taken[0].__context__ is BOOM


# -------------------------------------------------------------------------------- pipelines


def test_outside_a_gate_and_a_retry_it_acts_last(colour: str) -> None:
    gate, source = RecordingGate(), tape(BOOM)
    retry = Retry(on=Boom, attempts=3, backoff=[0, 0], clock=Virtual())
    assert play(colour, Fallback(value="ab") | gate | retry, source) == ["a", "b"]
    assert (source.opened, gate.inside, gate.left) == (3, 0, [BOOM])


def test_inside_a_gate_and_a_retry_it_acts_first(colour: str) -> None:
    gate, source = RecordingGate(), tape(BOOM)
    retry = Retry(on=Boom, attempts=3, backoff=[0, 0], clock=Virtual())
    assert play(colour, gate | retry | Fallback(value="ab"), source) == ["a", "b"]
    assert (source.opened, gate.inside, gate.left) == (1, 0, [None])


def test_a_rejected_stream_is_replaced(colour: str) -> None:
    class RejectingGate(RecordingGate):
        def admit(self, now: float, /) -> None:
            raise errors.Rejected("shut")

    source = tape(1)
    assert play(colour, Fallback(value="ab") | RejectingGate(), source) == ["a", "b"]
    assert source.opened == 0


@LOOPS
@pytest.mark.parametrize("where", ["stream", "fallback"])
def test_a_cancellation_is_never_replaced(colour: str, where: str) -> None:
    async def waits(*_: object) -> AsyncGenerator[int]:
        await backend().sleep(A_WHILE)
        yield 1

    async def broken() -> AsyncGenerator[int]:
        raise BOOM
        yield 1

    layer = Fallback(value="ab") if where == "stream" else Fallback(waits)
    work = waits if where == "stream" else broken

    async def first() -> object:
        return await anext(layer(work)())

    assert cancelled(colour, first) == "cancelled"


def test_a_decorated_function_keeps_its_kind() -> None:
    def items(most: int) -> Generator[int]:
        yield most

    async def aitems(most: int) -> AsyncGenerator[int]:
        yield most

    async def first() -> int:
        return await anext(aitems_too(3))

    items_too, aitems_too = Fallback(value=[])(items), Fallback(value=[])(aitems)
    assert isgeneratorfunction(items_too)
    assert isasyncgenfunction(aitems_too)
    assert (items_too.__name__, aitems_too.__name__) == ("items", "aitems")
    assert (next(items_too(3)), asyncio.run(first())) == (3, 3)
