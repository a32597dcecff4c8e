"""A logical call is counted once, with any number of attempts, in every colour and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import SYSTEM, Kind, Verdict, Worker, deadline
from redouble.instruments import memory
from redouble.instruments.memory import Summary
from redouble.testing import virtual_time
from tests.support.fakes import (
    ASYNC,
    SYNC,
    Boom,
    Ledger,
    Operation,
    Panic,
    Script,
    Virtual,
    always,
    fail,
    in_colour,
    ok,
    steps,
)
from tests.support.instruments.counts import (
    EVERY_ASYNC_SHAPE,
    EVERY_SHAPE,
    JUDGES_RESULTS,
    NAME,
    coloured,
    counts,
    every_shape,
    policy,
)
from tests.support.scripted import cancelled_in

FORBIDDEN = type("Forbidden", (Exception,), {"status_code": 403})
THROTTLED = Verdict.retry(kind=Kind.throttled, reason="rate_limit")


def is_done(value: object) -> bool:
    return value == "done"


def no_retries_left() -> dict[str, Any]:
    return {"budget": Ledger(retries=0)}


ROWS: list[tuple[Script, Callable[[], dict[str, Any]], dict[str, float]]] = [
    ([ok()], dict, {"calls true": 1, "attempts none ok": 1}),
    (
        ["fail", "fail", ok()],
        dict,
        {"calls true": 1, "attempts unknown failed": 2, "attempts none ok": 1, "retries unknown": 2},
    ),
    (
        ["fail"],
        lambda: {"attempts": 3},
        {
            "calls false": 1,
            "attempts unknown failed": 3,
            "retries unknown": 2,
            "errors ScriptedError": 1,
            "given_up attempts": 1,
        },
    ),
    (
        [FORBIDDEN()],
        lambda: {"on": Boom},
        {"calls false": 1, "attempts client failed": 1, "errors 403": 1, "given_up stopped": 1},
    ),
    (
        ["fail", ConnectionResetError("gone")],
        lambda: {"on": [always(THROTTLED)], "attempts": 2},
        {
            "calls false": 1,
            "attempts throttled failed": 2,
            "retries rate_limit": 1,
            "errors ConnectionResetError": 1,
            "given_up attempts": 1,
        },
    ),
    (
        ["fail"],
        no_retries_left,
        {"calls false": 1, "attempts unknown failed": 1, "errors ScriptedError": 1, "given_up budget": 1},
    ),
    (
        [fail(takes=3), ok()],
        lambda: {"give_up_after": 2},
        {"calls false": 1, "attempts unknown failed": 1, "errors ScriptedError": 1, "given_up timeout": 1},
    ),
    (
        [Boom("an error is as good"), ok()],
        lambda: {"on": [always(Verdict.accept())]},
        {"calls true": 1, "attempts none ok": 1},
    ),
    (
        [ok("pending"), ok("done")],
        lambda: {"until": is_done},
        {"calls true": 1, "attempts unknown failed": 1, "attempts none ok": 1, "retries unknown": 1},
    ),
    (
        [ok("pending")],
        lambda: {"until": is_done, "attempts": 2},
        {
            "calls false": 1,
            "attempts unknown failed": 2,
            "retries unknown": 1,
            "errors not_accepted": 1,
            "given_up attempts": 1,
        },
    ),
    ([Panic()], dict, {}),
    (["fail", Panic()], dict, {"attempts unknown failed": 1, "retries unknown": 1}),
]


@pytest.mark.parametrize(("script", "options", "expected"), ROWS)
def test_a_call_is_counted_once(
    colour: str, script: Script, options: Callable[[], dict[str, Any]], expected: dict[str, float]
) -> None:
    seen = every_shape(colour, script, options)
    assert len(seen) >= len(JUDGES_RESULTS)
    assert seen == dict.fromkeys(seen, expected)


@pytest.mark.parametrize(("script", "options", "expected"), ROWS[:6])
def test_a_call_under_a_deadline_is_counted_once(
    script: Script, options: Callable[[], dict[str, Any]], expected: dict[str, float]
) -> None:
    """Such calls cannot use the fast path."""
    with virtual_time(), deadline(100):
        seen = every_shape("sync", script, options)
    assert seen == dict.fromkeys(seen, expected)


@pytest.mark.parametrize(("script", "options", "expected"), ROWS[:6])
def test_a_call_with_a_time_limit_is_counted_once(
    colour: str, script: Script, options: Callable[[], dict[str, Any]], expected: dict[str, float]
) -> None:
    """In async code, and on a worker in blocking code."""

    def limited() -> dict[str, Any]:
        return options() | {"timeout": 99} | ({"worker": Worker()} if colour in SYNC else {})

    seen = every_shape(colour, script, limited)
    refused = ("enter", "stream", "generator", "loop") if colour in SYNC else ()
    assert {shape: found for shape, found in seen.items() if shape not in refused} == {
        shape: expected for shape in seen if shape not in refused
    }


def test_a_retry_that_never_started_is_counted(colour: str) -> None:
    """The retry event is emitted before the delay, after which no time is left."""

    class Late(Virtual):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 50)

    retrying = policy(give_up_after=9, clock=Late())
    clock = retrying.clock
    assert isinstance(clock, Virtual)
    operation = Operation(steps(["fail"]), clock)
    with memory.instrument() as metrics, pytest.raises(Boom):
        in_colour(colour, lambda: retrying.call(operation), lambda: retrying.call(coloured(operation)))
    assert counts(metrics) == {
        "calls false": 1,
        "attempts unknown failed": 1,
        "retries unknown": 1,
        "errors ScriptedError": 1,
        "given_up timeout": 1,
    }


def test_a_call_without_an_attempt_is_counted(colour: str) -> None:
    """It has no attempts, and its error is DeadlineExceeded."""
    retrying = policy(timeout=0)

    async def never() -> None: ...

    with memory.instrument() as metrics:
        in_colour(colour, lambda: retrying.run(int), lambda: retrying.run(never))
    assert counts(metrics) == {"calls false": 1, "errors DeadlineExceeded": 1, "given_up timeout": 1}
    assert metrics.histogram("call_duration", name=NAME) == Summary(1, 0, 0, 0)
    assert metrics.histogram("attempt_duration").many == 0


@pytest.mark.parametrize("colour", ASYNC)
def test_a_cancelled_call_is_not_counted(colour: str) -> None:
    """A cancelled attempt has no result and is not counted; the failed ones before it are."""
    script = iter([Boom()])

    async def work() -> None:
        for error in script:
            raise error
        await SYSTEM.asleep(1000)

    async def main() -> None:
        await cancelled_in(colour, lambda: policy(backoff=[0]).call(work))

    with memory.instrument() as metrics:
        in_colour(colour, lambda: None, main)
    assert counts(metrics) == {"attempts unknown failed": 1, "retries unknown": 1}
    assert metrics.histogram("call_duration").many == 0


def test_durations_of_calls_and_attempts(colour: str) -> None:
    """The duration of a call includes delays; that of an attempt does not."""
    seen: dict[str, list[Summary]] = {}
    script = [fail(takes=3), fail(takes=5), ok(takes=4)]

    def measured(metrics: memory.Metrics) -> list[Summary]:
        found = ("call_duration", "attempt_duration", "delay", "time_to_first_item")
        return [metrics.histogram(metric, name=NAME) for metric in found]

    def blocking() -> None:
        for shape, make in EVERY_SHAPE.items():
            clock = Virtual(100)
            with memory.instrument() as metrics:
                make(policy(clock=clock), Operation(script, clock))
            seen[shape] = measured(metrics)

    async def waiting() -> None:
        for shape, make in EVERY_ASYNC_SHAPE.items():
            clock = Virtual(100)
            with memory.instrument() as metrics:
                await make(policy(clock=clock), coloured(Operation(script, clock)))
            seen[shape] = measured(metrics)

    in_colour(colour, blocking, waiting)
    for shape, (calls, attempts, delays, first_item) in seen.items():
        assert (calls, attempts) == (Summary(1, 15, 15, 15), Summary(3, 12, 3, 5)), shape
        assert delays == Summary(2, 3, 1, 2)
        streams = shape in ("stream", "generator")
        assert first_item == (Summary(1, 15, 15, 15) if streams else Summary(0, 0, 0, 0))
