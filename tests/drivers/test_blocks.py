"""Blocks: ``for attempt in policy: with attempt: ...``, and ``async for``."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, cast

import pytest
import trio

from redouble import SYSTEM, Attempt, Retry, deadline, errors, observe, report
from redouble.testing import VirtualClock
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Ledger, Virtual, in_colour
from tests.support.virtual_time import at


def policy(**options: Any) -> Retry:
    said: dict[str, Any] = {"on": Boom, "backoff": [1] * 9, "clock": Virtual()}
    return Retry(**said | options)


PLAIN: dict[str, Any] = {}
BUSY: dict[str, Any] = {"timeout": 20}  # its run sees the first attempt too
EITHER = pytest.mark.parametrize("options", [PLAIN, BUSY], ids=["plain", "busy"])


@EITHER
@pytest.mark.parametrize("way", ["end", "break", "continue", "return"])
def test_leaving_without_an_error_is_success(colour: str, options: dict[str, Any], way: str) -> None:
    """Whichever way; and only of the last attempt."""
    told: list[str] = []

    def success(event: Event) -> None:
        told.append(f"success:{event.attempt}")

    retrying = policy(**options, on_success=success)
    numbers: list[int] = []

    def loop() -> str:
        for attempt in retrying:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    raise Boom
                if way == "break":
                    break
                if way == "continue":
                    continue
                if way == "return":
                    return way
        return "after"

    async def aloop() -> str:
        async for attempt in retrying:
            with attempt:
                numbers.append(attempt.number)
                if attempt.number < 3:
                    raise Boom
                if way == "break":
                    break
                if way == "continue":
                    continue
                if way == "return":
                    return way
        return "after"

    assert in_colour(colour, loop, aloop) == ("return" if way == "return" else "after")
    assert numbers == [1, 2, 3]
    assert told == ["success:3"]


@EITHER
def test_success_at_once(colour: str, options: dict[str, Any]) -> None:
    turns: list[int] = []

    def loop() -> None:
        for attempt in policy(**options):
            with attempt:
                turns.append(attempt.number)

    async def aloop() -> None:
        async for attempt in policy(**options):
            with attempt:
                turns.append(attempt.number)

    in_colour(colour, loop, aloop)
    assert turns == [1]


@EITHER
def test_one_object_serves_the_loop(options: dict[str, Any]) -> None:
    seen: list[Attempt] = []
    for attempt in policy(**options):
        seen.append(attempt)
        assert repr(attempt) == f"<Attempt {len(seen)}>"
        with attempt as entered:
            assert entered is attempt
            assert isinstance(entered, Attempt)
            if len(seen) < 3:
                raise Boom
    assert seen[0] is seen[1] is seen[2]


@EITHER
def test_an_attempt_never_entered(colour: str, options: dict[str, Any]) -> None:
    """It would be an endless loop, or a silent success."""

    def loop() -> None:
        for _ in policy(**options):
            pass

    def later() -> None:
        for attempt in policy(**options):
            if attempt.number == 1:
                with attempt:
                    raise Boom

    async def aloop() -> None:
        async for _ in policy(**options):
            pass

    async def alater() -> None:
        async for attempt in policy(**options):
            if attempt.number == 1:
                with attempt:
                    raise Boom

    for pair in ((loop, aloop), (later, alater)):
        with pytest.raises(RuntimeError, match="never entered: write `with attempt:`"):
            in_colour(colour, *pair)


@EITHER
@pytest.mark.parametrize("failing", [False, True])
def test_an_attempt_entered_twice(options: dict[str, Any], failing: bool) -> None:
    with pytest.raises(RuntimeError, match="entered only once"):
        for attempt in policy(**options):
            with attempt:
                if failing:
                    raise Boom
            with attempt:
                pass


def test_an_attempt_left_open() -> None:
    """Leaving never happened, so nothing says that another turn is wanted."""
    turns: list[int] = []
    for attempt in policy():
        attempt.__enter__()
        turns.append(attempt.number)
    assert turns == [1]


def test_async_with_is_not_needed() -> None:
    async def main() -> None:
        async for attempt in policy():
            async with cast("Any", attempt):
                pass

    with pytest.raises(TypeError, match="write `with attempt:` also in an `async for` loop"):
        asyncio.run(main())


def test_results_are_never_seen(colour: str) -> None:
    retrying = policy(until=bool)

    def loop() -> None:
        for _ in retrying:
            raise AssertionError("it began")

    async def aloop() -> None:
        async for _ in retrying:
            raise AssertionError("it began")

    with pytest.raises(TypeError, match=r"until= judges a result.*use policy\.call"):
        in_colour(colour, loop, aloop)


def test_observers_from_elsewhere(colour: str) -> None:
    """The name of a block is its policy's, or none in particular."""
    seen: list[str] = []

    def loop() -> None:
        for attempt in policy():
            with attempt:
                pass

    async def aloop() -> None:
        async for attempt in policy(name="upload"):
            with attempt:
                pass

    with observe(lambda event: seen.append(f"{event.name} {event.what}")):
        in_colour(colour, loop, aloop)
    name = "upload" if colour in ASYNC else "block"
    assert seen == [f"{name} before_attempt", f"{name} success"]


