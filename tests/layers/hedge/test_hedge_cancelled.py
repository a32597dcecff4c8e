"""A cancelled caller: at any moment of a race, twice, or by a timeout; no attempt is left running."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import trio

from redouble import SYSTEM, Hedge
from redouble._runtime.backend import backend, under_trio
from tests.support.fakes import Boom, always
from tests.support.layers.hedge_attempts import LOOPS, ON_ASYNCIO, Response, ScriptedAttempts, limit, timed
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

# When the caller is cancelled, how many attempts there are by then, and when all have ended: on Trio, and on
# asyncio, where the first one is in the caller's task, and the others are cancelled after it.
MOMENTS = pytest.mark.parametrize(
    ("moment", "began", "on_trio", "on_asyncio"),
    [
        (0.5, 1, 2.5, 2.5),  # before the first one is late
        (1.5, 2, 3.5, 5.5),
        (2.5, 3, 4.5, 5.5),  # all of them are running; on asyncio the third one still wins
        (4, 3, 5.5, 5.5),  # the third one has won, and the others are being cancelled
    ],
)


def three() -> ScriptedAttempts:
    """Make three attempts; the last one ends first, at 3.5 s; a cancelled attempt takes 2 s to end."""
    return ScriptedAttempts([(9, "a"), (9, "b"), (1.5, "c")], cleanup_seconds=2)


@LOOPS
@MOMENTS
def test_a_limit_around_a_race_ends_after_all_attempts(
    colour: str, moment: float, began: int, on_trio: float, on_asyncio: float
) -> None:
    """Every attempt that started has ended, in its own time, before the caller continues."""
    work = three()

    async def main() -> float:
        async with limit(moment):
            await Hedge(1, None, hedges=2).call(work)
            pytest.fail("it went on")
        return SYSTEM.now()

    assert timed(colour, main) == pytest.approx(on_trio if colour == "trio" else on_asyncio, abs=0.01)
    assert (len(work.start_times), work.running) == (began, 0)


@ON_ASYNCIO
@pytest.mark.parametrize("moments", [[0.5], [0.5, 1], [1.5, 2, 4], [2.5, 2.6], [4, 4.1, 5]])
def test_a_caller_cancelled_repeatedly_waits_for_all_attempts(colour: str, moments: list[float]) -> None:
    """Also if it is cancelled again while its attempts end."""
    work = three()

    async def main() -> None:
        task = asyncio.ensure_future(Hedge(1, None, hedges=2).call(work))
        for moment in moments:
            asyncio.get_running_loop().call_later(moment, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert work.running == 0

    timed(colour, main)
    assert len(work.start_times) == min(3, 1 + int(moments[0]))


@ON_ASYNCIO
def test_a_race_leaves_no_cancellation_on_the_callers_task(colour: str) -> None:
    """The race takes back its own cancellation of the first attempt, and no cancellation by the caller."""

    async def main() -> list[Any]:
        task = asyncio.current_task()
        assert task is not None
        found = [await Hedge(1, None).call(ScriptedAttempts([(9, "a"), (1, "b")])), task.cancelling()]
        async with limit(5):
            found.append(await Hedge(1, None).call(ScriptedAttempts([(9, "a"), (1, "b")])))
            await asyncio.sleep(9)
        return [*found, task.cancelling(), await Hedge(1, None).call(ScriptedAttempts([(9, "a"), (1, "c")]))]

    assert timed(colour, main) == ["b", 0, "b", 0, "c"]


@LOOPS
@pytest.mark.parametrize("moment", [0.5, 1.5])
def test_the_caller_sees_a_cancellation_and_no_exception_group(colour: str, moment: float) -> None:
    found: list[type[BaseException]] = []

    async def main() -> None:
        async with limit(moment):
            try:
                await Hedge(1, None).call(three())
            except BaseException as error:
                found.append(type(error))
                raise

    timed(colour, main)
    assert found == [trio.Cancelled if colour == "trio" else asyncio.CancelledError]


@LOOPS
@pytest.mark.parametrize("moment", [0.5, 2.5])
def test_the_result_of_a_first_attempt_that_swallows_the_cancellation_is_returned(
    colour: str, moment: float
) -> None:
    """As without a hedge."""
    result = Response()
    work = ScriptedAttempts([(9, result), (9, "b")], uncancellable=[1])

    async def main() -> Any:
        if under_trio():
            with trio.move_on_after(moment):
                return await Hedge(1, None).call(work)
        task = asyncio.ensure_future(Hedge(1, None).call(work))
        asyncio.get_running_loop().call_later(moment, task.cancel)
        return await task

    assert timed(colour, main) is result
    assert (result.closed, work.running) == (0, 0)


# ------------------------------------------------------------------ unused results


@LOOPS
@pytest.mark.parametrize("how", ["refused", "won", "closing"])
def test_a_cancelled_race_closes_its_unused_results(colour: str, how: str) -> None:
    """``how``: one was refused, one has won, or another one is being closed, which takes 1 s."""
    results = [Response(), Response()]
    works = {
        "refused": ScriptedAttempts([(2, results[0]), (9, "b")]),
        "won": ScriptedAttempts([(9, "a"), (1, results[1])], cleanup_seconds=2),
        "closing": ScriptedAttempts([(9, results[0]), (1, results[1])], uncancellable=[1]),
    }
    moments = {"refused": 3.0, "won": 3.0, "closing": 2.5}
    until = always(False) if how == "refused" else None

    got: list[object] = []

    async def main() -> None:
        async with limit(moments[how]):
            got.append(await Hedge(1, None, until=until).call(works[how]))
            await backend().sleep(0)  # Trio shields the closing, and so the caller gets the result

    timed(colour, main)
    expected = {"refused": [1, 0], "won": [0, 1], "closing": [1, colour != "trio"]}
    assert [result.closed for result in results] == expected[how]
    assert bool(got) is (how == "closing" and colour == "trio")


@LOOPS
def test_a_hedge_works_after_cancelled_and_failed_calls(colour: str) -> None:
    hedge = Hedge(1, None)

    async def main() -> list[Any]:
        async with limit(1.5):
            await hedge.call(three())
        with pytest.raises(Boom):
            await hedge.call(ScriptedAttempts([(2, Boom), (2, Boom)]))
        async with limit(2.5):
            await hedge.call(ScriptedAttempts([(9, "a"), (1, "b")], cleanup_seconds=1))
        await backend().sleep(20)
        return [
            await hedge.call(ScriptedAttempts([(0.5, "a")])),
            await hedge.call(ScriptedAttempts([(9, "a"), (1, "b")])),
        ]

    assert timed(colour, main) == ["a", "b"]
