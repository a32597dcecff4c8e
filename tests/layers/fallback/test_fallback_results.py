"""`Fallback(until=...)`: a result that the rule refuses is replaced, as an error is."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from typing import Any

import pytest

from redouble import Fallback, Pipeline, Retry, Verdict, errors, observe
from redouble._runtime.backend import backend
from redouble.testing import Script, ok
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour
from tests.support.layers.fallbacks import called, text
from tests.support.runtime.cancellation import CANCELLATIONS, cancelled


def positive(value: int) -> bool:
    return value > 0


class Judging:
    def judge(self, ended: Any, /) -> Verdict:
        return Verdict.accept() if ended.value > 0 else Verdict.stop()


@pytest.mark.parametrize("until", [positive, Judging()], ids=["function", "judge"])
@pytest.mark.parametrize(
    ("step", "expected"), [(ok(3), 3), (ok(0), 7), (Boom("x"), 7)], ids=["accepted", "refused", "error"]
)
def test_a_refused_result_is_replaced(colour: str, until: Any, step: Any, expected: int) -> None:
    assert called(colour, Fallback(value=7, until=until), step) == expected


def test_an_error_that_on_does_not_match_is_raised(colour: str) -> None:
    with pytest.raises(Boom):
        called(colour, Fallback(value=7, until=positive, on=OSError), Boom("x"))
    assert called(colour, Fallback(value=7, until=positive, on=OSError), ok(-1)) == 7


def test_the_function_receives_the_refused_result(colour: str) -> None:
    received: list[Exception] = []
    assert called(colour, Fallback(received.append, until=positive), ok(-1)) is None
    (refused,) = received
    assert isinstance(refused, errors.NotAccepted)
    assert refused.last == -1


def test_the_error_of_a_failing_function_has_the_refusal_as_its_context(colour: str) -> None:
    def broken(_: Exception) -> None:
        raise KeyError

    with pytest.raises(KeyError) as caught:
        called(colour, Fallback(broken, until=positive), ok(-1))
    context = caught.value.__context__
    assert isinstance(context, errors.NotAccepted)
    assert context.last == -1

    def raises_it(error: Exception) -> None:
        raise error

    with pytest.raises(errors.NotAccepted) as again:
        called(colour, Fallback(raises_it, until=positive), ok(-1))
    assert again.value.__context__ is None


def test_a_substitute_is_not_judged(colour: str) -> None:
    assert called(colour, Fallback(value=-3, until=positive), ok(-1)) == -3


def test_the_error_of_the_rule_is_raised(colour: str) -> None:
    """It is a mistake in the program, which no fallback hides."""
    with pytest.raises(ZeroDivisionError):
        called(colour, Fallback(value=7, until=lambda value: 1 // value), ok(0))


@pytest.mark.parametrize("colour", ASYNC)
def test_a_cancellation_is_never_replaced(colour: str) -> None:
    async def waits() -> int:

        await backend().sleep(1e6)
        return 1

    assert cancelled(colour, lambda: Fallback(value=7, until=positive).call(waits)) == "cancelled"


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("layer", [Fallback(value=7, until=positive), Fallback.stale(60, until=positive)])
def test_a_result_that_a_cancelled_task_returns_is_not_replaced(colour: str, layer: Fallback) -> None:
    results = [3, -1]

    async def waits() -> int:
        if len(results) == 1:
            with suppress(*CANCELLATIONS):
                await backend().sleep(1e6)
        return results.pop(0)

    async def twice() -> tuple[int, int]:
        return await call(), await call()

    call = layer(waits)
    assert cancelled(colour, twice) == (3, -1)


def test_outside_a_retry(colour: str) -> None:
    """The policy raises what it gives up on; the fallback judges what it returns."""
    script = Script(ok(0), ok(0))
    policy = Retry(until=positive, attempts=2, backoff=[0], clock=Virtual())
    pipeline = Fallback(value=7, until=lambda value: value > 9) | policy
    assert in_colour(colour, lambda: pipeline.call(script), lambda: pipeline.call(script.aio)) == 7
    assert called(colour, pipeline, ok(3)) == 7
    assert called(colour, pipeline, ok(10)) == 10


def test_a_generator_has_no_result() -> None:
    def items() -> Any:
        yield 1

    async def aitems() -> Any:
        yield 1

    for work in (items, aitems):
        with pytest.raises(TypeError, match=r"^until= judges a result, and .*items has none: leave it"):
            Fallback(value=7, until=positive)(work)


@pytest.mark.parametrize("until", [3, "x"])
def test_a_wrong_rule_is_reported(until: Any) -> None:
    with pytest.raises(TypeError, match=r"^until=.*: write a function of the result"):
        Fallback(value=7, until=until)


# -------------------------------------------------------------------------------- events


@pytest.mark.parametrize(
    ("fallback", "step", "expected"),
    [
        (Fallback(value=7, until=positive), ok(3), None),
        (Fallback(value=7, until=positive, name="db"), ok(-1), ("db", "", -1)),
        (Fallback(text), Boom("x"), ("fallback", "x", None)),
        (Fallback(text, on=OSError), Boom("x"), None),
        (Fallback(lambda _: 1 // 0), Boom("x"), None),  # nothing was replaced
    ],
    ids=["accepted", "refused", "error", "other error", "failing"],
)
def test_a_replaced_call_emits_an_event(colour: str, fallback: Fallback, step: Any, expected: Any) -> None:
    seen: list[Event] = []
    with observe(seen.append, only=["fallback"]), suppress(Boom, ZeroDivisionError):
        called(colour, fallback, step)
    assert_emitted(seen, expected)


@pytest.mark.parametrize(
    ("fallback", "expected"),
    [(Fallback(value="ab"), ("fallback", "x", None)), (Fallback(text, on=OSError), None)],
    ids=["replaced", "other error"],
)
def test_a_replaced_stream_emits_an_event(colour: str, fallback: Fallback, expected: Any) -> None:
    seen: list[Event] = []

    def items() -> Generator[str]:
        raise Boom("x")
        yield ""

    async def aitems() -> AsyncGenerator[str]:
        raise Boom("x")
        yield ""

    async def read() -> list[object]:
        return [item async for item in fallback(aitems)()]

    with observe(seen.append, only=["fallback"]), suppress(Boom):
        in_colour(colour, lambda: [*fallback(items)()], read)
    assert_emitted(seen, expected)


def assert_emitted(seen: list[Event], expected: object) -> None:
    found = [(e.name, "" if e.error is None else str(e.error), e.value) for e in seen]
    assert found == ([] if expected is None else [expected])
    assert all(e.by == "fallback" and e.attempt == 0 and e.level is None for e in seen)


# ----------------------------------------------------------------------------- reconfigured


def other(error: Exception) -> str:
    return f"{error}!"


@pytest.mark.parametrize(
    ("before", "after", "possible"),
    [
        (Fallback(value=1), Fallback(value=2), True),
        (Fallback(value=1), Fallback(value=1, on=OSError), True),
        (Fallback(text), Fallback(text, value=1), True),
        (Fallback(text), Fallback(other), False),
        (Fallback(value=1), Fallback(value=1, until=positive), False),
        (Fallback(value=1, until=positive), Fallback(value=1, until=bool), True),
    ],
)
def test_what_can_be_reconfigured(before: Fallback, after: Fallback, possible: bool) -> None:
    assert before.can_reconfigure(after) is possible


def test_a_reconfigured_fallback(colour: str) -> None:
    fallback, script = Fallback(value=1, until=positive, name="a"), Script(ok(5), ok(5), Boom("x"), Boom("x"))
    fn, afn = Pipeline(fallback)(script), Pipeline(fallback)(script.aio)
    call: Callable[[], Any] = lambda: in_colour(colour, fn, afn)
    assert call() == 5
    fallback.reconfigure(Fallback(value=2, until=lambda value: value > 9, on=OSError, name="b"))
    assert (fallback.name, fallback.settings.name, fallback.on) == ("a", "a", OSError)
    assert call() == 2
    with pytest.raises(Boom):
        call()
