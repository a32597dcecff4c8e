"""The read timeout: before the first chunk it fails the attempt, after that it ends the stream."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, report
from redouble.errors import AttemptTimeout
from redouble.llm import Context, Timeouts
from tests.support.llm.chunk_sources import SILENT, Feed, Takes
from tests.support.llm.guarded_streams import BLOCKING, VIRTUAL, StreamOutcome, model, play

AT_ONCE = Retry(attempts=3, backoff=[0, 0])
LIMITED = tuple(
    place for place in VIRTUAL if place != "alone"
)  # the places that can enforce limits: with a worker, or async


def yes(error: Exception, attempt: int, context: Context) -> bool:
    return True


ROWS: list[tuple[list[list[Any]], Timeouts, StreamOutcome]] = [
    # silence after the first chunk ends the stream
    ([["a", Takes(4), "b", Takes(4), "end"]], Timeouts(read=5), StreamOutcome(["a", "b", "end"], took=8)),
    (
        [["a", Takes(6), "b", "end"]],
        Timeouts(read=5),
        StreamOutcome(["a"], AttemptTimeout, "committed", 1, "attempt", took=5),
    ),
    (
        [["a", Takes(4), "b", Takes(9), "end"]],
        Timeouts(read=5),
        StreamOutcome(["a", "b"], AttemptTimeout, "committed", 1, "attempt", took=9),
    ),
    # silence before the first chunk is retried
    (
        [[Takes(6), "a", "end"], ["b", "end"]],
        Timeouts(read=5),
        StreamOutcome(["b", "end"], attempts=2, took=5),
    ),
    (
        [[Takes(6), "a", "end"]],
        Timeouts(read=5),
        StreamOutcome([], AttemptTimeout, "attempts", 3, "attempt", took=15),
    ),
    # the limit of the first chunk may be longer than the others, or shorter
    ([[Takes(8), "a", Takes(4), "end"]], Timeouts(read=5, first=9), StreamOutcome(["a", "end"], took=12)),
    (
        [[Takes(8), "a", Takes(6), "end"]],
        Timeouts(read=5, first=9),
        StreamOutcome(["a"], AttemptTimeout, "committed", 1, "attempt", took=13),
    ),
    (
        [[Takes(3), "a"], ["b", "end"]],
        Timeouts(read=5, first=2),
        StreamOutcome(["b", "end"], attempts=2, took=2),
    ),
    ([[Takes(1), "a", Takes(4), "end"]], Timeouts(read=5, first=2), StreamOutcome(["a", "end"], took=5)),
    # without a read limit, the total is the only one
    ([[Takes(20), "a", Takes(9), "end"]], Timeouts(read=None), StreamOutcome(["a", "end"], took=29)),
    ([[Takes(20), "a", Takes(2e6), "end"]], Timeouts.none(), StreamOutcome(["a", "end"], took=2_000_020)),
    ([[Takes(9), "a"], ["end"]], Timeouts(read=None, first=3), StreamOutcome(["end"], attempts=2, took=3)),
]


@pytest.mark.parametrize("place", LIMITED)
@pytest.mark.parametrize(("script", "timeouts", "expected"), ROWS)
def test_a_silent_stream_times_out(
    place: str, script: list[list[Any]], timeouts: Timeouts, expected: StreamOutcome
) -> None:
    feed = Feed(*script)
    read = play(place, feed, timeouts=timeouts, policy=AT_ONCE)
    if place in BLOCKING and feed.slept > (expected.took or 0):
        read.took = None  # an abandoned worker still moves the virtual time
    assert read == expected
    assert [word for word in feed.trail if word.startswith("close")] == [
        f"close:{number + 1}" for number in range(feed.opened)
    ]


@pytest.mark.parametrize("place", LIMITED)
def test_the_time_of_the_reader_does_not_count_as_silence(place: str) -> None:
    feed = Feed(["a", Takes(4), "b", "end"])
    assert play(place, feed, pause=7, timeouts=Timeouts(read=5, total=60)) == StreamOutcome(
        ["a", "b", "end"], took=25
    )


@pytest.mark.parametrize("place", LIMITED)
def test_the_error_of_a_silent_stream(place: str) -> None:
    read = play(place, Feed(["a", Takes(6), "end"]), timeouts=Timeouts(read=5))
    assert str(read.error) == "the stream was given up: no chunk came for 5 s"
    assert isinstance(read.error, TimeoutError)
    call_report = report(read.error)
    assert call_report is not None
    assert call_report.labels == {"provider": "acme", "model": "m-1"}


@pytest.mark.parametrize("place", LIMITED)
def test_after_the_first_chunk_no_rule_can_retry(place: str) -> None:
    feed = Feed(["a", Takes(6), "b", "end"], ["a", "b", "end"])
    expected = StreamOutcome(["a"], AttemptTimeout, "committed", 1, "attempt")
    policy = Retry(attempts=3, backoff=[0, 0], on=lambda error: True)
    assert play(place, feed, timeouts=Timeouts(read=5), policy=policy, retry_if=yes) == expected


@pytest.mark.parametrize("place", LIMITED)
def test_a_timeout_after_the_end_marker_is_ignored(place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "redouble")
    assert play(place, Feed(["a", "end", Takes(6), "b"]), timeouts=Timeouts(read=5)) == StreamOutcome(
        ["a", "end"]
    )
    assert [record.getMessage() for record in caplog.records] == ["a stream failed after its end marker"]


@pytest.mark.parametrize("place", LIMITED)
def test_a_programming_error_after_the_end_marker_is_raised(place: str) -> None:
    read = play(place, Feed(["a", "end", KeyError]), timeouts=Timeouts(read=5))
    assert (read.chunks, read.raises) == (["a", "end"], KeyError)


def test_without_a_worker_the_read_timeout_is_left_to_the_client() -> None:
    """A blocking read cannot be cancelled, and its chunk is delivered."""
    feed = Feed([Takes(6), "a", Takes(6), "b", "end"])
    assert play("alone", feed, timeouts=Timeouts(read=5)) == StreamOutcome(["a", "b", "end"], took=12)


@pytest.mark.parametrize("first", [False, True], ids=["middle", "first"])
def test_an_abandoned_worker_closes_its_source(first: bool) -> None:
    """After its read has ended: a source is never closed while it is being read."""
    feed = Feed([SILENT, "late"] if first else ["a", SILENT, "late"], shape="close")
    with pytest.raises(TimeoutError):
        list(model(policy=Retry(attempts=1), timeouts=Timeouts(read=0.05)).stream(feed.open))
    assert feed.trail in (["open:1"], [])  # on a busy machine the worker may not have opened it yet
    feed.released.set()
    assert feed.closed.wait(30)
    assert feed.trail == ["open:1", "close:1"]


def test_the_next_attempt_does_not_wait_for_an_abandoned_one() -> None:
    """The thread is abandoned, and its result is ignored."""
    feed = Feed([SILENT, "late", "end"], ["b", "end"], shape="close")
    policy = Retry(attempts=9, backoff=[0] * 8)  # a busy machine may need more than two
    chunks = list(model(policy=policy, timeouts=Timeouts(first=0.1)).stream(feed.open))
    feed.released.set()
    assert feed.closed.wait(30)
    assert chunks == ["b", "end"]
