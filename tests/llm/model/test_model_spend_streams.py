"""A `Spend` in streams: recorded while they run, stopped without a retry, settled however they end."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, report
from redouble.errors import AttemptTimeout, DeadlineExceeded
from redouble.llm import Context, CutShort, ErrorEvent, Price, Spend, SpendExceeded, Timeouts, Usage
from tests.support.fakes import Panic
from tests.support.llm.chunk_sources import Feed, Takes, Words
from tests.support.llm.guarded_streams import PLACES, VIRTUAL, StreamOutcome, in_place, model, play
from tests.support.llm.spends import spent, tokens

LOST = ConnectionResetError
EVERY_PLACE = pytest.mark.parametrize("place", PLACES)
AT_ONCE = Retry(attempts=3, backoff=[0, 0])


def yes(error: Exception, attempt: int, context: Context) -> bool:
    return True


class Quiet(Words):
    """A protocol that reports a single token until the stream has ended."""

    def read(self, chunk: object, /) -> ErrorEvent | None:
        error = super().read(chunk)
        self.usage = Usage(1, 1)
        return error


# In the protocol `Words` a request uses 1 token and each chunk 1 more; 10 are reserved, the limit is 12.
ROWS: list[tuple[list[list[Any]], dict[str, Any], StreamOutcome, tuple[float, ...]]] = [
    # complete streams that use less and more than was reserved
    ([["a", "end"]], {}, StreamOutcome(["a", "end"]), (3, 0, 9, 0)),
    ([["a"] * 10 + ["end"]], {}, StreamOutcome(["a"] * 10 + ["end"]), (12, 0, 0, 0)),
    # a stream that uses more than is left is stopped without a retry, whatever a rule returns
    ([["a"] * 20], {}, StreamOutcome(["a"] * 11, SpendExceeded, "committed", 1), (12, 0, 0, 1)),
    (
        [["a"] * 20, ["a", "end"]],
        {"retry_if": yes, "idempotency": "auto"},
        StreamOutcome(["a"] * 11, SpendExceeded, "committed", 1),
        (12, 0, 0, 1),
    ),
    # a broken or closed stream: the usage reported so far, and at least one token for each chunk
    ([["a", "b", LOST]], {}, StreamOutcome(["a", "b"], LOST, "committed", 1), (3, 0, 9, 0)),
    ([["a", "b"]], {}, StreamOutcome(["a", "b"], CutShort, "committed", 1), (3, 0, 9, 0)),
    ([["a", "!no"]], {}, StreamOutcome(["a", "!no"], ErrorEvent, "committed", 1), (3, 0, 9, 0)),
    ([["a", "b", Panic]], {}, StreamOutcome(["a", "b"], Panic), (3, 0, 9, 0)),
    ([["a", "b", "end"]], {"most": 2}, StreamOutcome(["a", "b"]), (3, 0, 9, 0)),
    # no chunk arrived: no tokens, and one request for all attempts
    ([[LOST]], {}, StreamOutcome([], LOST, "attempts", 3), (0, 0, 12, 0)),
    ([["!no"]], {}, StreamOutcome([], ErrorEvent, "attempts", 3), (0, 0, 12, 0)),
    ([[]], {}, StreamOutcome([], CutShort, "attempts", 3), (0, 0, 12, 0)),
    ([[Panic]], {}, StreamOutcome([], Panic), (0, 0, 12, 0)),
    ([[LOST], [], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=3), (3, 0, 9, 0)),
    # a truncated stream that reports fewer tokens than chunks: one token for each chunk
    ([["a", "b"]], {"protocol": Quiet}, StreamOutcome(["a", "b"], CutShort, "committed", 1), (3, 0, 9, 0)),
    ([["a", "b", "end"]], {"protocol": Quiet}, StreamOutcome(["a", "b", "end"]), (2, 0, 10, 0)),
    # an empty stream, where that is valid: the whole reservation
    ([[]], {"protocol": None}, StreamOutcome([]), (10, 0, 2, 0)),
    # without a reported usage: the whole reservation, or the number of chunks if that is more
    ([["a", "b"]], {"protocol": None}, StreamOutcome(["a", "b"]), (10, 0, 2, 0)),
    ([["a", "b", LOST]], {"protocol": None}, StreamOutcome(["a", "b"], LOST, "committed"), (10, 0, 2, 0)),
    ([["a"] * 11], {"protocol": None}, StreamOutcome(["a"] * 11), (11, 0, 1, 0)),
    (
        [["a"] * 13],
        {"protocol": None},
        StreamOutcome(["a"] * 12, SpendExceeded, "committed", 1),
        (12, 0, 0, 0),
    ),
]


@EVERY_PLACE
@pytest.mark.parametrize(("script", "options", "expected", "left"), ROWS)
def test_the_usage_of_a_stream_is_settled(
    place: str,
    script: list[list[Any]],
    options: dict[str, Any],
    expected: StreamOutcome,
    left: tuple[float, ...],
) -> None:
    spend = Spend(tokens=12, requests=5, warn_at=None)
    feed = Feed(*script)
    assert play(place, feed, policy=AT_ONCE, spend=spend, reserve=10, **options) == expected
    assert tokens(spend) == left
    assert (spend.snapshot()["requests"], spend.snapshot()["requests_reserved"]) == (1, 0)
    assert [word for word in feed.trail if word.startswith("close")] == [
        f"close:{number + 1}" for number in range(feed.opened)
    ]


@EVERY_PLACE
def test_the_error_of_a_stopped_stream_has_message_and_labels(place: str) -> None:
    spend = Spend(tokens=3)
    error = play(place, Feed(["a"] * 9), spend=spend, reserve=1).error
    assert isinstance(error, SpendExceeded)
    assert (str(error), error.what) == (
        "the stream was stopped: it has used more tokens than are left",
        "tokens",
    )
    call_report = report(error)
    assert call_report is not None
    assert call_report.labels == {"provider": "acme", "model": "m-1"}


@EVERY_PLACE
def test_a_first_chunk_above_the_limit_stops_the_stream(place: str) -> None:
    """It is not retried, because the next attempt would use as much."""
    spend = Spend(tokens=1)
    read = play(place, Feed(["a", "end"]), spend=spend, reserve=1, retry_if=yes)
    assert read == StreamOutcome([], SpendExceeded, "stopped", 1)
    assert tokens(spend) == (1, 0, 0, 1)


@EVERY_PLACE
def test_a_stream_stops_when_its_cost_exceeds_the_limit(place: str) -> None:
    spend = Spend(cost=0.05)
    price = Price(input=1_000, output=10_000)  # for a million tokens: 0.001 and 0.01 each
    read = play(place, Feed(["a"] * 9), spend=spend, price=price, reserve=Usage(1, 1))
    assert read == StreamOutcome(["a"] * 4, SpendExceeded, "committed", 1)
    assert isinstance(read.error, SpendExceeded)
    assert read.error.what == "cost"


@EVERY_PLACE
def test_a_stream_does_not_use_what_other_calls_have_reserved(place: str) -> None:
    """A stream that needs more than its reservation takes it from what is left."""
    spend = Spend(tokens=20)
    with spend.reserve(tokens=10):
        read = play(place, Feed(["a"] * 30), spend=spend, reserve=5)
        assert read == StreamOutcome(["a"] * 9, SpendExceeded, "committed", 1)
    assert tokens(spend)[1] == 0


@pytest.mark.parametrize("place", [place for place in VIRTUAL if place != "alone"])
@pytest.mark.parametrize(
    ("script", "expected", "taken"),
    [
        (["a", Takes(9), "b", "end"], StreamOutcome(["a"], AttemptTimeout, "committed", 1), 2),
        (
            ["a", Takes(2), "b", Takes(2), "c", Takes(2), "d"],
            StreamOutcome(["a", "b", "c"], DeadlineExceeded, "timeout"),
            4,
        ),
        ([Takes(9), "a"], StreamOutcome([], DeadlineExceeded, "timeout"), 0),
    ],
    ids=["silence", "total", "never began"],
)
def test_a_timed_out_stream_is_settled(
    place: str, script: list[Any], expected: StreamOutcome, taken: int
) -> None:
    spend = Spend(tokens=100)
    limits = Timeouts(read=3, total=5, first=8)
    assert play(place, Feed(script), spend=spend, reserve=10, timeouts=limits) == expected
    assert tokens(spend) == (taken, 0, 100 - taken, 0)


@EVERY_PLACE
def test_a_rejected_stream_is_never_opened(place: str) -> None:
    spend = Spend(tokens=10)
    spent(spend, 5)
    feed = Feed(["a", "end"])
    read = play(place, feed, spend=spend, reserve=6)
    assert (read.chunks, read.reason, read.attempts, feed.opened) == ([], "stopped", 0, 0)
    assert feed.trail == ["left"]


@EVERY_PLACE
def test_the_usage_of_a_stream_is_known_at_its_end(place: str) -> None:
    feed = Feed(["a", "b", "end"])
    seen: list[Usage | None] = []

    def blocking() -> None:
        stream = model(place).stream(feed.open)
        next(stream)
        seen.append(stream.usage)
        list(stream)
        seen.append(stream.usage)

    async def waiting() -> None:
        stream = model(place).stream(feed.aopen)
        await anext(stream)
        seen.append(stream.usage)
        async for _ in stream:
            pass
        seen.append(stream.usage)

    in_place(place, blocking, waiting)
    assert seen == [None, Usage(1, 3)]
