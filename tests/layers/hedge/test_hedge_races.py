"""Invariants of every race, whatever the attempts do and wherever a `Hedge` is in a pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Hedge, Layer, Retry, Timeout, errors
from redouble._runtime.backend import backend, under_trio
from tests.support.fakes import ASYNC, Boom, Panic
from tests.support.layers.hedge_attempts import LOOPS, HedgedCall, ScriptedAttempts, make_hedged_call, timed
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

Steps = list[tuple[float, Any]]
TINY = 1 / 64  # added so that no two attempts end, or start and end, at the same moment

ENDINGS = st.sampled_from(["good", "good", "bad", Boom, OSError])
ATTEMPTS = st.lists(st.tuples(st.integers(0, 6), ENDINGS), min_size=4, max_size=4).map(
    lambda some: [(takes + TINY * number, ending) for number, (takes, ending) in enumerate(some, 1)]
)


def expected(steps: Steps, hedges: int) -> tuple[str, float, int]:
    """Return the outcome of a race with a delay of 1 s, its duration and the number of attempts: a model."""
    ends = {1: steps[0][0]}
    first = ""
    for begun in range(1, len(steps) + 1):
        for moment, number in sorted((moment, number) for number, moment in ends.items()):
            if begun <= hedges and moment > begun:
                break  # the next one starts before that
            ending = steps[number - 1][1]
            outcome = ending if isinstance(ending, str) else f"{ending.__name__}(attempt {number})"
            if begun == 1 or ending in ("good", OSError):
                return outcome, moment, begun  # it was in time, or it has won
            del ends[number]
            first = outcome if number == 1 else first
            if not ends:
                return first, moment, begun
        ends[begun + 1] = begun + steps[begun][0]
    raise AssertionError


def is_good(result: object) -> bool:
    return result == "good"


@settings(max_examples=50)
@given(steps=ATTEMPTS, hedges=st.integers(1, 3), colour=st.sampled_from(ASYNC))
def test_the_first_acceptable_outcome_wins(steps: Steps, hedges: int, colour: str) -> None:
    work = ScriptedAttempts(steps)
    hedge = Hedge(1, None, hedges=hedges, on=Boom, until=is_good)

    async def main() -> HedgedCall:
        return await make_hedged_call(hedge, work)

    outcome, moment, begun = expected(steps, hedges)
    call = timed(colour, main)
    assert str(call).startswith(f"{outcome} after ")
    assert call.took == pytest.approx(moment, abs=0.01)
    assert (len(work.start_times), work.running) == (begun, 0)
    assert work.start_times == [0.0, 1.0, 2.0, 3.0][:begun]


async def side_by_side(calls: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    if under_trio():
        async with trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(call)
    else:
        await asyncio.gather(*(call() for call in calls))


@settings(max_examples=25)
@given(
    share=st.sampled_from([0.01, 0.1, 0.5, 2.0]),
    calls=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), min_size=10, max_size=40),
    learns=st.booleans(),
    colour=st.sampled_from(ASYNC),
)
def test_the_extra_load_never_exceeds_the_share_and_one_call(
    share: float, calls: list[tuple[int, int]], learns: bool, colour: str
) -> None:
    """For calls at any time, also concurrent ones; checked at every attempt."""
    hedge = Hedge(None if learns else 1, share, hedges=3)
    calling = attempts = 0
    over, every = list[float](), list[ScriptedAttempts]()

    async def one(starts: int, takes: int) -> None:
        nonlocal calling
        await backend().sleep(starts)
        work = ScriptedAttempts([(takes, "good")] * 4)
        every.append(work)
        calling += 1

        async def counted() -> Any:
            nonlocal attempts
            attempts += 1
            over.append(attempts - calling - share * calling)
            return await work()

        assert await hedge.call(counted) == "good"

    async def main() -> None:
        await side_by_side([partial(one, *call) for call in calls])

    timed(colour, main)
    assert sum(work.running for work in every) == 0
    assert max(over) <= 1 + 1e-9
    counts = hedge.snapshot()
    assert (counts["calls"], counts["hedged"]) == (len(calls), attempts - len(calls))


# ------------------------------------------------------------------------------ pipelines


def layers(hedges: int) -> Layer:
    return Retry(on=Exception, attempts=3, backoff=[0, 0]) | Hedge(1, None, hedges=hedges) | Timeout(5)


@LOOPS
@pytest.mark.parametrize("hedges", [1, 2])
@pytest.mark.parametrize("ending", ["never", "fails"])
def test_calls_are_attempts_times_one_more_than_hedges_at_most(colour: str, hedges: int, ending: str) -> None:
    """A service that hangs, and one that fails late; with a timeout inside, and retries outside."""
    work = ScriptedAttempts([(9, "a") if ending == "never" else (4, Boom)] * 20)

    async def main() -> HedgedCall:
        return await make_hedged_call(layers(hedges), work)

    call = timed(colour, main)
    assert type(call.error) is (errors.AttemptTimeout if ending == "never" else Boom)
    assert (len(work.start_times), work.running) == (3 * (1 + hedges), 0)


@LOOPS
def test_a_limit_inside_applies_to_each_attempt(colour: str) -> None:
    """The first attempt is cut after its 5 s; the one that started a second later has a second more."""
    work = ScriptedAttempts([(9, "a"), (4.5, "b")])

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None) | Timeout(5), work)

    assert str(timed(colour, main)) == "b after 5.5"


@LOOPS
def test_a_limit_outside_ends_all_attempts(colour: str) -> None:
    work = ScriptedAttempts([(9, "a"), (9, "b")])

    async def main() -> HedgedCall:
        return await make_hedged_call(Timeout(3) | Hedge(1, None), work)

    call = timed(colour, main)
    assert (type(call.error), call.took) == (errors.AttemptTimeout, 3)
    assert (work.running, sorted(work.cancelled)) == (0, [1, 2])


@LOOPS
def test_the_next_call_after_a_failure_succeeds(colour: str) -> None:
    pipeline = layers(1)

    async def main() -> list[str]:
        broken = await make_hedged_call(pipeline, ScriptedAttempts([(9, "a")] * 6))
        return [
            type(broken.error).__name__,
            str(await make_hedged_call(pipeline, ScriptedAttempts([(9, "a"), (1, "b")]))),
        ]

    assert timed(colour, main) == ["AttemptTimeout", "b after 2"]


# --------------------------------------------------------------------------- interrupted


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Panic])
@pytest.mark.parametrize("steps", [[(0.5, 1)], [(2, 1), (9, 0)], [(9, 0), (1, 1)]])
def test_an_interrupt_is_raised_unchanged_on_trio(
    error: type[BaseException], steps: list[tuple[float, int]]
) -> None:
    work = ScriptedAttempts([(takes, error if raises else "late") for takes, raises in steps])
    found: list[BaseException] = []

    async def main() -> None:
        try:
            await Hedge(1, None).call(work)
        except BaseException as interrupt:
            found.append(interrupt)

    timed("trio", main)
    assert [type(one) for one in found] == [error]
    assert work.running == 0


def test_two_interrupts_at_once_are_raised_as_a_group_on_trio() -> None:
    """Neither of them may be lost."""
    work = ScriptedAttempts([(9, Panic), (1, Panic)], uncancellable=[1])

    async def main() -> None:
        with pytest.raises(BaseExceptionGroup) as caught:
            await Hedge(1, None).call(work)
        assert [type(one) for one in caught.value.exceptions] == [Panic, Panic]

    timed("trio", main)
