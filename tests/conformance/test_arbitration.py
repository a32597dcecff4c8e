"""Limits that coincide with errors, results or cancellation: Polly, Kevlar, httpware (HW), qubit 0.19 (N)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import nullcontext

import pytest
import trio
from trio.testing import MockClock

from redouble import Layer, Retry, Timeout, deadline, errors, observe
from redouble._runtime.backend import backend, under_trio
from redouble.testing import virtual_time
from tests.conformance.flows import ASYNC
from tests.support.scripted import ScriptedError

EVERY_LOOP = pytest.mark.parametrize("colour", ASYNC)
LIMITED = pytest.mark.parametrize(
    "layer",
    [
        Retry(on=ScriptedError, attempt_timeout=10),
        Retry(on=ScriptedError, timeout=10),
        Retry(on=ScriptedError, work_timeout=10),
        Timeout(10),
    ],
    ids=["attempt", "total", "work", "layer"],
)
LONG = 100_000.0


def timed(colour: str, main: Callable[[], Awaitable[None]]) -> None:
    """Run in virtual time."""

    async def coroutine() -> None:
        await main()

    with virtual_time():
        if colour == "asyncio":
            asyncio.run(coroutine())
        else:
            trio.run(main, clock=MockClock(autojump_threshold=0))


@EVERY_LOOP
@LIMITED
@pytest.mark.parametrize("kind", [CancelledError, TimeoutError, LookupError])
def test_timeout_arbitration_another_error_is_raised(
    colour: str, layer: Layer, kind: type[Exception]
) -> None:
    """timeout.arbitration: an error that the operation raises after the timer fired is no timeout.

    Nor is a cancellation that the limit did not cause, such as that of a thread pool's future.
    """
    own = kind("its own")

    async def operation() -> None:
        try:
            await backend().sleep(LONG)
        finally:
            raise own

    async def main() -> None:
        with pytest.raises(kind) as raised:
            await layer(operation)()
        assert raised.value is own

    timed(colour, main)


@LIMITED
def test_timeout_arbitration_a_cancelled_error_after_the_timer_deviates(layer: Layer) -> None:
    """timeout.arbitration: asyncio's CancelledError has no owner, so after the timer it is a timeout."""

    async def operation() -> None:
        try:
            await backend().sleep(LONG)
        finally:
            raise asyncio.CancelledError("another")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await layer(operation)()

    timed("asyncio", main)


@EVERY_LOOP
@LIMITED
def test_timeout_arbitration_late_success(colour: str, layer: Layer) -> None:
    """timeout.arbitration: an operation that returns after it was cancelled has succeeded."""

    async def operation() -> str:
        try:
            await backend().sleep(LONG)
        except (asyncio.CancelledError, trio.Cancelled):
            return "late"
        return "not cut"

    async def main() -> None:
        assert await layer(operation)() == "late"
        await backend().sleep(1)  # would raise if the cancellation were still pending
        if isinstance(layer, Retry):
            outcome = await layer.run(operation)
            assert (outcome.ok, outcome.value, outcome.report.late) == (True, "late", True)

    timed(colour, main)


@EVERY_LOOP
@LIMITED
def test_timeout_arbitration_a_stale_timer(colour: str, layer: Layer) -> None:
    """timeout.arbitration: the limit of a call that has ended cannot cancel a later one."""

    async def operation() -> float:
        await backend().sleep(9)
        return 9

    async def main() -> None:
        limited = layer(operation)
        for _ in range(5):
            assert await limited() == 9
        await backend().sleep(LONG)

    timed(colour, main)


async def cancelled_after(seconds: float, work: Callable[[], Awaitable[object]]) -> list[str]:
    """Run ``work`` in a task, or a scope, that the caller cancels; return how it ended."""
    ended: list[str] = []

    async def inside() -> None:
        try:
            await work()
        except Exception as error:
            ended.append(type(error).__name__)
        except BaseException:
            ended.append("cancelled")
            raise

    if under_trio():
        with trio.move_on_after(seconds):
            await inside()
    else:
        task = asyncio.ensure_future(inside())
        asyncio.get_running_loop().call_later(seconds, task.cancel)
        await asyncio.wait([task])
    return ended


