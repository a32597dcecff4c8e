"""Races whose attempts end at the same moment, on unusual loops, and in several threads."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
import trio

from redouble import Grant, Hedge, Kind, RetryBudget
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Ledger
from tests.support.layers.hedge_attempts import (
    LOOPS,
    ON_ASYNCIO,
    Response,
    ScriptedAttempts,
    make_hedged_call,
    timed,
)
from tests.support.runtime.timers import SealedLoop, check, live, timer
from tests.support.thread_switching import switching
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

OFTEN = 20  # Trio schedules tasks in random order
THREADS, CALLS = 4, 40


class RecordingBudget(Ledger):
    """A budget that records how many attempts are running when an extra call asks for a grant."""

    def __init__(self, work: ScriptedAttempts, seen: list[int]) -> None:
        super().__init__()
        self._work, self._seen = work, seen

    def spend(self, kind: Kind, now: float, /) -> Grant | None:
        self._seen.append(self._work.running)
        return super().spend(kind, now)


# ------------------------------------------------------------------------ the same moment


@LOOPS
@pytest.mark.parametrize(
    ("steps", "ends", "on_trio_also"),
    [
        # all have failed when the next one is due
        ([(1.5, Boom), (1, Boom), (0.5, "c")], "ScriptedError(attempt 1) after 2", "c after 2.5"),
        # one has won when the next one is due
        ([(9, "a"), (1, "b"), (0.5, "c")], "b after 2", "b after 2"),
        # the first one ends when it is late
        ([(1, "a"), (9, "b"), (9, "c")], "a after 1", "a after 1"),
        ([(1, Boom), (0.5, "b"), (9, "c")], "ScriptedError(attempt 1) after 1", "b after 1.5"),
    ],
)
def test_an_attempt_about_to_end_decides_the_race(
    colour: str, steps: list[tuple[float, Any]], ends: str, on_trio_also: str
) -> None:
    """On asyncio no attempt starts at the moment when the race ends; Trio may have started it before."""
    works, running = list[ScriptedAttempts](), list[int]()

    async def main() -> set[str]:
        found = set[str]()
        for _ in range(OFTEN):
            works.append(ScriptedAttempts(steps))
            hedge = Hedge(1, None, hedges=2, budget=RecordingBudget(works[-1], running))
            found.add(str(await make_hedged_call(hedge, works[-1])))
        return found

    found = timed(colour, main)
    assert found <= ({ends, on_trio_also} if colour == "trio" else {ends})
    begun = {len(work.start_times) for work in works}
    if colour != "trio":
        assert begun == {1 if ends.endswith("after 1") else 2}
    assert not any(work.running for work in works)
    assert 0 not in running  # no attempt starts when all have ended


@ON_ASYNCIO
def test_a_first_attempt_that_ends_in_the_same_loop_iteration_is_not_cancelled(colour: str) -> None:
    """It has lost nevertheless, so its result is closed."""
    late, ended = Response(), list[str]()

    async def main() -> object:
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[object]] = [loop.create_future(), loop.create_future()]
        waiting = iter(answers)

        async def fetch() -> object:
            answer = await next(waiting)
            ended.append("not cut")
            return answer

        def give() -> None:
            answers[1].set_result("b")
            answers[0].set_result(late)

        loop.call_later(3, give)
        return await Hedge(1, None).call(fetch)

    assert timed(colour, main) == "b"
    assert (ended, late.closed) == (["not cut"] * 2, 1)


@ON_ASYNCIO
def test_an_attempt_that_is_cancelled_before_it_begins_is_not_in_flight(colour: str) -> None:
    budget, calls = RetryBudget(None, max_in_flight=1.0, minimum=1), list[None]()
    hedge = Hedge([1], None, on=OSError, budget=budget)

    async def main() -> BaseException:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()
        loop.call_later(1, answer.set_exception, KeyError("first"))

        async def fetch() -> object:
            calls.append(None)
            return await answer

        try:
            await hedge.call(fetch)
        except KeyError as error:
            return error  # its traceback keeps the objects of the call
        raise AssertionError

    error = timed(colour, main)
    assert hedge.snapshot()["hedged"] == 1
    assert budget.snapshot()["retries_in_flight"] == 0, error
    assert len(calls) == 1


@ON_ASYNCIO
@pytest.mark.parametrize(
    "steps", [[(0.5, "a")], [(9, "a"), (1, "b")], [(9, "a"), (9, "b"), (0.5, "c")], [(3, Boom)] * 3]
)
def test_nothing_is_left_in_the_timer_of_the_loop(colour: str, steps: list[tuple[float, Any]]) -> None:
    async def main() -> None:
        for _ in range(3):
            await make_hedged_call(Hedge(1, None, hedges=2), ScriptedAttempts(steps))
            assert live(timer()) == []
            check(timer())

    timed(colour, main)


# ------------------------------------------------------------------------------ odd loops


def test_a_race_on_a_loop_that_rejects_our_attributes() -> None:
    work = ScriptedAttempts([(9, "a"), (9, "b"), (1, "c")])

    async def main() -> str:
        return str(await make_hedged_call(Hedge(1, None, hedges=2), work))

    with virtual_time(), asyncio.Runner(loop_factory=SealedLoop) as runner:
        assert runner.run(main()) == "c after 3"
    assert (work.start_times, work.running) == ([0, 1, 2], 0)


def test_a_coroutine_driven_without_a_loop_is_not_hedged() -> None:
    """There is no loop that could run an extra attempt."""

    async def answer() -> str:
        return "done"

    with pytest.raises(StopIteration) as ended:
        Hedge(0, None).call(answer).send(None)
    assert ended.value.value == "done"


def test_a_cancelled_function_with_its_own_tasks_on_trio() -> None:
    """However the layers are nested, the caller sees one cancellation."""
    found: list[BaseException] = []

    async def fetch() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 9)
            nursery.start_soon(trio.sleep, 9)

    async def main() -> None:
        with trio.move_on_after(2.5) as scope:
            try:
                await Hedge(1, None).call(fetch)
            except BaseException as error:
                found.append(error)
                raise
        assert scope.cancelled_caught

    timed("trio", main)
    assert [type(error) for error in found] == [trio.Cancelled]


# -------------------------------------------------------------------------------- threads


@pytest.mark.usefixtures(switching.__name__)
def test_loops_in_several_threads_share_one_hedge() -> None:
    """Each extra call is counted once, in whichever thread."""
    hedge, attempts = Hedge(0, 0.1), count()

    async def fetch() -> str:
        next(attempts)
        for _ in range(20):  # iterations of the loop, enough for the call to be late
            await asyncio.sleep(0)
        return "done"

    async def calls() -> list[str]:
        return [await hedge.call(fetch) for _ in range(CALLS)]

    def run(_: int) -> list[str]:
        return asyncio.run(calls())

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(run, range(THREADS))) == [["done"] * CALLS] * THREADS
    extra = next(attempts) - CALLS * THREADS
    assert 1 < extra <= 0.1 * CALLS * THREADS + 1
    assert hedge.snapshot()["hedged"] == extra
