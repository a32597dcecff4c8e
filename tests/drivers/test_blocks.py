"""Blocks: ``for attempt in policy: with attempt: ...``, and ``async for``."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any, cast

import pytest
import trio

from redouble import SYSTEM, Attempt, Retry, deadline, errors, observe, report
from redouble.testing import VirtualClock
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Ledger, Virtual, in_colour
from tests.support.virtual_time import at


def policy(**options: Any) -> Retry:
    defaults: dict[str, Any] = {"on": Boom, "backoff": [1] * 9, "clock": Virtual()}
    return Retry(**defaults | options)


PLAIN: dict[str, Any] = {}
BUSY: dict[str, Any] = {"timeout": 20}  # needs a run from the first attempt on
EITHER = pytest.mark.parametrize("options", [PLAIN, BUSY], ids=["plain", "busy"])


@EITHER
@pytest.mark.parametrize("way", ["end", "break", "continue", "return"])
def test_leaving_without_an_error_is_success(colour: str, options: dict[str, Any], way: str) -> None:
    """However the block is left; only the last attempt emits the event."""
    events: list[str] = []

    def success(event: Event) -> None:
        events.append(f"success:{event.attempt}")

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
    assert events == ["success:3"]


@EITHER
def test_a_success_at_once_ends_the_loop(colour: str, options: dict[str, Any]) -> None:
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
def test_all_attempts_of_a_loop_are_one_object(options: dict[str, Any]) -> None:
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
def test_an_attempt_that_is_never_entered_raises(colour: str, options: dict[str, Any]) -> None:
    """Otherwise the loop would be endless, or end as a silent success."""

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
def test_an_attempt_that_is_entered_twice_raises(options: dict[str, Any], failing: bool) -> None:
    with pytest.raises(RuntimeError, match="entered only once"):
        for attempt in policy(**options):
            with attempt:
                if failing:
                    raise Boom
            with attempt:
                pass


def test_an_attempt_that_is_never_exited_ends_the_loop() -> None:
    """Without an exit there is no failure that asks for another attempt."""
    turns: list[int] = []
    for attempt in policy():
        attempt.__enter__()
        turns.append(attempt.number)
    assert turns == [1]


def test_async_with_on_an_attempt_is_refused() -> None:
    async def main() -> None:
        async for attempt in policy():
            async with cast("Any", attempt):
                pass

    with pytest.raises(TypeError, match="write `with attempt:` also in an `async for` loop"):
        asyncio.run(main())


def test_until_is_refused_for_blocks(colour: str) -> None:
    retrying = policy(until=bool)

    def loop() -> None:
        for _ in retrying:
            raise AssertionError("it began")

    async def aloop() -> None:
        async for _ in retrying:
            raise AssertionError("it began")

    with pytest.raises(TypeError, match=r"until= judges a result.*use policy\.call"):
        in_colour(colour, loop, aloop)


def test_events_of_a_block_have_the_name_of_its_policy(colour: str) -> None:
    """Without a name it is ``block``."""
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


def test_a_dropped_async_loop_refunds_its_grant() -> None:
    """As one left by ``break`` does, and without a warning."""
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
def test_a_blocking_loop_inside_an_event_loop_is_logged_once(
    colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its first sleep, which need not be its first delay: a delay of 0 does not sleep."""
    clock = Virtual()
    counts: list[tuple[int, int]] = []

    async def main() -> None:
        for attempt in policy(clock=clock, backoff=[0, 1, 1]):
            counts.append((len(caplog.records), len(clock.waits)))
            with attempt:
                if attempt.number < 4:
                    raise Boom

    in_colour(colour, lambda: None, main)
    assert counts == [(0, 0), (0, 0), (1, 1), (1, 2)]
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
def test_time_before_an_attempt_is_entered_counts_for_the_call_only(colour: str, limit: str) -> None:
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
        reported = report(caught.value)
        assert reported is not None
        assert reported.limit == limit
        assert reported.history[0].elapsed == clock.now() - before
        return clock.now()

    took = at(f"{colour} around", lambda _: None, ended)
    assert took == (10 if limit in {"total", "deadline"} else before + 10)


def test_an_attempt_can_be_referred_to_weakly() -> None:
    for attempt in Retry():
        with attempt:
            assert weakref.ref(attempt)() is attempt
