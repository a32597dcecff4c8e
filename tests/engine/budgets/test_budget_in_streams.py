"""Budgets and streams: credited at the first item, and no later."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, TokenBucket
from tests.runtime.test_cancellation import cancelled, policy
from tests.support.budgets import RecordingBudget, budget_of
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour
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
        # from the first item on, nothing that happens matters
        ([["fail"], [1, Boom("late")]], Reader(), ["spend 5: 15", "credit 5: 20"]),
        ([["fail"], [1, 2]], Reader("close", 1), ["spend 5: 15", "credit 5: 20"]),
        ([["fail"], [1, 2]], Reader("drop", 1), ["spend 5: 15", "credit 5: 20"]),
        # one that has no items has ended well
        ([["fail"], []], Reader(), ["spend 5: 15", "credit 5: 20"]),
        ([["fail"]], Reader(), ["spend 5: 15", "spend 5: 10", "spend 5: 5"]),
        ([[1]], Reader("close", 0), []),
    ],
)
def test_streams_are_credited_at_their_first_item(
    colour: str, script: list[list[Any]], reader: Reader, lines: list[str]
) -> None:
    clock, books = Virtual(), twenty()
    tape, taken = ScriptedSource(script, clock, []), list[object]()
    retrying = Retry(on=Boom, backoff=[1] * 9, budget=books, clock=clock)

    async def waiting() -> None:
        await reader.aread(retrying(tape.aitems), taken)

    try:
        in_colour(colour, lambda: reader.read(retrying(tape.items), taken), waiting)
    except Boom:
        taken.append("failed")
    assert books.lines == lines


def test_a_stream_is_credited_before_its_second_item(colour: str) -> None:
    clock, books = Virtual(), twenty()
    tape = ScriptedSource([["fail"], [1, 2]], clock, [])
    retrying = Retry(on=Boom, backoff=[1] * 9, budget=books, clock=clock)

    def blocking() -> list[str]:
        stream = retrying(tape.items)()
        assert (next(stream), books.lines) == (1, ["spend 5: 15", "credit 5: 20"])
        assert next(stream) == 2
        stream.close()
        return books.lines

    async def waiting() -> list[str]:
        stream = retrying(tape.aitems)()
        assert (await anext(stream), books.lines) == (1, ["spend 5: 15", "credit 5: 20"])
        assert await anext(stream) == 2
        await stream.aclose()
        return books.lines

    assert in_colour(colour, blocking, waiting) == ["spend 5: 15", "credit 5: 20"]


@pytest.mark.parametrize("colour", ASYNC)
def test_a_stream_cancelled_in_the_delay(colour: str) -> None:
    books = two()
    tape = ScriptedSource([["fail"]], Virtual(), [])

    async def read() -> None:
        await Reader().aread(policy(budget=books)(tape.aitems), [])

    assert cancelled(colour, read) == "cancelled"
    assert books.lines == ["spend 1: 1", "refund 1: 2"]
