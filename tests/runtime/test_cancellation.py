"""Cancellation, Ctrl-C and exits are never retried, no rule is called for them, and waits are checkpoints."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from redouble import SYSTEM, errors, report
from redouble._runtime.backend import backend
from tests.support.call_shapes import ASYNC_SHAPES, AsyncShape
from tests.support.fakes import ASYNC, Boom, Ledger, Virtual, always, in_colour
from tests.support.runtime.cancellation import cancelled, policy

SHAPES = pytest.mark.parametrize("shape", ASYNC_SHAPES.values(), ids=ASYNC_SHAPES)
LOOPS = pytest.mark.parametrize("colour", ASYNC)
OPTIONS = pytest.mark.parametrize("options", [{}, {"timeout": 1e9}], ids=["plain", "busy"])


def never(error: Exception) -> bool:
    """Fail the test: no rule may be called."""
    raise AssertionError(f"{error!r} was judged")


@SHAPES
@LOOPS
@OPTIONS
def test_cancellation_during_an_attempt_is_not_retried(
    colour: str, shape: AsyncShape, options: dict[str, Any]
) -> None:
    calls: list[None] = []

    async def work() -> None:
        calls.append(None)
        await backend().sleep(1e6)

    retrying = policy(on=never, **options)
    assert cancelled(colour, lambda: shape(retrying, work)) == "cancelled"
    assert len(calls) == 1


@SHAPES
@LOOPS
def test_cancellation_during_a_delay_refunds_the_grant(colour: str, shape: AsyncShape) -> None:
    """The retry never starts, and no ``give_up`` is emitted."""
    ledger, events = Ledger(), list[object]()

    async def work() -> None:
        raise Boom

    retrying = policy(budget=ledger, on_give_up=events.append)
    assert cancelled(colour, lambda: shape(retrying, work)) == "cancelled"
    assert ledger.lines == ["start", "failed unknown", "spend unknown", "refund 1"]
    assert not events


@SHAPES
@LOOPS
@OPTIONS
@pytest.mark.parametrize("crash", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_base_exceptions_are_raised_without_calling_a_rule(
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
def test_an_error_raised_on_cancellation_is_not_retried(
    colour: str, shape: AsyncShape, options: dict[str, Any]
) -> None:
    """Database drivers raise such errors. A task whose cancellation was requested is not retried."""
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
    reported = report(lost)
    assert reported is not None
    assert reported.reason == "stopped"


def test_a_rejected_result_after_cancellation_is_not_retried() -> None:
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
def test_a_coroutine_driven_by_hand_is_retried(shape: str) -> None:
    """Without a task, no cancellation can be pending."""

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
def test_a_coroutine_driven_by_hand_raises_its_error(shape: str, options: dict[str, Any]) -> None:
    lost = Boom("lost")

    async def work() -> None:
        raise lost

    async def main() -> None:
        await ASYNC_SHAPES[shape](policy(attempts=1, clock=SYSTEM, **options), work)

    with pytest.raises((Boom, errors.AttemptsExhausted)) as caught:
        main().send(None)
    assert lost in (caught.value, caught.value.__cause__)


@SHAPES
def test_an_error_raised_on_cancellation_is_not_retried_under_trio(shape: AsyncShape) -> None:
    """Trio delivers the cancellation again at the next checkpoint, which is the delay."""
    calls: list[None] = []

    async def work() -> None:
        calls.append(None)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise OSError("connection lost") from None

    assert cancelled("trio", lambda: shape(policy(backoff=[0]), work)) == "cancelled"
    assert len(calls) == 1
