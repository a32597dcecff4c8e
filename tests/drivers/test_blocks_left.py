"""A loop over attempts that its body leaves after a failed attempt: its error comes out, or is told.

The ``with`` has suppressed the error, because an attempt was to follow.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import trio

from redouble import Attempt, Reason, Retry, report
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Ledger, Virtual, in_colour
from tests.support.garbage_collection import untraced

pytestmark = pytest.mark.usefixtures(untraced.__name__)

Loop = Callable[[Retry], object]
AsyncLoop = Callable[[Retry], Awaitable[object]]

EITHER = pytest.mark.parametrize("options", [{}, {"timeout": 20}], ids=["plain", "busy"])


class Other(Exception):
    """An error raised between two attempts."""


def breaks(policy: Retry) -> None:
    for attempt in policy:
        with attempt:
            raise Boom("lost")
        break


async def abreaks(policy: Retry) -> None:
    async for attempt in policy:
        with attempt:
            raise Boom("lost")
        break


def returns(policy: Retry) -> object:
    for attempt in policy:
        with attempt:
            raise Boom("lost")
        return 3
    raise AssertionError


async def areturns(policy: Retry) -> object:
    async for attempt in policy:
        with attempt:
            raise Boom("lost")
        return 3
    raise AssertionError


def raises(policy: Retry) -> None:
    with pytest.raises(Other):
        for attempt in policy:
            with attempt:
                raise Boom("lost")
            raise Other


async def araises(policy: Retry) -> None:
    with pytest.raises(Other):
        async for attempt in policy:
            with attempt:
                raise Boom("lost")
            raise Other


def breaks_before_the_next(policy: Retry) -> None:
    for attempt in policy:
        if attempt.number > 1:
            break
        with attempt:
            raise Boom("lost")


async def abreaks_before_the_next(policy: Retry) -> None:
    async for attempt in policy:
        if attempt.number > 1:
            break
        with attempt:
            raise Boom("lost")


def numbered(policy: Retry) -> None:
    for turn, attempt in enumerate(policy):
        with attempt:
            raise Boom("lost")
        if turn == 0:
            break


async def numbered_by_hand(policy: Retry) -> None:
    attempts = aiter(policy)
    attempt = await anext(attempts)
    with attempt:
        raise Boom("lost")


def collected(policy: Retry) -> None:
    """Leave the loop to the garbage collector."""

    def turns() -> Iterator[int]:
        for attempt in policy:
            with attempt:
                raise Boom("lost")
            yield attempt.number

    items: list[Any] = [turns()]
    assert next(items[0]) == 1
    items.append(items)  # a cycle
    del items
    gc.collect()


async def acollected(policy: Retry) -> None:
    """Leave the loop to the garbage collector."""
    items: list[Any] = [aiter(policy)]
    with await anext(items[0]):
        raise Boom("lost")
    items.append(items)  # a cycle
    del items
    gc.collect()


WAYS: list[tuple[Loop, AsyncLoop]] = [
    (breaks, abreaks),
    (returns, areturns),
    (raises, araises),
    (breaks_before_the_next, abreaks_before_the_next),
    (numbered, numbered_by_hand),
    (collected, acollected),
]


@EITHER
@pytest.mark.parametrize("way", WAYS, ids=[way[0].__name__ for way in WAYS])
def test_the_lost_error_is_told(
    colour: str, options: dict[str, Any], way: tuple[Loop, AsyncLoop], caplog: pytest.LogCaptureFixture
) -> None:
    """In the log and by `on_give_up`: the interpreter drops the loop's iterator, which cannot raise then."""
    ended: list[Event] = []
    ledger = Ledger()
    policy = Retry(
        on=Boom,
        backoff=[1] * 9,
        clock=Virtual(),
        budget=ledger,
        name="upload",
        on_give_up=ended.append,
        **options,
    )
    in_colour(colour, lambda: way[0](policy), lambda: way[1](policy))
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("a loop over the attempts of upload was left after attempt 1 had failed")
    assert f"nothing raises its {Boom.__qualname__}" in message
    assert "lost" not in message  # the text of an error may contain secrets
    (event,) = ended
    assert isinstance(event.error, Boom)
    assert event.reason is Reason.stopped
    kept = report(event.error)
    assert kept is not None
    assert [record.number for record in kept.history] == [1]
    if way[0] is not breaks_before_the_next:  # where the retry has begun
        assert ledger.lines[-1] == "refund 1"


