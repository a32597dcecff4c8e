"""`Event.first_item`: the time from the start of the call to the first item of a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from redouble import Retry, observe
from redouble.types import Event
from tests.support.fakes import Boom, Virtual, in_colour
from tests.support.streams import ScriptedSource, Takes

SCRIPTS: dict[str, tuple[list[list[Any]], list[tuple[str, int, float | None]]]] = {
    "at once": ([[1, 2]], [("before_attempt", 1, None), ("success", 1, 0.0)]),
    "after a while": ([[Takes(3), 1, Takes(9), 2]], [("before_attempt", 1, None), ("success", 1, 3.0)]),
    "after another attempt": (
        [[Takes(2), "fail"], [Takes(3), 1, Takes(9)]],
        [
            ("before_attempt", 1, None),
            ("failure", 1, None),
            ("retry", 1, None),
            ("before_attempt", 2, None),
            ("success", 2, 6.0),  # with the delay of one second
        ],
    ),
    "never": (
        [[Takes(2), "fail"]],
        [
            ("before_attempt", 1, None),
            ("failure", 1, None),
            ("retry", 1, None),
            ("before_attempt", 2, None),
            ("failure", 2, None),
            ("give_up", 2, None),
        ],
    ),
    "empty": ([[Takes(3)]], [("before_attempt", 1, None), ("success", 1, None)]),
    "broken after it": (
        [[Takes(3), 1, Takes(9), "fail"]],
        [("before_attempt", 1, None), ("failure", 1, 3.0), ("give_up", 1, 3.0)],
    ),
}
SHAPES = ("generator", "call", "stream")


HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


def read(
    colour: str,
    shape: str,
    script: list[list[Any]],
    *,
    resume: bool = False,
    own: bool = False,
    most: int = 9,
) -> list[Event]:
    """Read at most ``most`` items; return the events of an observer, or of the policy's hooks if ``own``."""
    clock, events = Virtual(50.0), list[Event]()
    tape = ScriptedSource(script, clock, [])
    hooks: dict[str, Any] = dict.fromkeys(HOOKS, events.append) if own else {}
    policy = Retry(on=Boom, attempts=2, backoff=[1], clock=clock, name="tape", **hooks)

    def stream_of(source: Callable[[], Any]) -> Any:
        if shape == "stream":
            return policy.stream(source, resume=(lambda _: source()) if resume else None)
        return policy(source)() if shape == "generator" else policy.call(source)

    def blocking() -> None:
        reading = iter(stream_of(tape.items))
        for _ in range(most):
            if next(reading, None) is None:
                return
        reading.close()

    async def waiting() -> None:
        reading = aiter(stream_of(tape.aitems))
        for _ in range(most):
            if await anext(reading, None) is None:
                return
        await reading.aclose()

    with nullcontext() if own else observe(events.append), suppress(Boom):
        in_colour(colour, blocking, waiting)
    return events


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_events_have_the_time_of_the_first_item(colour: str, shape: str, script: str) -> None:
    steps, expected = SCRIPTS[script]
    events = read(colour, shape, steps)
    assert [(event.what, event.attempt, event.first_item) for event in events] == expected


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_stream_closed_early_has_the_time_of_its_first_item(colour: str, shape: str, own: bool) -> None:
    last = read(colour, shape, [[Takes(3), 1, 2, 3]], most=2, own=own)[-1]
    assert (last.what, last.first_item) == ("success", 3.0)


def test_a_resumed_stream_keeps_the_time_of_its_very_first_item(colour: str) -> None:
    """Attempts are counted from 1 after each item, but it is the same stream."""
    script = [[Takes(3), 1, Takes(9), "fail"], [Takes(5), 2, "fail"], [Takes(7), "fail"]]
    events = read(colour, "stream", script, resume=True)
    assert [(event.what, event.attempt, event.first_item) for event in events] == [
        ("before_attempt", 1, None),
        *[("failure", 1, 3.0), ("retry", 1, 3.0), ("before_attempt", 2, 3.0)] * 2,
        ("failure", 2, 3.0),
        ("give_up", 2, 3.0),
    ]


def test_elapsed_times_of_a_resumed_stream(colour: str) -> None:
    """`elapsed` counts from the start of the call, `attempt_elapsed` from the start of each attempt."""
    script = [[Takes(3), 1, Takes(9), "fail"], [Takes(5), 2, Takes(1), "fail"], [Takes(7), "fail"]]
    events = read(colour, "stream", script, resume=True)
    assert [(event.what, event.elapsed, event.attempt_elapsed) for event in events] == [
        ("before_attempt", 0, None),
        ("failure", 12, 12),
        ("retry", 12, 12),
        ("before_attempt", 13, None),
        ("failure", 19, 6),
        ("retry", 19, 6),
        ("before_attempt", 20, None),
        ("failure", 27, 7),
        ("give_up", 27, 7),
    ]


def test_calls_that_are_no_streams_have_no_first_item(colour: str) -> None:
    events: list[Event] = []

    async def work() -> int:
        return 1

    with observe(events.append):
        in_colour(colour, lambda: Retry().call(int), lambda: Retry().call(work))
    assert [event.first_item for event in events] == [None, None]
