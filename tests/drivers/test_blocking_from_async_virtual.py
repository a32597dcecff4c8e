"""Blocking functions called from async code in virtual time: the clock stands while their workers run."""

from __future__ import annotations

from threading import Event

import pytest

from redouble import SYSTEM, Retry, Worker, errors
from redouble._drivers.workers import threads as _threads
from redouble._runtime.backend import backend
from redouble.testing import Script, VirtualClock, ok
from tests.support.drivers.blocking_calls import run_beside, turns_until
from tests.support.drivers.stuck_operations import SOON
from tests.support.drivers.worker_attempts import LONG, NO_GRACE, StuckAttempt, until_cancelled
from tests.support.runtime.tasks import together
from tests.support.virtual_time import WHERE, in_virtual_time, no_real_waits
from tests.support.workers.threads import idle

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__, idle.__name__)

HOUR = 3600.0

# On uvloop only our own delays are virtual, so that the clock cannot wait for workers.
HELD = [place for place in [*WHERE, "trio around jumping", "trio inside jumping"] if "uvloop" not in place]


@pytest.mark.parametrize("place", [*WHERE, "trio around jumping"])
def test_delays_between_attempts_and_on_the_worker_are_virtual(place: str) -> None:
    async def waiting(clock: VirtualClock) -> tuple[object, list[float], float]:
        inner = Retry(on=OSError, backoff=[HOUR], give_up_after=None)
        outer = Retry(on=OSError, backoff=[2 * HOUR], give_up_after=None, nested="allow")
        script = Script(OSError, OSError, OSError, ok("done"))
        result = await outer.acall(inner.call, script)
        return result, clock.delays, clock.now()

    result, delays, now = in_virtual_time(place, waiting)
    assert (result, delays) == ("done", [HOUR, 2 * HOUR, HOUR])
    assert now == pytest.approx(4 * HOUR, abs=LONG)  # plus the real time of the workers


@pytest.mark.parametrize("place", HELD)
def test_virtual_time_does_not_advance_while_a_worker_runs(place: str) -> None:
    """The duration of the work is unknown. The event loop continues to run."""

    async def waiting(clock: VirtualClock) -> tuple[list[str], bool]:
        begun, order, moments = Event(), list[str](), list[float]()

        def work() -> None:
            begun.set()
            stuck.released.wait()

        async def call() -> None:
            await Retry(attempt_timeout=HOUR).acall(work)
            order.append("worked")
            moments.append(clock.now())

        async def other() -> None:
            await turns_until(begun.is_set)
            for _ in range(99):
                await backend().sleep(0)
            stuck.released.set()

        async def sleeper() -> None:
            await turns_until(begun.is_set)
            await SYSTEM.asleep(HOUR)
            order.append("slept")

        with StuckAttempt() as stuck:
            await together(place, call, other, sleeper)
        return order, moments[0] < HOUR

    assert in_virtual_time(place, waiting) == (["worked", "slept"], True)


@pytest.mark.parametrize("place", HELD)
@pytest.mark.parametrize(
    "how", ["succeeds", "fails", "stops in time", "is stuck", "is cancelled", "never starts"]
)
def test_virtual_time_advances_again_however_the_worker_ends(
    place: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waiting(clock: VirtualClock) -> float:
        begun = Event()

        def work() -> None:
            begun.set()
            if how == "fails":
                raise ZeroDivisionError
            if how == "stops in time":
                until_cancelled()
            if how in ("is stuck", "is cancelled"):
                stuck.released.wait()

        with StuckAttempt() as stuck:
            match how:
                case "succeeds":
                    await Retry().acall(work)
                case "fails":
                    with pytest.raises(ZeroDivisionError):
                        await Retry().acall(work)
                case "stops in time":
                    with pytest.raises(errors.AttemptTimeout):
                        worker = Worker(grace=LONG)
                        await Retry(attempt_timeout=SOON, attempts=1, worker=worker).acall(work)
                case "is stuck":
                    with pytest.raises(errors.WorkerStillRunning):
                        await Retry(attempt_timeout=SOON, worker=NO_GRACE).acall(work)
                case "is cancelled":
                    await run_beside(
                        place.split(maxsplit=1)[0],
                        lambda: Retry().acall(work),
                        lambda: turns_until(begun.is_set),
                    )
                case _:
                    monkeypatch.setattr("redouble._drivers.workers.threads.Thread.start", no_thread)
                    with pytest.raises(errors.WorkerFailed):
                        await Retry().acall(work)
                    monkeypatch.undo()
            before = clock.now()
            await SYSTEM.asleep(HOUR)
            return clock.now() - before

    assert in_virtual_time(place, waiting) == pytest.approx(HOUR)


def no_thread(_: object) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("place", HELD)
@pytest.mark.parametrize(("slept", "in_its_time"), [(HOUR - 60, True), (HOUR, False), (9 * HOUR, False)])
def test_virtual_sleeps_of_the_worker_count_for_its_limit(
    place: str, slept: float, in_its_time: bool
) -> None:
    """As in blocking code."""

    def work() -> str:
        SYSTEM.sleep(slept)
        return "done"

    async def waiting(clock: VirtualClock) -> object:
        clock.now()
        try:
            return await Retry(attempt_timeout=HOUR, attempts=1, give_up_after=None).acall(work)
        except errors.AttemptTimeout as error:
            return error.limit

    assert in_virtual_time(place, waiting) == ("done" if in_its_time else "attempt")


@pytest.mark.parametrize("place", HELD)
def test_virtual_time_stands_until_the_last_worker_has_ended(place: str) -> None:
    async def waiting(clock: VirtualClock) -> bool:
        ended: list[str] = []

        def work() -> None:
            stuck.released.wait()

        async def first() -> None:
            await Retry().acall(int)
            ended.append("first")

        async def second() -> None:
            await Retry(attempt_timeout=HOUR).acall(work)
            ended.append("second")

        async def other() -> None:
            await turns_until(lambda: "first" in ended)
            for _ in range(99):
                await backend().sleep(0)
            stuck.released.set()

        with StuckAttempt() as stuck:
            await together(place, first, second, other)
        return clock.now() < HOUR and ended == ["first", "second"]

    assert in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", HELD)
@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_a_result_in_time_counts_even_if_the_loop_sees_it_late(
    place: str, error: type[Exception] | None
) -> None:
    """Another task blocks the loop meanwhile. The attempt is not repeated."""
    calls: list[None] = []

    def work() -> str:
        calls.append(None)
        if error is not None:
            raise error
        return "done"

    async def waiting(clock: VirtualClock) -> list[object]:
        seen: list[object] = []

        async def call() -> None:
            try:
                seen.append(await Retry(attempt_timeout=HOUR, backoff=[0], give_up_after=None).acall(work))
            except ZeroDivisionError:
                seen.append("failed")

        async def blocking() -> None:
            await turns_until(lambda: bool(calls))
            until_idle()
            clock.advance(2 * HOUR)

        clock.now()
        await together(place, call, blocking)
        return seen

    assert in_virtual_time(place, waiting) == ["done" if error is None else "failed"]
    assert len(calls) == 1


def until_idle() -> None:
    """Wait until the only worker is idle."""
    while not _threads._idle:
        Event().wait(0.001)