@EITHER
def test_a_loop_that_goes_on_is_not_told(
    colour: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Whether it succeeds later, is left by a success, or gives up."""
    policy = Retry(on=Boom, attempts=3, backoff=[1] * 9, clock=Virtual(), **options)

    def loop() -> None:
        for attempt in policy:
            with attempt:
                if attempt.number < 2:
                    raise Boom
                break
        for attempt in policy:
            with attempt:
                if attempt.number < 2:
                    raise Boom
        with pytest.raises(Boom):
            for attempt in policy:
                with attempt:
                    raise Boom

    async def aloop() -> None:
        async for attempt in policy:
            with attempt:
                if attempt.number < 2:
                    raise Boom
                break
        async for attempt in policy:
            with attempt:
                if attempt.number < 2:
                    raise Boom
        with pytest.raises(Boom):
            async for attempt in policy:
                with attempt:
                    raise Boom

    in_colour(colour, loop, aloop)
    gc.collect()
    assert not caplog.records


class Interrupting(Virtual):
    """A clock whose sleep is interrupted, as by Ctrl-C."""

    def sleep(self, seconds: float) -> None:
        raise KeyboardInterrupt

    async def asleep(self, seconds: float) -> None:
        raise KeyboardInterrupt


@EITHER
def test_a_loop_that_is_interrupted_in_its_delay_is_not_told(
    colour: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As a decorated function that is cancelled in a delay: it ends by the interruption."""
    policy = Retry(on=Boom, backoff=[1] * 9, clock=Interrupting(), **options)

    def loop() -> None:
        with pytest.raises(KeyboardInterrupt):
            for attempt in policy:
                with attempt:
                    raise Boom

    async def aloop() -> None:
        with pytest.raises(KeyboardInterrupt):
            async for attempt in policy:
                with attempt:
                    raise Boom

    in_colour(colour, loop, aloop)
    gc.collect()
    assert not caplog.records


@EITHER
def test_an_attempt_that_outlives_its_loop_raises(colour: str, options: dict[str, Any]) -> None:
    """No attempt can follow, so the ``with`` does not suppress the error."""
    ended: list[Event] = []
    policy = Retry(on=Boom, backoff=[1] * 9, clock=Virtual(), on_give_up=ended.append, **options)

    def loop() -> None:
        with pytest.raises(Boom), next(iter(policy)):
            raise Boom
        kept: Attempt | None = None
        for attempt in policy:
            kept = attempt
            break
        assert kept is not None
        with pytest.raises(Boom), kept:
            raise Boom

    async def aloop() -> None:
        with pytest.raises(Boom), await anext(aiter(policy)):
            raise Boom
        kept: Attempt | None = None
        async for attempt in policy:
            kept = attempt
            break
        assert kept is not None
        with pytest.raises(Boom), kept:
            raise Boom

    in_colour(colour, loop, aloop)
    assert len(ended) == 2


def test_an_attempt_that_outlives_its_loop_may_succeed(caplog: pytest.LogCaptureFixture) -> None:
    with next(iter(Retry(on=Boom))) as attempt:
        assert attempt.number == 1
    assert not caplog.records


def test_a_told_loop_cannot_be_continued(caplog: pytest.LogCaptureFixture) -> None:
    attempts: Any = iter(Retry(on=Boom, backoff=[0] * 9))  # a generator
    with closing(attempts):
        with next(attempts):
            raise Boom
        attempt = next(attempts)
    assert len(caplog.records) == 1
    with pytest.raises(RuntimeError, match="entered only once"), attempt:
        pass


@pytest.mark.parametrize("colour", ASYNC)
def test_an_async_loop_ends_after_an_interrupted_delay(colour: str) -> None:
    async def main() -> None:
        attempts = aiter(Retry(on=Boom, backoff=[1] * 9, clock=Interrupting()))
        with await anext(attempts):
            raise Boom
        with pytest.raises(KeyboardInterrupt):
            await anext(attempts)
        with pytest.raises(StopAsyncIteration):
            await anext(attempts)

    in_colour(colour, lambda: None, main)


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
def test_a_loop_of_an_async_generator_is_told_once(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def turns() -> AsyncIterator[int]:
        async for attempt in Retry(on=Boom, backoff=[0] * 9):
            with attempt:
                raise Boom
            yield attempt.number

    async def main() -> None:
        items: Any = turns()
        assert await anext(items) == 1
        await items.aclose()

    run(main) if run is trio.run else run(main())
    assert len(caplog.records) == 1
