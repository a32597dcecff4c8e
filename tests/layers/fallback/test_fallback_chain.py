"""`Fallback` with several functions: they are tried in order, until one returns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

import pytest

from redouble import Fallback, errors
from redouble._runtime.backend import backend
from tests.support.fakes import ASYNC, SYNC, Boom, Panic, in_colour
from tests.support.layers.fallbacks import atext, called, deferred, text
from tests.support.runtime.cancellation import CANCELLATIONS, cancelled

A_WHILE = 1e6


class Failing:
    """A fallback function that records the error it gets, and raises its own."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.got: list[Exception] = []

    def __call__(self, error: Exception) -> Any:
        self.got.append(error)
        raise self.error


def test_the_first_that_returns_answers(colour: str) -> None:
    """The next one is called if one fails, with whatever error; each receives the error of the call."""
    boom, one, two = Boom("x"), Failing(KeyError("1")), Failing(ZeroDivisionError())
    assert called(colour, Fallback(one, two, text, Failing(KeyError()), on=Boom), boom) == "instead of x"
    assert one.got == two.got == [boom]


def test_the_value_is_last(colour: str) -> None:
    assert called(colour, Fallback(Failing(KeyError()), value=7), Boom("x")) == 7
    assert called(colour, Fallback(text, value=7), Boom("x")) == "instead of x"


def test_if_all_fail_the_error_of_the_last_one_is_raised(colour: str) -> None:
    """The others are its context, back to the error of the call."""
    boom, raised = Boom("x"), [KeyError("1"), ValueError("2"), OSError("3")]
    with pytest.raises(OSError, match="3") as caught:
        called(colour, Fallback(*map(Failing, raised)), boom)
    assert caught.value is raised[2]
    assert raised[2].__context__ is raised[1]
    assert raised[1].__context__ is raised[0]
    assert raised[0].__context__ is boom


@pytest.mark.parametrize("crash", [KeyboardInterrupt(), Panic()], ids=["ctrl_c", "panic"])
def test_a_base_exception_of_a_function_ends_the_call(colour: str, crash: BaseException) -> None:
    after, seen = Failing(KeyError()), list[BaseException]()
    fallback = Fallback(Failing(crash), after)

    def blocking() -> None:
        try:
            called("sync", fallback, Boom())
        except BaseException as error:
            seen.append(error)

    async def waiting() -> None:
        async def broken() -> None:
            raise Boom

        try:
            await fallback.call(broken)
        except BaseException as error:
            seen.append(error)

    in_colour(colour, blocking, waiting)
    assert seen == [crash]
    assert after.got == []


@pytest.mark.parametrize("colour", SYNC)
def test_a_mistake_in_the_program_ends_the_call(colour: str) -> None:
    after = Failing(KeyError())
    with pytest.raises(TypeError, match=r"^Fallback\(deferred, Failing\) has to be awaited"):
        called(colour, Fallback(deferred, after), Boom())
    assert after.got == []


@pytest.mark.parametrize("colour", ASYNC)
def test_async_and_plain_functions_may_be_mixed(colour: str) -> None:
    async def broken(_: Exception) -> None:
        await backend().sleep(0)
        raise KeyError

    assert called(colour, Fallback(broken, Failing(KeyError()), atext), Boom("x")) == "instead of x"


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", ["call", "stream"])
def test_a_cancellation_of_a_function_ends_the_call(colour: str, shape: str) -> None:
    """Also if the function raises another error instead, as database drivers do."""
    after, lost = Failing(KeyError()), OSError("connection lost")

    async def waits(_: Exception) -> None:
        try:
            await backend().sleep(A_WHILE)
        except CANCELLATIONS:
            raise lost from None

    async def broken() -> None:
        raise Boom

    async def items() -> AsyncGenerator[None]:
        raise Boom
        yield

    async def first() -> object:
        return await anext(Fallback(waits, after)(items)())

    start = first if shape == "stream" else Fallback(waits, after)(broken)
    assert cancelled(colour, start) is lost
    assert after.got == []


# ------------------------------------------------------------------------------- streams


def unopened(_: Exception) -> Generator[str]:
    raise KeyError
    yield ""


async def aunopened(_: Exception) -> Any:
    raise KeyError
    yield ""


def opened(_: Exception) -> Generator[str, str, str]:
    got = yield "a"
    yield got
    return "end"


def empty(_: Exception) -> Generator[str, str, str]:
    yield from ()
    return "nothing"


def play(colour: str, fallback: Fallback, *, sends: bool = False) -> list[object]:
    def items() -> Generator[str, str | None, str]:
        raise Boom("x")
        yield ""

    async def aitems() -> AsyncGenerator[str]:
        raise Boom("x")
        yield ""

    def blocking() -> list[object]:
        taken, stream = list[object](), fallback(items)()
        try:
            taken.append(next(stream))
            while True:
                taken.append(stream.send("sent") if sends else next(stream))
        except StopIteration as end:
            return [*taken, end.value] if end.value else taken

    async def waiting() -> list[object]:
        return [item async for item in fallback(aitems)()]

    return in_colour(colour, blocking, waiting)  # type: ignore[no-any-return]


def test_a_stream_that_cannot_be_opened_is_followed_by_the_next(colour: str) -> None:
    functions = (aunopened, unopened) if colour in ASYNC else (unopened,)
    assert play(colour, Fallback(*functions, value=["b"])) == ["b"]
    assert play(colour, Fallback(*functions, lambda _: ["b", "c"], value=["d"])) == ["b", "c"]


def test_a_stream_without_items_is_an_answer(colour: str) -> None:
    assert play(colour, Fallback(empty, value=["b"])) == (["nothing"] if colour in SYNC else [])
    assert play(colour, Fallback(lambda _: [], value=["b"])) == []


@pytest.mark.parametrize("colour", SYNC)
def test_send_and_the_return_value_reach_a_stream_that_others_follow(colour: str) -> None:
    assert play(colour, Fallback(opened, value=["b"]), sends=True) == ["a", "sent", "end"]


def test_if_no_stream_can_be_opened_the_error_of_the_last_one_is_raised(colour: str) -> None:
    with pytest.raises(KeyError) as caught:
        play(colour, Fallback(lambda _: 1 // 0, unopened))
    context = caught.value.__context__
    if colour in ASYNC:  # in blocking code the last stream is opened by the consumer
        assert isinstance(context, ZeroDivisionError)
        assert isinstance(context.__context__, Boom)


def test_a_substitute_that_is_no_stream_ends_the_call(colour: str) -> None:
    with pytest.raises(TypeError, match="which cannot be iterated over") as caught:
        play(colour, Fallback(lambda _: 3, value=["b"]))
    assert isinstance(caught.value.__cause__, Boom)


@pytest.mark.parametrize("colour", SYNC)
def test_an_awaitable_is_no_stream_of_blocking_code(colour: str) -> None:
    with pytest.raises(TypeError, match="has to be awaited"):
        play(colour, Fallback(deferred, value=["b"]))


# ---------------------------------------------------------------------------- descriptions


def test_its_description_and_repr() -> None:
    chain = Fallback(text, deferred, value=3, on=errors.Rejected, name="db")
    assert repr(chain) == "Fallback(text, deferred, value=..., name='db')"
    assert chain.describe() == (
        "the first of 3 other results instead of an error; the time of text and deferred is not counted"
    )
    assert (
        Fallback(value=3, until=bool).describe() == "another result instead of an error or a refused result"
    )
