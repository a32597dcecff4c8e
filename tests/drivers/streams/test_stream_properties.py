"""For any script and any consumer, the items are a prefix of one source, and each source is closed once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Retry, report
from tests.support.drivers.resumable_feed import Feed
from tests.support.fakes import Boom, Ledger, Panic, Virtual, in_colour
from tests.support.streams import SHAPES, Catches, FailsToClose, Reader, ScriptedSource, stacked

pytestmark = pytest.mark.one_python

EVERY = SHAPES | {"stacked": stacked}
STEPS: st.SearchStrategy[Any] = st.sampled_from(
    ["item", "item", "item", "catch", "fail", KeyError("stop"), Panic("crash"), FailsToClose()]
)
WAYS: Any = st.sampled_from(["exhaust", "break", "raise", "close", "drop", "send", "throw"])


def numbered(script: list[list[Any]]) -> list[list[Any]]:
    """Replace each item by the number of its source and its position in it."""
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
def test_any_script_with_any_consumer(
    script: list[list[Any]], way: Any, after: int, shape: str, colour: str
) -> None:
    if shape == "stream" and way in ("send", "throw"):  # for generators only
        way = "break"
    if way in ("break", "raise", "drop"):  # no caller is left to get the error of closing
        script = [[step for step in steps if step != FailsToClose()] for steps in script]
    sources = numbered(script)
    trail: list[str] = []
    tape, taken, ledger = ScriptedSource(sources, Virtual(), trail), list[Any](), Ledger()
    ends_emitted: list[str] = []
    reader = Reader(way, after, Boom("thrown"))
    policy = Retry(
        on=Boom,
        attempts=3,
        backoff=[0] * 9,
        clock=Virtual(),
        budget=ledger,
        on_success=lambda event: ends_emitted.append(event.what),
        on_give_up=lambda event: ends_emitted.append(event.what),
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

    # The budget is credited once if an item was delivered or the end was reached; at most one end is emitted.
    credited = [line for line in ledger.lines if line.startswith("credit")]
    assert len(credited) <= 1
    assert not taken or len(credited) == 1
    assert len(ends_emitted) <= 1
    if tape.opened and (error is None or isinstance(error, Exception)) and way != "raise":
        ends = {"success"} if error is None else {"give_up"}
        if error is reader.value:  # the reader's own error is not always recognised
            ends = {"success", "give_up"}
        assert set(ends_emitted) <= ends
        assert ends_emitted

    # A committed stream is never retried.
    reported = None if error is None else report(error)
    if taken and reported is not None:
        assert reported.reason == "committed"
    spent = sum(line.startswith("spend") for line in ledger.lines)
    assert spent == max(0, tape.opened - 1)


@given(
    breaks=st.lists(st.integers(0, 3), max_size=12),
    most=st.integers(1, 12),
    colour=st.sampled_from(["sync", "asyncio", "trio"]),
)
def test_a_resumed_stream_delivers_a_prefix_of_the_numbers(breaks: list[int], most: int, colour: str) -> None:
    """Wherever the source breaks and the consumer leaves, all sources are closed."""
    feed = Feed(*breaks, "end", most=9, attempts=3, backoff=[0] * 9)
    try:
        taken = feed.play(colour, most)
    except Boom as error:
        taken = feed.taken
        reported = report(error)
        assert reported is not None
        assert (reported.reason, reported.attempts) == ("attempts", 3)
    assert taken == list(range(1, len(taken) + 1))
    numbers = range(1, feed.opened + 1)
    for word in ("open", "close"):
        assert [entry for entry in feed.trail if entry.startswith(word)] == [f"{word}:{n}" for n in numbers]
