"""Cancellation, Ctrl-C and exits are never judged and never retried, and every wait is a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from redouble import SYSTEM, Clock, Retry, errors, report
from redouble._runtime.backend import backend
from tests.support.call_shapes import ASYNC_SHAPES, AsyncShape
from tests.support.fakes import ASYNC, Boom, Ledger, Virtual, always, in_colour
from tests.support.fakes import options as defaults

SHAPES = pytest.mark.parametrize("shape", ASYNC_SHAPES.values(), ids=ASYNC_SHAPES)
LOOPS = pytest.mark.parametrize("colour", ASYNC)
OPTIONS = pytest.mark.parametrize("options", [{}, {"timeout": 1e9}], ids=["plain", "busy"])


def never(error: Exception) -> bool:
    """Fail the test: nothing of this may be judged."""
    raise AssertionError(f"{error!r} was judged")


class Waiting(Clock):
    """Real checkpoints, and waits that end only by cancellation."""

    def now(self) -> float:
        return 0.0

    async def asleep(self, seconds: float) -> None:
        await backend().sleep(1e6 if seconds else 0)


def policy(clock: Clock | None = None, **options: Any) -> Retry:
    """Retry everything that may be."""
    said = defaults(on=Exception, backoff=[1] * 9, give_up_after=None, clock=clock or Waiting())
    return Retry(**said | options)


def cancelled(colour: str, start: Callable[[], Awaitable[object]]) -> object:
    """Start it, run it up to its wait, cancel it; return "cancelled" or what it returned or raised."""
    outcome: list[object] = []

    async def inside() -> None:
        try:
            outcome.append(await start())
        except Exception as error:
            outcome.append(error)
        except BaseException:
            outcome.append("cancelled")
            raise

    async def in_asyncio() -> None:
        task = asyncio.ensure_future(inside())
        while not task.done():  # once is enough, unless something is broken
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait([task])

    async def in_trio() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inside)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    in_colour(colour, lambda: None, in_trio if colour == "trio" else in_asyncio)
    assert len(outcome) == 1
    return outcome[0]


@SHAPES
@LOOPS
@OPTIONS
def test_cancelled_in_an_attempt(colour: str, shape: AsyncShape, options: dict[str, Any]) -> None:
    calls: list[None] = []

    async def work() -> None:
        calls.append(None)
        await backend().sleep(1e6)

    retrying = policy(on=never, **options)
    assert cancelled(colour, lambda: shape(retrying, work)) == "cancelled"
    assert len(calls) == 1


@SHAPES
@LOOPS
def test_cancelled_in_a_delay(colour: str, shape: AsyncShape) -> None:
    """The retry never starts, so its budget is refunded; no ``give_up`` is emitted."""
    ledger, told = Ledger(), list[object]()

    async def work() -> None:
        raise Boom

    retrying = policy(budget=ledger, on_give_up=told.append)
    assert cancelled(colour, lambda: shape(retrying, work)) == "cancelled"
    assert ledger.lines == ["start", "failed unknown", "spend unknown", "refund 1"]
    assert not told


@SHAPES
@LOOPS
@OPTIONS
@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_crashes_are_never_judged(
    colour: str, shape: AsyncShape, options: dict[str, Any], crash: type[BaseException]
) -> None:
    raised = crash()
    seen: list[BaseException] = []

    async def work() -> None:
        raise raised

    async def main() -> None:
        try:
            await shape(policy(on=never, **options), work)
        except BaseException as error:
            seen.append(error)

    in_colour(colour, lambda: None, main)
    assert seen == [raised]
    assert report(raised) is None
    assert not hasattr(raised, "__notes__")


@SHAPES
@pytest.mark.parametrize("colour", ["asyncio", "uvloop"])
@OPTIONS
def test_a_cancellation_turned_into_an_error(colour: str, shape: AsyncShape, options: dict[str, Any]) -> None:
    """Drivers of databases do that. The task was asked to end, so it is not retried."""
    lost = OSError("connection lost")
    calls: list[None] = []

    async def work() -> None:
        calls.append(None)
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            raise lost from None

    assert cancelled(colour, lambda: shape(policy(**options), work)) is lost
    assert len(calls) == 1
    said = report(lost)
    assert said is not None
    assert said.reason == "stopped"


def test_a_cancellation_turned_into_a_result_to_ask_again() -> None:
    async def work() -> str:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            return "pending"
        return "done"

    outcome = cancelled("asyncio", lambda: policy(until=always(False)).call(work))
    assert getattr(outcome, "reason", None) == "stopped"
    assert getattr(outcome, "last", None) == "pending"


@pytest.mark.parametrize("shape", ASYNC_SHAPES)
def test_a_coroutine_driven_by_hand(shape: str) -> None:
    """There is no task that could be asked whether it is being cancelled."""

    class Still(Virtual):
        async def asleep(self, seconds: float) -> None:
            self.sleep(seconds)

    fails = [Boom()]

    async def work() -> str:
        if fails:
            raise fails.pop()
        return "done"

    main = ASYNC_SHAPES[shape](policy(clock=Still()), work).__await__()
    with pytest.raises(StopIteration) as ended:
        next(main)
    assert ended.value.value == "done"


@pytest.mark.parametrize("options", [{}, {"timeout": 9}, {"wrap": True}])
@pytest.mark.parametrize("shape", ASYNC_SHAPES)
def test_a_failing_coroutine_driven_by_hand(shape: str, options: dict[str, Any]) -> None:
    lost = Boom("lost")

    async def work() -> None:
        raise lost

    async def main() -> None:
        await ASYNC_SHAPES[shape](policy(attempts=1, clock=SYSTEM, **options), work)

    with pytest.raises((Boom, errors.AttemptsExhausted)) as caught:
        main().send(None)
    assert lost in (caught.value, caught.value.__cause__)


@SHAPES
def test_a_cancellation_turned_into_an_error_under_trio(shape: AsyncShape) -> None:
    """Trio delivers it again at the next checkpoint: the delay."""
    calls: list[None] = []

    async def work() -> None:
        calls.append(None)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise OSError("connection lost") from None

    assert cancelled("trio", lambda: shape(policy(backoff=[0]), work)) == "cancelled"
    assert len(calls) == 1