@EVERY_LOOP
@LIMITED
@pytest.mark.parametrize("moment", [1, 9, 10], ids=["N-16.attempt", "retry.cancellation", "at-the-limit"])
def test_timeout_arbitration_an_outer_cancellation_is_no_timeout(
    colour: str, layer: Layer, moment: float
) -> None:
    """timeout.arbitration: nor is it retried."""
    calls: list[int] = []

    async def operation() -> None:
        calls.append(1)
        await backend().sleep(LONG)

    async def main() -> None:
        assert await cancelled_after(moment, layer(operation)) == ["cancelled"]
        assert calls == [1]

    timed(colour, main)


@EVERY_LOOP
@LIMITED
def test_timeout_arbitration_an_outer_cancellation_after_the_timer(colour: str, layer: Layer) -> None:
    """timeout.arbitration: it wins even while the operation cleans up after its timeout."""

    async def operation() -> None:
        try:
            await backend().sleep(LONG)
        finally:
            with trio.CancelScope(shield=True) if under_trio() else nullcontext():
                await backend().sleep(5)

    async def main() -> None:
        assert await cancelled_after(12, layer(operation)) == ["cancelled"]

    timed(colour, main)


@EVERY_LOOP
@pytest.mark.parametrize("layer", [Retry(on=Exception), Timeout(10)], ids=["retry", "layer"])
def test_retry_cancellation_no_call_after_the_deadline(colour: str, layer: Layer) -> None:
    """retry.cancellation: a call whose deadline has passed is not made."""
    calls: list[int] = []

    async def operation() -> None:
        calls.append(1)

    async def main() -> None:
        with deadline(1):
            await backend().sleep(1)
            with pytest.raises(TimeoutError):
                await layer(operation)()
        assert calls == []

    timed(colour, main)


@EVERY_LOOP
@pytest.mark.parametrize(
    "layer",
    [Retry(timeout=10), Retry(attempt_timeout=10), Retry(work_timeout=10), Timeout(10)],
    ids=["timeout", "attempt_timeout", "work_timeout", "layer"],
)
def test_stream_commit_points_a_limit_after_commit(colour: str, layer: Layer) -> None:
    """stream.commit_points: a limit that passes after the first item does not cancel the stream."""
    log: list[str] = []

    async def pieces() -> AsyncGenerator[str]:
        try:
            for piece in "abc":
                await backend().sleep(9)
                yield piece
        finally:
            log.append("closed")

    async def main() -> None:
        async for piece in layer(pieces)():
            log.append(piece)
            await backend().sleep(60)

    timed(colour, main)
    assert log == ["a", "b", "c", "closed"]


@EVERY_LOOP
def test_hw_to_01_the_error_of_a_timeout(colour: str) -> None:
    """HW-TO-01: it has the limit, and an event is emitted; the callee's own TimeoutError is unchanged."""
    own, emitted = TimeoutError("read"), list[Exception | None]()

    async def slow() -> None:
        await backend().sleep(LONG)

    async def failing() -> None:
        raise own

    async def main() -> None:
        with pytest.raises(errors.AttemptTimeout, match=r"slow took longer than 0\.05 s$") as ours:
            await Timeout(0.05)(slow)()
        assert isinstance(ours.value, TimeoutError)
        assert (ours.value.limit, ours.value.seconds) == ("attempt", 0.05)
        with pytest.raises(TimeoutError) as raised:
            await Timeout(0.05)(failing)()
        assert raised.value is own
        assert emitted == [ours.value]

    with observe(lambda event: emitted.append(event.error), only=["timeout"]):
        timed(colour, main)
