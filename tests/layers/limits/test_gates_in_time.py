"""Gates that wait, inside a call with a limit: never past it, and refused at once if the turn comes later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from redouble import Bulkhead, Gate, RateLimit, Retry, Timeout, deadline, errors
from redouble.testing import VirtualClock
from tests.support.virtual_time import VIRTUAL_COLOURS, in_virtual_colour, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

EVERY_TEN_SECONDS = 0.1  # calls a second


def retry_once(**options: Any) -> Retry:
    return Retry(attempts=1, **options)


# A limit of half a second around a function.
Around: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]


def by_deadline(fn: Callable[..., Any]) -> Callable[..., Any]:
    def limited() -> Any:
        with deadline(0.5):
            return fn()

    return limited


LIMITS: dict[str, Around] = {
    "timeout": Retry(timeout=0.5),
    "timeout of one attempt": Retry(timeout=0.5, attempts=1),
    "give_up_after": Retry(give_up_after=0.5),
    "work_timeout": retry_once(work_timeout=0.5),  # else the retry, after its delay, is in time
    "give_up_after of an outer call": lambda fn: Retry(give_up_after=0.5)(Retry(timeout=60)(fn)),
}
ASYNC_LIMITS: dict[str, Around] = LIMITS | {
    "attempt_timeout": Retry(attempt_timeout=0.5, attempts=1),
    "Timeout": Timeout(0.5),
}


def gated_by(layer: Gate, how: str, calls: list[float], clock: VirtualClock) -> Callable[[], None]:
    """Return a blocking function behind a gate: wrapped, or with a block of its own."""

    def call() -> None:
        calls.append(clock.now())

    def block() -> None:
        with layer:
            call()

    return {"layer": layer(call), "call": lambda: layer.call(call), "block": block}[how]


def agated_by(
    layer: Gate, how: str, calls: list[float], clock: VirtualClock
) -> Callable[[], Awaitable[None]]:
    """Return an async function behind a gate: wrapped, or with a block of its own."""

    async def call() -> None:
        calls.append(clock.now())

    async def acall() -> None:
        await layer.call(call)

    async def block() -> None:
        async with layer:
            await call()

    return {"layer": layer(call), "call": acall, "block": block}[how]


HOW = pytest.mark.parametrize("how", ["layer", "call", "block"])


@VIRTUAL_COLOURS
@HOW
@pytest.mark.parametrize("limit", LIMITS)
def test_a_turn_that_comes_too_late_is_refused_at_once(colour: str, how: str, limit: str) -> None:
    """The function is not called ten seconds later, and the error tells when it could be."""
    calls: list[float] = []

    def blocking(clock: VirtualClock) -> float:
        gate = RateLimit(EVERY_TEN_SECONDS)
        limited = LIMITS[limit](gated_by(gate, how, calls, clock))
        limited()
        with pytest.raises(errors.RateLimited, match=r"would be longer than 0\.5 s") as caught:
            limited()
        assert caught.value.retry_after == 10
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        gate = RateLimit(EVERY_TEN_SECONDS)
        limited = ASYNC_LIMITS[limit](agated_by(gate, how, calls, clock))
        await limited()
        with pytest.raises(errors.RateLimited, match=r"would be longer than 0\.5 s") as caught:
            await limited()
        assert caught.value.retry_after == 10
        return clock.now()

    began = in_virtual_colour(colour, blocking, waiting)
    assert calls == [began]


@pytest.mark.parametrize("colour", ["asyncio", "trio"])
@HOW
@pytest.mark.parametrize("limit", ["attempt_timeout", "Timeout"])
def test_limits_of_async_code_count_too(colour: str, how: str, limit: str) -> None:
    calls: list[float] = []

    async def waiting(clock: VirtualClock) -> float:
        limited = ASYNC_LIMITS[limit](agated_by(RateLimit(EVERY_TEN_SECONDS), how, calls, clock))
        await limited()
        with pytest.raises(errors.RateLimited) as caught:
            await limited()
        assert caught.value.retry_after == 10
        return clock.now()

    began = in_virtual_colour(colour, lambda clock: None, waiting)
    assert calls == [began]


@VIRTUAL_COLOURS
def test_a_turn_that_comes_in_time_is_waited_for(colour: str) -> None:
    def blocking(clock: VirtualClock) -> float:
        def fn() -> None:
            pass

        limited, began = (Retry(timeout=60) | RateLimit(2))(fn), clock.now()
        for _ in range(5):
            limited()
        return clock.now() - began

    async def waiting(clock: VirtualClock) -> float:
        async def fn() -> None:
            pass

        limited, began = (Retry(timeout=60) | RateLimit(2))(fn), clock.now()
        for _ in range(5):
            await limited()
        return clock.now() - began

    assert in_virtual_colour(colour, blocking, waiting) == 2


@VIRTUAL_COLOURS
@HOW
def test_a_call_waits_for_a_slot_until_its_limit(colour: str, how: str) -> None:
    calls: list[float] = []

    def blocking(clock: VirtualClock) -> float:
        bulkhead, began = Bulkhead(1, wait=60), clock.now()
        limited = retry_once(timeout=0.5)(gated_by(bulkhead, how, calls, clock))
        with bulkhead, pytest.raises(errors.BulkheadFull, match=r"no slot came free within 0\.5 s"):
            limited()
        return clock.now() - began

    async def waiting(clock: VirtualClock) -> float:
        bulkhead, began = Bulkhead(1, wait=60), clock.now()
        limited = retry_once(give_up_after=0.5)(agated_by(bulkhead, how, calls, clock))
        async with bulkhead:
            with pytest.raises(errors.BulkheadFull, match=r"no slot came free within 0\.5 s"):
                await limited()
        return clock.now() - began

    assert in_virtual_colour(colour, blocking, waiting) == 0.5
    assert calls == []


@VIRTUAL_COLOURS
def test_a_call_without_time_does_not_wait(colour: str) -> None:
    def blocking(clock: VirtualClock) -> float:
        bulkhead = Bulkhead(1, wait=60)

        def late() -> None:
            clock.advance(5)
            bulkhead.call(int)

        with bulkhead, pytest.raises(errors.BulkheadFull, match="and it does not wait"):
            retry_once(timeout=2).call(late)
        return clock.now()

    async def waiting(clock: VirtualClock) -> float:
        return blocking(clock)

    assert in_virtual_colour(colour, blocking, waiting) >= 5


@pytest.mark.parametrize(
    ("pipeline", "text"),
    [
        (
            Retry(timeout=0.5) | RateLimit(0.1),
            "blocking code for as long as your function takes and 0.5 s of",
        ),
        (
            Retry(timeout=3) | Bulkhead(3, wait=60),
            "blocking code for as long as your function takes and 3 s of",
        ),
        (Retry(give_up_after=3) | RateLimit(0.1), "for as long as your function takes and 3 s of waiting"),
        (Retry() | RateLimit(0.1), "for as long as your function takes and any amount of waiting"),
    ],
)
def test_the_explanation_has_the_longest_waits(pipeline: Any, text: str) -> None:
    assert text in pipeline.explain()
