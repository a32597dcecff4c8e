"""The total limit covers attempts, delays and the whole stream."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import SYSTEM, Retry, deadline, report
from redouble.errors import DeadlineExceeded
from redouble.llm import Context, Timeouts
from tests.support.llm.chunk_sources import Feed, Takes
from tests.support.llm.guarded_streams import BLOCKING, VIRTUAL, StreamOutcome, in_place, model, play

LOST = ConnectionResetError
DRIP: list[Any] = ["a", Takes(3)] * 99
FLOOD: list[Any] = ["a"] * 999


def yes(error: Exception, attempt: int, context: Context) -> bool:
    return True


ROWS: list[tuple[list[list[Any]], dict[str, Any], StreamOutcome]] = [
    # single chunks do not extend the limit
    (
        [DRIP],
        {"timeouts": 10},
        StreamOutcome(["a"] * 4, DeadlineExceeded, "timeout", 1, "total", took=10),
    ),
    (
        [DRIP],
        {"timeouts": Timeouts(read=5, total=7)},
        StreamOutcome(["a"] * 3, DeadlineExceeded, "timeout", 1, "total", took=7),
    ),
    # attempts and delays count: 2 s, then 1 s of delay, then 7 s of the stream
    (
        [[Takes(2), LOST], DRIP],
        {"timeouts": 10},
        StreamOutcome(["a"] * 3, DeadlineExceeded, "timeout", 2, "total", took=10),
    ),
    # no retry if its delay would exceed the limit
    ([[Takes(2), LOST], ["end"]], {"timeouts": 3}, StreamOutcome([], LOST, "timeout", 1, took=2)),
    ([[Takes(2), LOST], ["end"]], {"timeouts": 3.1}, StreamOutcome(["end"], attempts=2, took=3)),
    # before the first chunk the error is that of the total, not that of an attempt
    (
        [[Takes(4), LOST], [Takes(9), "a"]],
        {"timeouts": 10},
        StreamOutcome([], DeadlineExceeded, "timeout", 2, "total", took=10),
    ),
    # a stream that ends shortly before the limit
    ([["a", Takes(9.999), "end"]], {"timeouts": 10}, StreamOutcome(["a", "end"], attempts=1, took=9.999)),
    # a rule does not change it
    (
        [DRIP, ["end"]],
        {"timeouts": 10, "retry_if": yes},
        StreamOutcome(["a"] * 4, DeadlineExceeded, "timeout", 1),
    ),
    # without ``timeouts`` the limit of the policy applies
    (
        [DRIP],
        {"policy": Retry(timeout=5)},
        StreamOutcome(["a"] * 2, DeadlineExceeded, "timeout", 1, "total", took=5),
    ),
    (
        [DRIP],
        {"policy": Retry(timeout=5), "timeouts": 4},
        StreamOutcome(["a"] * 2, DeadlineExceeded, "timeout", took=4),
    ),
    # the same error with ``wrap``
    (
        [DRIP],
        {"policy": Retry(timeout=5, wrap=True)},
        StreamOutcome(["a"] * 2, DeadlineExceeded, "timeout", 1, "total", took=5),
    ),
]


@pytest.mark.parametrize("place", [place for place in VIRTUAL if place != "alone"])
@pytest.mark.parametrize(("script", "options", "expected"), ROWS)
def test_the_total_limits_a_stream(
    place: str, script: list[list[Any]], options: dict[str, Any], expected: StreamOutcome
) -> None:
    feed = Feed(*script)
    read = play(place, feed, **options)
    if place in BLOCKING and feed.slept > (expected.took or 0) - feed.opened:
        read.took = None  # an abandoned worker still moves the virtual time
    assert read == expected
    closed = [word for word in feed.trail if word.startswith("close")]
    assert closed == [f"close:{number + 1}" for number in range(feed.opened)]


@pytest.mark.parametrize("place", VIRTUAL)
def test_the_time_of_the_reader_counts_for_the_total(place: str) -> None:
    """Although no chunk has to be waited for."""
    read = play(place, Feed(FLOOD), pause=3, timeouts=10)
    assert read == StreamOutcome(["a"] * 4, DeadlineExceeded, "timeout", 1, "total", took=12)
    assert str(read.error) == "gave up after 1 attempt in 12.0 s (no time left)"


@pytest.mark.parametrize("place", VIRTUAL)
def test_a_chunk_exactly_at_the_limit(place: str) -> None:
    """Whether it is delivered before the error is not determined."""
    feed = Feed(["a", Takes(10), "b", "c", "end"])
    read = play(place, feed, timeouts=Timeouts(read=20, total=10))
    assert read in (
        StreamOutcome(["a", "b"], DeadlineExceeded, "timeout", 1, "total"),
        StreamOutcome(["a"], DeadlineExceeded, "timeout", 1, "total"),
    )
    assert feed.trail.count("close:1") == 1


def test_without_a_worker_a_late_chunk_is_delivered() -> None:
    """A blocking read cannot be cancelled; the stream ends after this chunk."""
    feed = Feed(["a", Takes(11), "b", "c", "end"])
    assert play("alone", feed, timeouts=10) == StreamOutcome(
        ["a", "b"], DeadlineExceeded, "timeout", 1, "total"
    )


@pytest.mark.parametrize("place", VIRTUAL)
def test_the_report_of_a_timed_out_stream_has_the_labels(place: str) -> None:
    for script in ([["a"] * 99], [[Takes(11), LOST]]):
        error = play(place, Feed(*script), pause=6, timeouts=10).error
        call_report = report(error) if error is not None else None
        assert call_report is not None
        assert (call_report.reason, call_report.attempts) == ("timeout", 1)
        assert call_report.labels == {"provider": "acme", "model": "m-1"}


# ------------------------------------------------------------------------------ deadlines


@pytest.mark.parametrize("place", VIRTUAL)
@pytest.mark.parametrize(
    ("seconds", "limit", "chunks"), [(7, "deadline", 3), (11, "total", 4), (0.5, "deadline", 1)]
)
def test_the_earlier_of_total_and_outer_deadline_applies(
    place: str, seconds: float, limit: str, chunks: int
) -> None:
    feed = Feed(FLOOD)
    taken: list[Any] = []

    def blocking() -> None:
        with deadline(seconds):
            for chunk in model(place, timeouts=10).stream(feed.open):
                taken.append(chunk)
                SYSTEM.sleep(3)

    async def waiting() -> None:
        with deadline(seconds):
            async for chunk in model(place, timeouts=10).stream(feed.aopen):
                taken.append(chunk)
                await SYSTEM.asleep(3)

    with pytest.raises(TimeoutError) as caught:
        in_place(place, blocking, waiting)
    call_report = report(caught.value)
    assert call_report is not None
    assert (call_report.reason, call_report.limit, len(taken)) == ("timeout", limit, chunks)


@pytest.mark.parametrize("place", VIRTUAL)
def test_nothing_is_opened_once_a_deadline_has_passed(place: str) -> None:
    feed = Feed(["a", "end"])

    def blocking() -> None:
        with deadline(1):
            SYSTEM.sleep(2)
            list(model(place).stream(feed.open))

    async def waiting() -> None:
        with deadline(1):
            await SYSTEM.asleep(2)
            await anext(model(place).stream(feed.aopen))

    with pytest.raises(DeadlineExceeded):
        in_place(place, blocking, waiting)
    assert feed.opened == 0


@pytest.mark.parametrize("place", VIRTUAL)
def test_within_changes_the_total_of_one_stream(place: str) -> None:
    asked = model(place, timeouts=100)
    feed = Feed(FLOOD)
    taken: list[Any] = []

    def blocking() -> None:
        for chunk in asked.within(4).stream(feed.open):
            taken.append(chunk)
            SYSTEM.sleep(3)

    async def waiting() -> None:
        async for chunk in asked.within(4).stream(feed.aopen):
            taken.append(chunk)
            await SYSTEM.asleep(3)

    with pytest.raises(TimeoutError):
        in_place(place, blocking, waiting)
    assert taken == ["a", "a"]
