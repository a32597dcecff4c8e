"""`Fallback`: a substitute instead of an error, in every colour; and the errors that are never replaced."""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from redouble import SYSTEM, Fallback, Verdict, errors, transient
from redouble._runtime.backend import backend
from redouble.testing import Script, ok
from tests.support.fakes import ASYNC, Boom, Panic, UnhashableRule, always, in_colour, stable_repr
from tests.support.layers.fallbacks import AsyncCache, atext, called, deferred, text
from tests.support.runtime.cancellation import CANCELLATIONS, cancelled

LOOPS = pytest.mark.parametrize("colour", ASYNC)
A_WHILE = 1e6


# ------------------------------------------------------------------------------- substitutes


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [
        (Fallback(value=7), 7),
        (Fallback(value=None), None),
        (Fallback(value=[]), []),
        (Fallback(value=Boom), Boom),
        (Fallback(value=text), text),  # a value is not called
        (Fallback(text), "instead of x"),
        (Fallback(always(None)), None),
    ],
    ids=stable_repr,
)
def test_an_error_is_replaced(colour: str, fallback: Fallback, expected: object) -> None:
    assert called(colour, fallback, Boom("x")) == expected


@LOOPS
@pytest.mark.parametrize(
    "fn",
    [atext, AsyncCache(), functools.partial(atext), deferred],
    ids=lambda fn: type(fn).__name__,
)
def test_an_error_is_replaced_by_an_awaited_result(colour: str, fn: Callable[[Exception], Any]) -> None:
    assert called(colour, Fallback(fn), Boom("x")) == "instead of x"


def test_a_success_is_not_replaced(colour: str) -> None:
    received: list[Exception] = []
    for value in (3, None, Boom("returned")):
        assert called(colour, Fallback(received.append), ok(value)) is value
    assert received == []


def test_the_function_receives_the_error_itself(colour: str) -> None:
    wrong, received = Boom("x"), list[Exception]()
    assert called(colour, Fallback(received.append), wrong) is None
    assert len(received) == 1
    assert received[0] is wrong


def test_calls_do_not_affect_each_other(colour: str) -> None:
    fallback, script = Fallback(text), Script(Boom("1"), ok(2), Boom("3"))
    fn, afn = fallback(script), fallback(script.aio)

    async def waiting() -> list[object]:
        return [await afn() for _ in range(3)]

    expected = ["instead of 1", 2, "instead of 3"]
    assert in_colour(colour, lambda: [fn() for _ in range(3)], waiting) == expected


# -------------------------------------------------------------------------- which errors


class Stops:
    def judge(self, ended: Any, /) -> Verdict:
        assert ended.attempt == 1
        return Verdict.stop()


@pytest.mark.parametrize(
    ("on", "error", "replaced"),
    [
        (OSError, ConnectionError(), True),
        (OSError, KeyError(), False),
        ((OSError, KeyError), KeyError(), True),
        ((OSError, KeyError), ValueError(), False),
        (always(True), KeyError(), True),
        (always(0), KeyError(), True),
        (always(2.5), KeyError(), True),
        (always(False), KeyError(), False),
        (always(None), KeyError(), False),
        (always(Verdict.retry()), KeyError(), True),
        (always(Verdict.stop()), KeyError(), False),
        (always(Verdict.accept()), KeyError(), False),
        (UnhashableRule(), KeyError(), True),
        (Stops(), KeyError(), False),
        ([always(None), OSError], OSError(), True),
        ([always(False), OSError], OSError(), False),
        ([KeyError, always(False)], KeyError(), True),
        ([KeyError, always(None)], OSError(), False),
        (transient, ConnectionError(), True),
        (transient, KeyError(), False),
        (errors.Rejected, errors.CircuitOpen("open"), True),
        (Exception, ExceptionGroup("two", [Boom(), Boom()]), True),
    ],
)
def test_which_errors_are_replaced(colour: str, on: Any, error: Exception, replaced: bool) -> None:
    fallback = Fallback(value=7, on=on)
    if replaced:
        assert called(colour, fallback, error) == 7
        return
    with pytest.raises(type(error)) as caught:
        called(colour, fallback, error)
    assert caught.value is error
    assert not hasattr(error, "__notes__")


