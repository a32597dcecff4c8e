"""For any script of outcomes and any consumer: a prefix of one source's items, every source closed once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Retry, report
from tests.drivers.streams.test_stream_resume import Feed
from tests.support.fakes import Boom, Ledger, Panic, Virtual, in_colour
from tests.support.streams import SHAPES, Catches, FailsToClose, Reader, ScriptedSource, stacked

pytestmark = pytest.mark.one_python

EVERY = SHAPES | {"stacked": stacked}
STEPS: st.SearchStrategy[Any] = st.sampled_from(
    ["item", "item", "item", "catch", "fail", KeyError("stop"), Panic("crash"), FailsToClose()]
)
WAYS: Any = st.sampled_from(["exhaust", "break", "raise", "close", "drop", "send", "throw"])


def numbered(script: list[list[Any]]) -> list[list[Any]]:
    """Give every item its source and its place in it."""
    return [
        [
            (source, place) if step == "item" else Catches((source, place)) if step == "catch" else step
            for place, step in enumerate(steps)
        ]
        for source, steps in enumerate(script, 1)
    ]


@settings(max_examples=300)
@given(
    script=st.lists(st.lists(STEPS, max_size=5), min_size=1, max_size=4),
    way=WAYS,
    after=st.integers(0, 4),
    shape=st.sampled_from(sorted(EVERY)),
    colour=st.sampled_from(["sync", "asyncio", "trio"]),
)
def test_any_stream(script: list[list[Any]], way: Any, after: int, shape: str, colour: str) -> None:
    if shape == "stream" and way in ("send", "throw"):  # for generators only
        way = "break"
    if way in ("break", "raise", "drop"):  # where nobody can be told that closing failed
        script = [[step for step in steps if step != FailsToClose()] for steps in script]
    sources = numbered(script)
    trail: list[str] = []
    tape, taken, ledger = ScriptedSource(sources, Virtual(), trail), list[Any](), Ledger()
    told: list[str] = []
    reader = Reader(way, after, Boom("thrown"))
    policy = Retry(
        on=Boom,
        attempts=3,
        backoff=[0] * 9,
        clock=Virtual(),
        budget=ledger,
        on_success=lambda event: told.append(event.what),
        on_give_up=lambda event: told.append(event.what),
    )
    error: BaseException | None = None

    async def waiting() -> None:
        await reader.aread(lambda: EVERY[shape](policy, tape.aitems), taken)

    try:
        in_colour(colour, lambda: reader.read(lambda: EVERY[shape](policy, tape.items), taken), waiting)
    except BaseException as caught:
        error = caught

    # A prefix of the items of one source, the last that was opened; so no item twice, and none lost.
    last = sources[min(tape.opened, len(sources)) - 1] if tape.opened else []
    items: list[Any] = [step.item if isinstance(step, Catches) else step for step in last]
    assert taken == [item for item in items if isinstance(item, tuple)][: len(taken)]

    # Every source is closed exactly once, and before the next one is opened.
    assert trail == [word for n in range(1, tape.opened + 1) for word in (f"open:{n}", f"close:{n}")]

    # Credited once if anything came out, or the end did; told of one end at most.
    credited = [line for line in ledger.lines if line.startswith("credit")]
    assert len(credited) <= 1
    assert not taken or len(credited) == 1
    assert len(told) <= 1
    if tape.opened and (error is None or isinstance(error, Exception)) and way != "raise":
        ends = {"success"} if error is None else {"give_up"}
        if error is reader.value:  # what the reader threw is its own; later on that cannot always be told
            ends = {"success", "give_up"}
        assert set(told) <= ends
        assert told

    # What was handed out is never retried.
    said = None if error is None else report(error)
    if taken and said is not None:
        assert said.reason == "committed"
    spent = sum(line.startswith("spend") for line in ledger.lines)
    assert spent == max(0, tape.opened - 1)


@given(
    breaks=st.lists(st.integers(0, 3), max_size=12),
    most=st.integers(1, 12),
    colour=st.sampled_from(["sync", "asyncio", "trio"]),
)
def test_any_breaks(breaks: list[int], most: int, colour: str) -> None:
    """Whatever breaks and wherever the consumer leaves: a prefix of the numbers, all sources closed."""
    feed = Feed(*breaks, "end", most=9, attempts=3, backoff=[0] * 9)
    try:
        taken = feed.play(colour, most)
    except Boom as error:
        taken = feed.taken
        said = report(error)
        assert said is not None
        assert (said.reason, said.attempts) == ("attempts", 3)
    assert taken == list(range(1, len(taken) + 1))
    numbers = range(1, feed.opened + 1)
    for word in ("open", "close"):
        assert [said for said in feed.trail if said.startswith(word)] == [f"{word}:{n}" for n in numbers]