def test_an_async_loop_that_is_forgotten() -> None:
    """Like one left by ``break`` it refunds its unspent grant, without a warning."""
    ledger = Ledger()

    async def main() -> None:
        attempts = aiter(policy(budget=ledger))
        assert aiter(attempts) is attempts
        attempt = await anext(attempts)
        with attempt:
            raise Boom
        del attempts
        gc.collect()

    trio.run(main)
    assert ledger.lines[-1] == "refund 1"


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_a_blocking_loop_inside_an_event_loop(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """It blocks the event loop: logged once, before its first sleep, which need not be its first delay."""
    clock = Virtual()
    said: list[tuple[int, int]] = []

    async def main() -> None:
        for attempt in policy(clock=clock, backoff=[0, 1, 1]):
            said.append((len(caplog.records), len(clock.waits)))
            with attempt:
                if attempt.number < 4:
                    raise Boom

    in_colour(colour, lambda: None, main)
    assert said == [(0, 0), (0, 0), (1, 1), (1, 2)]
    assert "stall it: write `async for`" in caplog.text


def test_no_warning_without_a_loop_or_a_sleep(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        for attempt in policy(backoff=[0]):
            with attempt:
                if attempt.number < 2:
                    raise Boom

    asyncio.run(main())
    for attempt in policy():
        with attempt:
            if attempt.number < 2:
                raise Boom
    assert not caplog.records


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@pytest.mark.parametrize("limit", ["total", "deadline", "work", "attempt"])
def test_time_between_getting_an_attempt_and_entering_it(colour: str, limit: str) -> None:
    """It is time of the call, and not of the attempt."""
    limits: dict[str, Any] = {
        "total": {"timeout": 10},
        "deadline": {"give_up_after": None},
        "work": {"work_timeout": 10},
        "attempt": {"attempt_timeout": 10, "attempts": 1},
    }
    errors_of = {"attempt": errors.AttemptTimeout}
    before, long = 7, 1000

    async def waiting(clock: VirtualClock) -> float:
        with deadline(10 if limit == "deadline" else long):
            async for attempt in Retry(**{"give_up_after": None} | limits[limit]):
                await SYSTEM.asleep(before)
                with attempt:
                    await SYSTEM.asleep(long)
        raise AssertionError(clock.now())

    async def ended(clock: VirtualClock) -> float:
        with pytest.raises(errors_of.get(limit, errors.DeadlineExceeded)) as caught:
            await waiting(clock)
        said = report(caught.value)
        assert said is not None
        assert said.limit == limit
        assert said.history[0].elapsed == clock.now() - before
        return clock.now()

    took = at(f"{colour} around", lambda _: None, ended)
    assert took == (10 if limit in {"total", "deadline"} else before + 10)