def test_an_error_that_is_not_replaced_keeps_its_traceback(colour: str) -> None:
    def broken() -> None:
        raise Boom("here")

    async def abroken() -> None:
        raise Boom("here")

    fallback = Fallback(value=7, on=OSError)
    with pytest.raises(Boom) as caught:
        in_colour(colour, fallback(broken), fallback(abroken))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] in ("broken", "abroken")
    assert names.count("replaced") == 1
    assert caught.value.__context__ is caught.value.__cause__ is None


def broken(_: Exception) -> bool:
    raise KeyError("no cache")


@pytest.mark.parametrize("fallback", [Fallback(broken), Fallback(value=7, on=broken)], ids=stable_repr)
def test_the_error_of_a_failing_fallback_or_rule_is_raised(colour: str, fallback: Fallback) -> None:
    """The operation's error is its context."""
    wrong = Boom("x")
    with pytest.raises(KeyError, match="no cache") as caught:
        called(colour, fallback, wrong)
    assert caught.value.__context__ is wrong


@LOOPS
def test_the_error_of_a_failing_async_fallback_is_raised(colour: str) -> None:
    wrong = Boom("x")

    async def broken(_: Exception) -> None:
        await SYSTEM.asleep(0)
        raise KeyError("no cache")

    with pytest.raises(KeyError, match="no cache") as caught:
        called(colour, Fallback(broken), wrong)
    assert caught.value.__context__ is wrong


# ---------------------------------------------------------- errors that are never replaced


@pytest.mark.parametrize(
    "crash",
    [
        KeyboardInterrupt(),
        SystemExit(3),
        GeneratorExit(),
        asyncio.CancelledError(),
        Panic(),
        BaseExceptionGroup("cancelled", [Boom(), asyncio.CancelledError()]),
    ],
    ids=stable_repr,
)
def test_base_exceptions_are_never_replaced(colour: str, crash: BaseException) -> None:
    judged, seen = list[Exception](), list[BaseException]()

    def judge(error: Exception) -> bool:
        judged.append(error)
        return True

    def broken() -> None:
        raise crash

    async def abroken() -> None:
        raise crash

    async def waiting() -> None:
        try:
            await Fallback(value=7, on=judge).call(abroken)
        except BaseException as error:
            seen.append(error)

    def blocking() -> None:
        try:
            Fallback(value=7, on=judge).call(broken)
        except BaseException as error:
            seen.append(error)

    in_colour(colour, blocking, waiting)
    assert seen == [crash]
    assert judged == []


@LOOPS
@pytest.mark.parametrize("where", ["call", "fallback"])
def test_a_cancellation_is_never_replaced(colour: str, where: str) -> None:
    """Neither in the call, nor while the fallback runs."""

    async def waits(*_: object) -> None:
        await backend().sleep(A_WHILE)

    layer = Fallback(value=7) if where == "call" else Fallback(waits)
    work = waits if where == "call" else Script(Boom()).aio
    assert cancelled(colour, lambda: layer.call(work)) == "cancelled"


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("shape", ["call", "stream"])
def test_an_error_raised_from_a_cancellation_is_not_replaced(colour: str, shape: str) -> None:
    """Database drivers raise such errors. If one were replaced, the cancelled task would not end."""
    lost, fallback = OSError("connection lost"), Fallback(value="ab")

    async def work() -> str:
        try:
            await backend().sleep(A_WHILE)
        except CANCELLATIONS:
            raise lost from None
        return "done"

    async def items() -> AsyncIterator[str]:
        yield await work()

    async def first() -> str:
        return await anext(fallback(items)())

    start = first if shape == "stream" else fallback(work)
    assert cancelled(colour, start) is lost
