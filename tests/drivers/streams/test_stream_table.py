"""Streams as a table of scripts: each row runs in every colour and in every shape.

The trail of a row has, in order: sources opened and closed, items delivered, events emitted, calls of the
budget, and the word ``left`` when the consumer has left.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from redouble import Verdict, errors
from tests.support.drivers.stream_calls import COMMITTED, StreamResult, play
from tests.support.fakes import Boom, Ledger, Panic, always
from tests.support.streams import Catches, FailsToClose, Reader, Returns, Takes

B1, B2 = "before_attempt:1 open:1", "before_attempt:2 open:2"
RETRIED = f"{B1} close:1 failure:1 retry:1 {B2}"
LATE = "failure:1 give_up:1 left"


def _broken(_: object) -> bool:
    return 1 / 0 > 0


ROWS: list[tuple[list[Any], Reader, dict[str, Any], StreamResult]] = [
    # to the end
    ([[1, 2]], Reader(), {}, StreamResult([1, 2], events=f"{B1} item:1 item:2 close:1 success:1 left")),
    ([[1, 2, Returns("x")]], Reader(), {}, StreamResult([1, 2], attempts=1, sleeps=[])),
    # an empty stream is a success
    ([[]], Reader(), {}, StreamResult([], attempts=1, events=f"{B1} close:1 success:1 left")),
    ([["fail"], []], Reader(), {}, StreamResult([], attempts=2, events=f"{RETRIED} close:2 success:2 left")),
    # items that could be taken for something else
    ([[None, False, StopIteration]], Reader(), {}, StreamResult([None, False, StopIteration])),
    # failing before the first item
    (
        [["fail"], [1, 2]],
        Reader(),
        {"backoff": [3]},
        StreamResult(
            [1, 2],
            attempts=2,
            sleeps=[3],
            events=f"{RETRIED} item:1 item:2 close:2 success:2 left",
            note=None,
        ),
    ),
    (
        [["fail"]],
        Reader(),
        {"attempts": 2},
        StreamResult([], Boom, "attempts", 2, events=f"{RETRIED} close:2 failure:2 give_up:2 left"),
    ),
    ([["fail"]], Reader(), {"on": KeyError}, StreamResult([], Boom, "stopped", 1, note=None)),
    ([["fail"], [KeyError()]], Reader(), {"on": Boom}, StreamResult([], KeyError, "stopped", 2)),
    ([["fail"]], Reader(), {"backoff": [3]}, StreamResult([], Boom, "backoff_ended", 2, [3])),
    ([["fail"]], Reader(), {"backoff": [40]}, StreamResult([], Boom, "timeout", 1, [], "give_up_after")),
    ([["fail"]], Reader(), {"wrap": True}, StreamResult([], errors.AttemptsExhausted, "attempts", 4)),
    ([["fail"], [1]], Reader(), {"on": always(7)}, StreamResult([1], attempts=2, sleeps=[7])),
    ([["fail"]], Reader(), {"on": _broken}, StreamResult([], ZeroDivisionError, "stopped", 1)),
    ([[1]], Reader(), {"give_up_after": 0}, StreamResult([], errors.DeadlineExceeded, "timeout", 0)),
    ([["fail"]], Reader(), {"on": always(Verdict.accept())}, StreamResult([], Boom, None, 1, note=None)),
    # failing after the first item
    (
        [[1, "fail"], [1, 2]],
        Reader(),
        {},
        StreamResult([1], Boom, "committed", 1, [], note=COMMITTED, events=f"{B1} item:1 close:1 {LATE}"),
    ),
    (
        [[1, 2, "fail"]],
        Reader(),
        {},
        StreamResult(
            [1, 2], Boom, "committed", 1, note=COMMITTED, events=f"{B1} item:1 item:2 close:1 {LATE}"
        ),
    ),
    (
        [["fail"], [1, "fail"]],
        Reader(),
        {},
        StreamResult(
            [1],
            Boom,
            "committed",
            2,
            events=f"{RETRIED} item:1 close:2 failure:2 give_up:2 left",
            note=COMMITTED.replace("1 attempt", "2 attempts"),
        ),
    ),
    ([[1, KeyError()]], Reader(), {"on": Boom}, StreamResult([1], KeyError, "committed", 1, note=COMMITTED)),
    ([[1, "fail"]], Reader(), {"attempts": 1}, StreamResult([1], Boom, "committed", 1, note=COMMITTED)),
    ([[1, "fail"]], Reader(), {"wrap": True}, StreamResult([1], errors.Stopped, "committed", 1)),
    ([[1, "fail"]], Reader(), {"on": _broken}, StreamResult([1], ZeroDivisionError, "stopped", 1)),
    (
        [[1, "fail"]],
        Reader(),
        {"on": always(Verdict.accept())},
        StreamResult([1], Boom, None, 1, note=None, events=f"{B1} item:1 close:1 success:1 left"),
    ),
    (
        [[1, "fail"]],
        Reader(),
        {"on": always(Verdict.accept()), "wrap": True},
        StreamResult([1], Boom, None, 1, note=None, events=f"{B1} item:1 close:1 success:1 left"),
    ),
    # limits end at the first item
    ([[1, Takes(99), 2]], Reader(), {"timeout": 5, "work_timeout": 5}, StreamResult([1, 2], attempts=1)),
    ([[Takes(99), 1, 2]], Reader(), {"timeout": 5}, StreamResult([1, 2], attempts=1)),
    ([[1, Takes(99), "fail"]], Reader(), {"timeout": 5}, StreamResult([1], Boom, "committed", 1, limit=None)),
    ([[Takes(9), "fail"]], Reader(), {"timeout": 5}, StreamResult([], Boom, "timeout", 1, limit="total")),
    # consumers that leave early
    *(
        (
            [[1, 2, 3]],
            Reader(way),
            {},
            StreamResult([1], attempts=1, events=f"{B1} item:1 close:1 success:1 left"),
        )
        for way in ("break", "close", "drop")
    ),
    *(
        (
            [["fail"], [1, 2, 3]],
            Reader(way, 2),
            {},
            StreamResult([1, 2], attempts=2, events=f"{RETRIED} item:1 item:2 close:2 success:2 left"),
        )
        for way in ("break", "close", "drop")
    ),
    ([[1]], Reader("close", 0), {}, StreamResult([], attempts=0, events="left")),
    ([[1]], Reader("drop", 0), {}, StreamResult([], attempts=0, events="left")),
    (
        [[1, 2]],
        Reader("raise", value=LookupError()),
        {},
        StreamResult([1], LookupError, None, 1, note=None, events=f"{B1} item:1 close:1 success:1 left"),
    ),
    # values and errors of send() and throw() reach the source
    ([[1, 2, 3]], Reader("send", 1, "hello"), {}, StreamResult([1, 2, 3], got=["hello", None, None])),
    ([[1, 2, 3]], Reader("send", 2, "hello"), {}, StreamResult([1, 2, 3], got=[None, "hello", None])),
    ([[1]], Reader("send", 1, "bye"), {}, StreamResult([1], got=["bye"])),
    (
        [[1, 2]],
        Reader("throw", 1, Boom()),
        {},
        StreamResult([1], Boom, None, 1, events=f"{B1} item:1 close:1 success:1 left"),
    ),
    ([[1, 2, 3]], Reader("throw", 2, Boom()), {}, StreamResult([1, 2], Boom, "committed", 1, got=[None])),
    ([[Catches(1), 2]], Reader("throw", 1, Boom()), {}, StreamResult([1, 2], got=["caught", None])),
    (
        [[1, Catches(2), 3]],
        Reader("throw", 2, Boom()),
        {},
        StreamResult([1, 2, 3], got=[None, "caught", None]),
    ),
    ([[Catches(1)]], Reader("throw", 1, Boom()), {}, StreamResult([1], got=["caught"])),
    (
        [[Catches(1), "fail"]],
        Reader("throw", 1, Boom()),
        {},
        StreamResult([1], Boom, "committed", 1, events=f"{B1} item:1 close:1 {LATE}"),
    ),
    # a BaseException is not recorded, early or late
    ([[Panic()]], Reader(), {}, StreamResult([], Panic, None, 1, events=f"{B1} close:1 left", note=None)),
    (
        [[1, Panic()]],
        Reader(),
        {},
        StreamResult([1], Panic, None, 1, events=f"{B1} item:1 close:1 left", note=None),
    ),
    ([[1, 2, Panic()]], Reader(), {}, StreamResult([1, 2], Panic, None, 1, note=None)),
    (
        [[1, 2]],
        Reader("throw", 1, Panic()),
        {},
        StreamResult([1], Panic, None, 1, events=f"{B1} item:1 close:1 left"),
    ),
    # an error of closing a source is an error after the first item
    *(
        (
            [[1, FailsToClose(), 2]],
            Reader(way, 2),
            {},
            StreamResult([1, 2], Boom, "committed", 1, events=f"{B1} item:1 item:2 close:1 {LATE}"),
        )
        for way in ("close", "exhaust")
    ),
    (
        [[FailsToClose(), 1, 2]],
        Reader("close", 1),
        {},
        StreamResult([1], Boom, "committed", 1, events=f"{B1} item:1 close:1 {LATE}"),
    ),
    # the budget is credited once, at the first item, before that is delivered
    (
        [[1, 2]],
        Reader(),
        {"budget": Ledger},
        StreamResult([1, 2], events=f"start {B1} credit item:1 item:2 close:1 success:1 left"),
    ),
    (
        [[1, 2]],
        Reader("break"),
        {"budget": Ledger},
        StreamResult([1], events=f"start {B1} credit item:1 close:1 success:1 left"),
    ),
    (
        [[]],
        Reader(),
        {"budget": Ledger},
        StreamResult([], events=f"start {B1} close:1 credit success:1 left"),
    ),
    (
        [[1, "fail"]],
        Reader(),
        {"budget": Ledger},
        StreamResult([1], Boom, "committed", events=f"start {B1} credit item:1 close:1 failed {LATE}"),
    ),
    (
        [["fail"], [1, "fail"]],
        Reader(),
        {"budget": Ledger},
        StreamResult(
            [1],
            Boom,
            "committed",
            events=f"start {B1} close:1 failed failure:1 spend retry:1 {B2} credit-1 item:1 close:2 failed"
            " failure:2 give_up:2 left",
        ),
    ),
    (
        [["fail"]],
        Reader(),
        {"budget": functools.partial(Ledger, 0)},
        StreamResult([], Boom, "budget", events=f"start {B1} close:1 failed failure:1 spend give_up:1 left"),
    ),
    (
        [[1, "fail"]],
        Reader(),
        {"budget": Ledger, "on": always(Verdict.accept())},
        StreamResult([1], Boom, events=f"start {B1} credit item:1 close:1 success:1 left"),
    ),
]


@pytest.mark.parametrize(("script", "reader", "options", "expected"), ROWS)
def test_stream(
    colour: str, script: list[Any], reader: Reader, options: dict[str, Any], expected: StreamResult
) -> None:
    """Check the items, the outcome and the trail of one row."""
    assert expected == play(colour, script, reader, **options)
