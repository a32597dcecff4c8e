"""Budgets and streams: a stream is credited at its first item."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, TokenBucket
from tests.support.budgets import RecordingBudget, budget_of
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour
from tests.support.runtime.cancellation import cancelled, policy
from tests.support.streams import Reader, ScriptedSource


def twenty() -> RecordingBudget:
    return RecordingBudget(TokenBucket(20))


def two() -> RecordingBudget:
    return RecordingBudget(budget_of(per_second=0.2))


@pytest.mark.parametrize(
    ("script", "reader", "lines"),
    [
        ([[1, 2]], Reader(), ["credit -: 20"]),
        ([["fail"], [1, 2]], Reader(), ["spend 5: 15", "credit 5: 20"]),
        # whatever happens after the first item changes nothing
        ([["fail"], [1, Boom("late")]], Reader(), ["spend 5: 15", "credit 5: 20"]),
        ([["fail"], [1, 2]], Reader("close", 1), ["spend 5: 15", "credit 5: 20"]),
        ([["fail"], [1, 2]], Reader("drop", 1), ["spend 5: 15", "credit 5: 20"]),
        # an empty stream is a success
        ([["fail"], []], Reader(), ["spend 5: 15", "credit 5: 20"]),
        ([["fail"]], Reader(), ["spend 5: 15", "spend 5: 10", "spend 5: 5"]),
        ([[1]], Reader("close", 0), []),
    ],
)
def test_streams_are_credited_at_their_first_item(
    colour: str, script: list[list[Any]], reader: Reader, lines: list[str]
) -> None:
    clock, budget = Virtual(), twenty()
    tape, taken = ScriptedSource(script, clock, []), list[object]()
    retrying = Retry(on=Boom, backoff=[1] * 9, budget=budget, clock=clock)

    async def waiting() -> None:
        await reader.aread(retrying(tape.aitems), taken)

    try:
        in_colour(colour, lambda: reader.read(retrying(tape.items), taken), waiting)
    except Boom:
        taken.append("failed")
    assert budget.lines == lines


def test_a_stream_is_credited_before_its_second_item(colour: str) -> None:
    clock, budget = Virtual(), twenty()
    tape = ScriptedSource([["fail"], [1, 2]], clock, [])
    retrying = Retry(on=Boom, backoff=[1] * 9, budget=budget, clock=clock)

    def blocking() -> list[str]:
        stream = retrying(tape.items)()
        assert (next(stream), budget.lines) == (1, ["spend 5: 15", "credit 5: 20"])
        assert next(stream) == 2
        stream.close()
        return budget.lines

    async def waiting() -> list[str]:
        stream = retrying(tape.aitems)()
        assert (await anext(stream), budget.lines) == (1, ["spend 5: 15", "credit 5: 20"])
        assert await anext(stream) == 2
        await stream.aclose()
        return budget.lines

    assert in_colour(colour, blocking, waiting) == ["spend 5: 15", "credit 5: 20"]


@pytest.mark.parametrize("colour", ASYNC)
def test_cancellation_of_a_stream_during_the_delay_refunds_the_grant(colour: str) -> None:
    budget = two()
    tape = ScriptedSource([["fail"]], Virtual(), [])

    async def read() -> None:
        await Reader().aread(policy(budget=budget)(tape.aitems), [])

    assert cancelled(colour, read) == "cancelled"
    assert budget.lines == ["spend 1: 1", "refund 1: 2"]
