"""A retried generator behaves as the bare one, whatever its consumer does to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import aclosing, closing
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Retry
from tests.support.fakes import ASYNC, in_colour
from tests.support.streams import RecordingGate

POLICY = Retry(on=OSError, attempts=3, backoff=[0] * 9)

Step: TypeAlias = tuple[str, int]
Log: TypeAlias = list[object]

STEPS = st.tuples(
    st.sampled_from(["yield", "yield", "catch", "stubborn", "raise", "return"]), st.integers(0, 9)
)
PROGRAMS = st.lists(STEPS, max_size=6)
ACTIONS = st.sampled_from(["next", "next", "send", "throw", "throw type", "throw stop", "close"])


def program(steps: list[Step], log: Log) -> Generator[int, Any, int]:
    """Do what the steps say, and write down what comes in."""
    try:
        for what, number in steps:
            match what:
                case "catch":
                    try:
                        log.append((yield number))
                    except ValueError as error:
                        log.append(repr(error))
                case "stubborn":
                    try:
                        log.append((yield number))
                    except GeneratorExit:
                        log.append("ignored")
                        yield number
                case "raise":
                    raise KeyError(number)
                case "return":
                    return number
                case _:
                    log.append((yield number))
        return -1
    finally:
        log.append("closed")


async def aprogram(steps: list[Step], log: Log) -> AsyncGenerator[int, Any]:
    try:
        for what, number in steps:
            match what:
                case "catch":
                    try:
                        log.append((yield number))
                    except ValueError as error:
                        log.append(repr(error))
                case "stubborn":
                    try:
                        log.append((yield number))
                    except GeneratorExit:
                        log.append("ignored")
                        yield number
                case "raise":
                    raise KeyError(number)
                case "return":
                    return
                case _:
                    log.append((yield number))
    finally:
        log.append("closed")


def act(stream: Generator[int, Any, Any], action: str) -> object:
    """Do one thing to a generator, and tell what came of it."""
    try:
        match action:
            case "send":
                return stream.send("sent")
            case "throw":
                return stream.throw(ValueError("thrown"))
            case "throw type":
                return stream.throw(ValueError)
            case "throw stop":
                return stream.throw(StopIteration("thrown"))
            case "close":
                stream.close()
            case _:
                return next(stream)
    except StopIteration as end:
        return f"end: {end.value}"
    except Exception as error:
        return repr(error)
    return None


async def aact(stream: AsyncGenerator[int, Any], action: str) -> object:
    try:
        match action:
            case "send":
                return await stream.asend("sent")
            case "throw":
                return await stream.athrow(ValueError("thrown"))
            case "throw type":
                return await stream.athrow(ValueError)
            case "throw stop":
                return await stream.athrow(StopAsyncIteration("thrown"))
            case "close":
                await stream.aclose()
            case _:
                return await anext(stream)
    except StopAsyncIteration:
        return "end"
    except Exception as error:
        return repr(error)
    return None


def told(fn: Callable[[list[Step], Log], Any], steps: list[Step], actions: list[str]) -> Log:
    log: Log = []
    stream = fn(steps, log)
    for action in [*actions, "close"]:
        log.append(f"{action}: {act(stream, action)}")
        if "ignored" in log:
            return [said for said in log if said != "closed"]  # when that will happen, nobody knows
    return log


async def atold(fn: Callable[[list[Step], Log], Any], steps: list[Step], actions: list[str]) -> Log:
    log: Log = []
    stream = fn(steps, log)
    begun = over = False
    for action in [*actions, "close"]:
        # What is thrown at the end of one is lost without a word; and what ends a loop is no way to begin.
        if action.startswith("throw") and (over or (action == "throw stop" and not begun)):
            continue
        result = await aact(stream, action)
        log.append(f"{action}: {result}")
        begun = begun or isinstance(result, int)
        over = over or not (isinstance(result, int) or "just-started" in str(result))
        if "ignored" in log:
            return [said for said in log if said != "closed"]
    return log


def by_hand(work: Coroutine[Any, Any, Log]) -> Log:
    """Run what never waits."""
    with pytest.raises(StopIteration) as end:
        work.send(None)
    log: Log = end.value.value
    return log


def twice(fn: Callable[..., Any]) -> Callable[..., Any]:
    return POLICY(Retry(attempts=1)(fn))


WRAPPERS: dict[str, Callable[..., Any]] = {
    "retry": POLICY,
    "gate": RecordingGate(),
    "both": POLICY | RecordingGate(),
    "twice": twice,
}
EVERY_WRAPPER = pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)


@EVERY_WRAPPER
@given(steps=PROGRAMS, actions=st.lists(ACTIONS, max_size=8))
def test_a_generator(wrap: Callable[..., Any], steps: list[Step], actions: list[str]) -> None:
    """Same items, same return value, same errors, before the start and after the end too."""
    assert told(wrap(program), steps, actions) == told(program, steps, actions)


@EVERY_WRAPPER
@given(steps=PROGRAMS, actions=st.lists(ACTIONS, max_size=8))
def test_an_async_generator(wrap: Callable[..., Any], steps: list[Step], actions: list[str]) -> None:
    bare = by_hand(atold(aprogram, steps, actions))
    assert by_hand(atold(wrap(aprogram), steps, actions)) == bare


@given(fails=st.integers(0, 2), steps=PROGRAMS, actions=st.lists(ACTIONS, max_size=8))
def test_a_generator_that_fails_first(fails: int, steps: list[Step], actions: list[str]) -> None:
    """What comes out is the doing of the last source alone."""
    left = [OSError()] * fails

    @POLICY
    def flaky(steps: list[Step], log: Log) -> Generator[int, Any, int]:
        if left:
            raise left.pop()
        return (yield from program(steps, log))

    assert told(flaky, steps, actions) == told(program, steps, actions)


def test_ways_around_it(colour: str) -> None:
    """``yield from``, `closing`, `aclosing`: nothing there can tell the difference."""
    log: Log = []

    def around() -> Generator[int, Any, str]:
        return f"returned {(yield from POLICY(program)([('yield', 1), ('catch', 2)], log))}"

    def blocking() -> None:
        stream = around()
        log.extend([next(stream), stream.send("hello"), act(stream, "throw")])
        with closing(POLICY(program)([("yield", 3), ("yield", 4)], log)) as closed:
            log.append(next(closed))

    async def waiting() -> None:
        async with aclosing(POLICY(aprogram)([("yield", 1), ("catch", 2)], log)) as stream:
            log.extend([await anext(stream), await stream.asend("hello"), await aact(stream, "throw")])
        async with aclosing(POLICY(aprogram)([("yield", 3), ("yield", 4)], log)) as stream:
            log.append(await anext(stream))

    in_colour(colour, blocking, waiting)
    end = "end" if colour in ASYNC else "end: returned -1"
    assert log == ["hello", "ValueError('thrown')", "closed", 1, 2, end, 3, "closed"]
