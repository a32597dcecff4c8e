"""Guarded streams: opened again before the first chunk, and never after it.

Every row runs in every place. Its trail records in order: sources opened and closed, chunks delivered, events
of observers, and ``left`` when the reader has ended.
"""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry, Verdict, errors, report
from redouble.llm import Context, CutShort, ErrorEvent
from tests.support.fakes import Panic, always
from tests.support.llm.chunk_sources import ChunkObject, Feed
from tests.support.llm.guarded_streams import PLACES, StreamOutcome, play

LOST = ConnectionResetError
B1, B2 = "before_attempt:1 open:1", "before_attempt:2 open:2"
RETRIED = f"{B1} close:1 failure:1 retry:1 {B2}"
ENDED = "chunk chunk close:2 success:2 left"
GIVEN_UP = "close:1 failure:1 give_up:1 left"


def yes(error: Exception, attempt: int, context: Context) -> bool:
    return True


def no(error: Exception, attempt: int, context: Context) -> bool:
    return False


def broken(error: Exception, attempt: int, context: Context) -> bool:
    return 1 / 0 > 0


# Failures after the first chunk, with options that allow another attempt.
ALLOWING: list[dict[str, Any]] = [
    {"retry_if": yes},
    {"idempotency": "auto"},
    {"retry_if": yes, "idempotency": "auto"},
    {"policy": Retry(on=Exception, attempts=3, backoff=[0, 0])},
]
WRONG: list[tuple[list[Any], type[Exception]]] = [
    (["a", LOST], ConnectionResetError),
    (["a"], CutShort),
    (["a", ChunkObject("!no")], ErrorEvent),
]
LATE: list[tuple[list[list[Any]], dict[str, Any], StreamOutcome]] = [
    ([[*steps], ["a", "end"]], options, StreamOutcome(["a"], raised, "committed", 1))
    for steps, raised in WRONG
    for options in ALLOWING
]
ROWS: list[tuple[list[list[Any]], dict[str, Any], StreamOutcome]] = [
    # complete streams
    ([["a", "end"]], {}, StreamOutcome(["a", "end"], events=f"{B1} chunk chunk close:1 success:1 left")),
    ([["end"]], {}, StreamOutcome(["end"], attempts=1)),
    (
        [[b"a", ChunkObject("b"), None, b"end"]],
        {},
        StreamOutcome([b"a", ChunkObject("b"), None, b"end"], attempts=1),
    ),
    # a failure before the first chunk is retried
    ([[LOST], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=2, events=f"{RETRIED} {ENDED}")),
    ([[], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=2, events=f"{RETRIED} {ENDED}")),
    ([["!no"], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=2, events=f"{RETRIED} {ENDED}")),
    ([[b"!no"], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=2)),
    ([[ChunkObject("!no")], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=2)),
    ([[], ["!no"], ["a", "end"]], {}, StreamOutcome(["a", "end"], attempts=3)),
    # up to the number of attempts
    ([[LOST]], {}, StreamOutcome([], ConnectionResetError, "attempts", 3)),
    ([[]], {}, StreamOutcome([], CutShort, "attempts", 3)),
    ([["!no"]], {}, StreamOutcome([], ErrorEvent, "attempts", 3)),
    ([[LOST], [], ["!no"]], {}, StreamOutcome([], ErrorEvent, "attempts", 3)),
    (
        [[LOST]],
        {"policy": Retry(wrap=True, backoff=[0])},
        StreamOutcome([], errors.AttemptsExhausted, "backoff_ended", 2),
    ),
    # other errors are retried only if a rule allows it
    ([[KeyError]], {}, StreamOutcome([], KeyError, "stopped", 1, events=f"{B1} {GIVEN_UP}")),
    ([[KeyError], ["end"]], {"retry_if": yes}, StreamOutcome(["end"], attempts=2)),
    ([[LOST]], {"retry_if": no}, StreamOutcome([], ConnectionResetError, "stopped", 1)),
    ([[LOST]], {"retry_if": broken}, StreamOutcome([], ZeroDivisionError, "stopped", 1)),
    # a failure after the first chunk ends the stream, whatever the error is and a rule returns
    (
        [["a", LOST]],
        {},
        StreamOutcome(["a"], ConnectionResetError, "committed", 1, events=f"{B1} chunk {GIVEN_UP}"),
    ),
    ([["a"]], {}, StreamOutcome(["a"], CutShort, "committed", 1, events=f"{B1} chunk {GIVEN_UP}")),
    (
        [["a", ChunkObject("!no"), "end"]],
        {},
        StreamOutcome(["a"], ErrorEvent, "committed", 1, events=f"{B1} chunk {GIVEN_UP}"),
    ),
    (
        [["a", "!no", "end"]],
        {},
        StreamOutcome(["a", "!no"], ErrorEvent, "committed", 1, events=f"{B1} chunk chunk {GIVEN_UP}"),
    ),
    ([[b"a", b"!no", b"end"]], {}, StreamOutcome([b"a", b"!no"], ErrorEvent, "committed", 1)),
    ([["a", KeyError]], {}, StreamOutcome(["a"], KeyError, "committed", 1)),
    ([[LOST], ["a", LOST], ["a", "end"]], {}, StreamOutcome(["a"], ConnectionResetError, "committed", 2)),
    *LATE,
    ([["a", LOST]], {"policy": Retry(wrap=True)}, StreamOutcome(["a"], errors.Stopped, "committed", 1)),
    (
        [["a", LOST]],
        {"policy": Retry(on=always(Verdict.accept()))},
        StreamOutcome(["a"], ConnectionResetError, None, 1, events=f"{B1} chunk close:1 success:1 left"),
    ),
    # without a protocol no end marker is needed
    ([[]], {"protocol": None}, StreamOutcome([], attempts=1, events=f"{B1} close:1 success:1 left")),
    (
        [["a"]],
        {"protocol": None},
        StreamOutcome(["a"], attempts=1, events=f"{B1} chunk close:1 success:1 left"),
    ),
    ([[ChunkObject("!a"), "!b"]], {"protocol": None}, StreamOutcome([ChunkObject("!a"), "!b"], attempts=1)),
    # nor with an undetected protocol; an empty stream is a failure
    ([["a", "b"]], {"protocol": "auto"}, StreamOutcome(["a", "b"], attempts=1)),
    ([[], ["a"]], {"protocol": "auto"}, StreamOutcome(["a"], attempts=2)),
    # a BaseException is not handled, early or late
    ([[Panic]], {}, StreamOutcome([], Panic, None, 1, events=f"{B1} close:1 left")),
    ([["a", Panic]], {}, StreamOutcome(["a"], Panic, None, 1, events=f"{B1} chunk close:1 left")),
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("script", "options", "expected"), ROWS)
def test_a_stream_is_retried_before_its_first_chunk_alone(
    place: str, script: list[list[Any]], options: dict[str, Any], expected: StreamOutcome
) -> None:
    assert play(place, Feed(*script), **options) == expected


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("script", [[LOST], ["a", LOST]], ids=["before", "after"])
def test_the_report_has_the_labels_and_the_name(place: str, script: list[Any]) -> None:
    call_report = report(play(place, Feed(script), policy=Retry(backoff=[0] * 9, labels={"team": "x"})).error)
    assert call_report is not None
    assert call_report.labels == {"provider": "acme", "model": "m-1", "team": "x"}
    assert call_report.name.startswith("Feed.")


@pytest.mark.parametrize("place", PLACES)
def test_the_error_of_a_truncated_stream_says_what_is_missing(place: str) -> None:
    read = play(place, Feed(["a"]))
    assert str(read.error) == "no end was said"
    assert read.error is not None
    (note,) = read.error.__notes__
    assert note == "redouble: gave up after 1 attempt in 0.0 s (items had been handed out)"
    assert str(play(place, Feed([])).error) == "the stream ended before its first chunk"
