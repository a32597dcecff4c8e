"""The end of a race: losers are cancelled and awaited, their results are closed, and nothing is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from redouble import SYSTEM, Hedge
from tests.support.fakes import Boom, Panic
from tests.support.layers.hedge_attempts import (
    LOOPS,
    ON_ASYNCIO,
    HedgedCall,
    Other,
    Response,
    ScriptedAttempts,
    make_hedged_call,
    timed,
)
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


def refusing(*bad: object) -> Callable[[object], bool]:
    def until(result: object) -> bool:
        return result not in bad

    return until


# ------------------------------------------------------------------------------- losers


@LOOPS
def test_losers_are_cancelled_and_awaited(colour: str) -> None:
    work = ScriptedAttempts([(9, "a"), (9, "b"), (0.5, "c"), (9, "d")], cleanup_seconds=2)

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None, hedges=3), work)

    assert str(timed(colour, main)) == "c after 4.5"
    assert (work.running, sorted(work.cancelled)) == (0, [1, 2])


@LOOPS
@pytest.mark.parametrize("stubborn", [[], [1], [2], [1, 2]])
def test_results_of_losers_that_swallow_the_cancellation_are_closed(colour: str, stubborn: list[int]) -> None:
    """Also if the first attempt lost; the winner's result is not closed."""
    results = [Response(), Response(), Response()]
    work = ScriptedAttempts(
        [(9, results[0]), (9, results[1]), (1, results[2])], cleanup_seconds=1, uncancellable=stubborn
    )

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None, hedges=2), work)

    call = timed(colour, main)
    assert (call.value, work.running) == (results[2], 0)
    assert [result.closed for result in results] == [number in stubborn for number in (1, 2, 3)]
    assert call.took == 3 + 1 + len(stubborn)  # tidying, and closing one after the other


@LOOPS
@pytest.mark.parametrize("last", ["hedge", "first", "none"])
def test_refused_results_are_closed(colour: str, last: str) -> None:
    results = [Response(), Response()]
    times = [2.0, 4.0] if last == "hedge" else [4.0, 1.0]
    refused = {"hedge": results[:1], "first": results[1:], "none": results}[last]
    hedge = Hedge(1, None, until=refusing(*refused))

    async def main() -> HedgedCall:
        return await make_hedged_call(hedge, ScriptedAttempts(list(zip(times, results, strict=True))))

    winner = results[last == "hedge"]
    assert timed(colour, main).value is winner  # if all are refused, the first result is returned
    assert [result.closed for result in results] == [result is not winner for result in results]


@LOOPS
@pytest.mark.parametrize("refused", [False, True])
def test_a_shared_result_is_not_closed_if_it_wins(colour: str, refused: bool) -> None:
    shared = Response()
    work = ScriptedAttempts([(2 if refused else 9, shared), (3, shared)], uncancellable=[1])

    def until(_: object) -> bool:
        return work.running == 0  # accepts only the result of the last attempt

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None, until=until if refused else None), work)

    assert str(timed(colour, main)).endswith(" after 4")
    assert shared.closed == 0


@LOOPS
def test_a_rule_that_fails_leaves_no_result_open(colour: str) -> None:
    result = Response()

    def raising(_: object) -> bool:
        raise LookupError

    async def main() -> HedgedCall:
        return await make_hedged_call(
            Hedge(1, None, until=raising), ScriptedAttempts([(9, "a"), (1, result)])
        )

    assert type(timed(colour, main).error) is LookupError
    assert result.closed == 1


@LOOPS
def test_closing_that_fails_is_logged(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    others = [Response(OSError), Response()]
    work = ScriptedAttempts([(9, others[0]), (9, others[1]), (1, "c")], uncancellable=[1, 2])

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None, hedges=2), work)

    assert timed(colour, main).value == "c"
    assert [other.closed for other in others] == [1, 1]
    [record] = caplog.records
    assert (record.levelno, record.name) == (logging.ERROR, "redouble")
    message = "the result of an attempt that lost could not be closed: OSError ("
    assert record.getMessage().startswith(message)


@LOOPS
@pytest.mark.parametrize("error", [Boom, Other])
def test_an_error_that_a_loser_raises_when_cancelled_is_ignored(colour: str, error: type[Exception]) -> None:
    work = ScriptedAttempts([(9, error), (1, "b")], uncancellable=[1])

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None, on=Boom), work)

    assert str(timed(colour, main)) == "b after 2"


@ON_ASYNCIO
@pytest.mark.parametrize("first", ["a", Boom])
def test_an_extra_attempt_that_cancels_itself_has_lost(colour: str, first: Any) -> None:
    work = ScriptedAttempts([(3, first), (1, asyncio.CancelledError)])

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None), work)

    assert str(timed(colour, main)) == ("a after 3" if first == "a" else "ScriptedError(attempt 1) after 3")


@LOOPS
@pytest.mark.parametrize("steps", [[(0.5, Panic)], [(2, Panic), (9, "b")], [(9, "a"), (1, Panic)]])
def test_a_base_exception_is_raised_as_itself(colour: str, steps: list[tuple[float, Any]]) -> None:
    work = ScriptedAttempts(steps)

    async def main() -> float:
        with pytest.raises(Panic, match="attempt") as caught:
            await Hedge(1, None).call(work)
        assert type(caught.value) is Panic
        return SYSTEM.now()

    assert timed(colour, main) == pytest.approx(steps[0][0] if len(steps) == 1 else 2, abs=0.01)
    assert work.running == 0


@LOOPS
@pytest.mark.parametrize("inside", [[Panic()], [Panic(), Boom()]])
def test_an_exception_group_of_the_function_is_raised_unchanged(
    colour: str, inside: list[BaseException]
) -> None:
    group = BaseExceptionGroup("own", inside)

    async def failing() -> None:
        raise group

    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            await Hedge(1, None).call(failing)
        if colour != "trio":  # Trio makes a new group at every nursery
            assert caught.value is group
        assert (caught.value.message, list(caught.value.exceptions)) == ("own", inside)

    timed(colour, main)


# ----------------------------------------------------------------------------- contexts


@LOOPS
def test_the_callers_context_reaches_every_attempt(colour: str) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    work, found = ScriptedAttempts([(9, "a"), (9, "b"), (1, "c")]), list[str]()

    async def reading() -> Any:
        found.append(tenant.get())
        tenant.set(f"changed by {len(found)}")
        return await work()

    async def main() -> str:
        tenant.set("me")
        await Hedge(1, None, hedges=2).call(reading)
        return tenant.get()

    # The first attempt runs in the task of the caller, so context variables that it sets stay set.
    assert timed(colour, main) == "changed by 1"
    assert found == ["me"] * 3
