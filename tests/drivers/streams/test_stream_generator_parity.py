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
    """Execute the steps, and log the values and errors that the consumer sends in."""
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
    """Perform one action on a generator, and return the item, its end or the error."""
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


def log_of(fn: Callable[[list[Step], Log], Any], steps: list[Step], actions: list[str]) -> Log:
    log: Log = []
    stream = fn(steps, log)
    for action in [*actions, "close"]:
        log.append(f"{action}: {act(stream, action)}")
        if "ignored" in log:
            return [entry for entry in log if entry != "closed"]  # closed when it is collected
    return log


async def alog_of(fn: Callable[[list[Step], Log], Any], steps: list[Step], actions: list[str]) -> Log:
    log: Log = []
    stream = fn(steps, log)
    begun = over = False
    for action in [*actions, "close"]:
        # An error thrown into an ended async generator is lost; StopAsyncIteration before the start ends it.
        if action.startswith("throw") and (over or (action == "throw stop" and not begun)):
            continue
        result = await aact(stream, action)
        log.append(f"{action}: {result}")
        begun = begun or isinstance(result, int)
        over = over or not (isinstance(result, int) or "just-started" in str(result))
        if "ignored" in log:
            return [entry for entry in log if entry != "closed"]
    return log


def by_hand(work: Coroutine[Any, Any, Log]) -> Log:
    """Run a coroutine that never suspends."""
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
def test_a_wrapped_generator_behaves_as_the_bare_one(
    wrap: Callable[..., Any], steps: list[Step], actions: list[str]
) -> None:
    """Same items, same return value, same errors, before the start and after the end too."""
    assert log_of(wrap(program), steps, actions) == log_of(program, steps, actions)


@EVERY_WRAPPER
@given(steps=PROGRAMS, actions=st.lists(ACTIONS, max_size=8))
def test_a_wrapped_async_generator_behaves_as_the_bare_one(
    wrap: Callable[..., Any], steps: list[Step], actions: list[str]
) -> None:
    bare = by_hand(alog_of(aprogram, steps, actions))
    assert by_hand(alog_of(wrap(aprogram), steps, actions)) == bare


@given(fails=st.integers(0, 2), steps=PROGRAMS, actions=st.lists(ACTIONS, max_size=8))
def test_a_retried_generator_behaves_as_its_last_source(
    fails: int, steps: list[Step], actions: list[str]
) -> None:
    """The sources that failed before have no effect."""
    left = [OSError()] * fails

    @POLICY
    def flaky(steps: list[Step], log: Log) -> Generator[int, Any, int]:
        if left:
            raise left.pop()
        return (yield from program(steps, log))

    assert log_of(flaky, steps, actions) == log_of(program, steps, actions)


def test_yield_from_and_closing_behave_as_with_the_bare_generator(colour: str) -> None:
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
