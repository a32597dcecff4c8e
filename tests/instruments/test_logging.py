"""Logging by the standard library: levels, messages and fields."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest

import redouble
from redouble import Bulkhead, Kind, Timeout, Verdict, errors
from redouble._telemetry.emit import emit_layer
from redouble.instruments.logging import instrument
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Operation, Script, Virtual, always, fail, in_colour, ok
from tests.support.instruments.counts import policy, with_new_errors
from tests.support.instruments.log_capture import logger
from tests.support.instruments.sample_events import emit_layer_events
from tests.support.layers.breaker_scripts import BreakerScript

FORBIDDEN = type("Forbidden", (Exception,), {"status_code": 403})

OPEN = "pay is open after ScriptedError, for another 10 s"


def is_done(value: object) -> bool:
    return value == "done"


ROWS: list[tuple[Script, dict[str, Any], list[str]]] = [
    ([ok(takes=2)], {}, ["DEBUG work: attempt 1 succeeded in 2 s"]),
    (
        [fail("lost", takes=0.25), ok()],
        {},
        [
            "DEBUG work: attempt 1 failed in 0.25 s: ScriptedError: lost",
            "INFO work: attempt 1 failed (unknown), next in 1 s",
            "DEBUG work: attempt 2 succeeded in 0 s",
        ],
    ),
    (
        [fail("lost", takes=1)],
        {"attempts": 2, "on": always(Verdict.retry(reason="http_5xx"))},
        [
            "DEBUG work: attempt 1 failed in 1 s: ScriptedError: lost",
            "INFO work: attempt 1 failed (http_5xx), next in 1 s",
            "DEBUG work: attempt 2 failed in 1 s: ScriptedError: lost",
            "WARNING work: gave up after 2 attempts in 3 s (attempts exhausted): ScriptedError: lost",
        ],
    ),
    (
        ["fail"],
        {"on": KeyError},
        [
            "DEBUG work: attempt 1 failed in 0 s: ScriptedError: e",
            "DEBUG work: gave up after 1 attempt in 0 s (not worth retrying): ScriptedError: e",
        ],
    ),
    (
        [KeyError("k"), fail("lost")],
        {"on": KeyError},
        [
            "DEBUG work: attempt 1 failed in 0 s: KeyError: 'k'",
            "INFO work: attempt 1 failed (unknown), next in 1 s",
            "DEBUG work: attempt 2 failed in 0 s: ScriptedError: lost",
            "WARNING work: gave up after 2 attempts in 1 s (not worth retrying): ScriptedError: lost",
        ],
    ),
    (
        ["fail"],
        {"attempts": 1},
        [
            "DEBUG work: attempt 1 failed in 0 s: ScriptedError: e",
            "WARNING work: gave up after 1 attempt in 0 s (attempts exhausted): ScriptedError: e",
        ],
    ),
    (
        [ok("pending")],
        {"attempts": 1, "until": is_done},
        [
            "DEBUG work: attempt 1 failed in 0 s",
            "WARNING work: gave up after 1 attempt in 0 s (attempts exhausted): the result was not accepted",
        ],
    ),
    ([ok()], {"timeout": 0}, ["WARNING work: gave up after 0 attempts in 0 s (no time left)"]),
]


@pytest.mark.parametrize(("script", "options", "lines"), ROWS)
@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR])
def test_messages_of_each_level(
    script: Script, options: dict[str, Any], lines: list[str], level: int
) -> None:
    clock = Virtual()
    with logger(level) as (target, kept), instrument(target), suppress(Exception):
        policy(**options, clock=clock).call(Operation(with_new_errors(script), clock))
    expected = [line for line in lines if logging.getLevelNamesMapping()[line.split()[0]] >= level]
    assert kept.messages() == expected


def test_every_colour_logs_the_same(colour: str) -> None:
    clock = Virtual()
    operation = Operation([fail("lost"), ok()], clock)

    async def later() -> object:
        return operation()

    retrying = policy(clock=clock)
    with logger() as (target, kept), instrument(target):
        in_colour(colour, lambda: retrying.call(operation), lambda: retrying.call(later))
    assert [line.split()[0] for line in kept.messages()] == ["DEBUG", "INFO", "DEBUG"]


def test_the_fields_of_each_record() -> None:
    clock = Virtual()
    script = [fail(FORBIDDEN(), takes=1.5), ok(takes=0.25)]
    rule = always(Verdict.retry(kind=Kind.client, reason="http_403", after=3))
    retrying = policy(on=rule, labels={"team": "x"}, clock=clock, hints=redouble.Hints(spread=0))
    with logger() as (target, kept), instrument(target), redouble.bind(run_id="r-17", shard=3, dry=True):
        retrying.call(Operation(script, clock))
    every = {"policy": "work", "labels": {"team": "x"}, "run_id": "r-17", "shard": 3, "dry": True}
    bad = {"reason": "http_403", "kind": "client", "http_status": 403, "error": "Forbidden"}
    assert kept.fields() == [
        every | bad | {"attempt": 1, "delay": None, "decision": None, "elapsed": 1.5},
        every | bad | {"attempt": 1, "delay": 3, "decision": "retry", "elapsed": 1.5},
        every
        | {"attempt": 2, "delay": None, "reason": None, "kind": None, "http_status": None}
        | {"decision": "accept", "error": None, "elapsed": 4.75},
    ]


def test_the_fields_of_a_call_that_is_given_up() -> None:
    with logger(logging.INFO) as (target, kept), instrument(target), pytest.raises(Boom):
        policy(attempts=1).call(Operation([fail()], Virtual()))
    assert kept.fields() == [
        {"policy": "work", "attempt": 1, "delay": None, "reason": "attempts", "kind": "unknown"}
        | {"http_status": None, "decision": "stop", "error": "ScriptedError", "elapsed": 0, "labels": {}}
    ]


def test_the_messages_of_a_breaker() -> None:
    with logger() as (target, kept), instrument(target):
        BreakerScript(failures=1, cooldown=10, name="pay").run("bad good good +10 good isolate close")
    assert kept.messages() == [
        "INFO pay: circuit opened for 10 s, 0 calls rejected",
        *[f"DEBUG pay: rejected by circuit_breaker: CircuitOpen: {OPEN}"] * 2,
        "INFO pay: circuit half open, 2 calls rejected",
        "INFO pay: circuit closed, 2 calls rejected",
        "INFO pay: circuit isolated, 0 calls rejected",
        "INFO pay: circuit closed, 0 calls rejected",
    ]


def test_the_own_messages_of_a_breaker_are_not_repeated(caplog: pytest.LogCaptureFixture) -> None:
    """A breaker logs to the same logger that it rejects calls, once, and that it is closed again."""
    with caplog.at_level(logging.INFO, "redouble"), instrument():
        BreakerScript(failures=1, cooldown=10, name="pay").run("bad good good +10 good isolate close")
    assert [record.getMessage() for record in caplog.records] == [
        "pay: circuit opened for 10 s, 0 calls rejected",
        f"{OPEN}; further rejections are counted, and not logged",
        "pay: circuit half open, 2 calls rejected",
        "pay is closed again, after 2 rejected calls",
        "pay: circuit isolated, 0 calls rejected",
        "pay: circuit closed, 0 calls rejected",
    ]


def test_the_messages_of_a_bulkhead_and_a_timeout() -> None:
    gate = Bulkhead(1, 0, name="mail")

    async def slow() -> None:
        await redouble.SYSTEM.asleep(99)

    async def main() -> None:
        with pytest.raises(errors.AttemptTimeout):
            await Timeout(5).call(slow)

    with logger() as (target, kept), instrument(target):
        with gate, pytest.raises(errors.BulkheadFull):
            gate.call(int)
        with virtual_time():
            in_colour("asyncio", lambda: None, main)
    rejected, cut = kept.messages()
    assert rejected.startswith("DEBUG mail: rejected by bulkhead: BulkheadFull: ")
    assert ": cut by a limit: AttemptTimeout: " in cut
    assert cut.startswith("DEBUG ")
    assert kept.fields()[0]["reason"] == "bulkhead"
    assert kept.fields()[1]["decision"] is None


def test_the_messages_of_other_layers() -> None:
    with logger() as (target, kept), instrument(target):
        emit_layer_events("region")
        emit_layer("fallback", "fallback", "refusing", value=object())
        emit_layer("fallback", "stale_fallback", "prices", error=ConnectionError("gone"), level=90.0)
    assert kept.messages() == [
        "DEBUG region: admitted by bulkhead after 0.25 s",
        "INFO region: the limit of adaptive_concurrency is now 12",
        "DEBUG region: extra attempt 2 started after 0.5 s",
        "DEBUG region: extra attempt 2 was the first to end well",
        "INFO region: a fallback replaced an error: ConnectionError: gone",
        "DEBUG region: shared a call in flight for 0.125 s",
        "INFO refusing: a fallback replaced a refused result",
        "INFO prices: a fallback replaced an error by a result that is 90 s old: ConnectionError: gone",
    ]
    assert [fields.get("age") for fields in kept.fields()] == [None] * 7 + [90.0]


def test_what_happens_in_every_call_is_logged_once_in_ten_seconds() -> None:
    """For each name and each type of event; the next line has the number of those that were not logged."""
    with virtual_time() as clock, logger() as (target, kept), instrument(target):
        for second in range(11):
            for level in (1.0, 2.0):
                emit_layer("limit_changed", "adaptive_rate", "a", level=second + level / 10)
            clock.advance(1)
        emit_layer("limit_changed", "adaptive_rate", "b", level=1234.5)
        emit_layer("fallback", "fallback", "a", value=1)
        clock.advance(10)
        emit_layer("limit_changed", "adaptive_rate", "b", level=0.5)
    assert kept.messages() == [
        "INFO a: the limit of adaptive_rate is now 0.1",
        "INFO a: the limit of adaptive_rate is now 10.1 (and 19 more since the last such line)",
        "INFO b: the limit of adaptive_rate is now 1234",
        "INFO a: a fallback replaced a refused result",
        "INFO b: the limit of adaptive_rate is now 0.5",
    ]
    assert [fields.get("limit") for fields in kept.fields()] == [0.1, 10.1, 1234.5, None, 0.5]


def test_many_names_are_logged_and_not_kept() -> None:
    with virtual_time(), logger() as (target, kept), instrument(target):
        for name in range(3000):
            emit_layer("fallback", "fallback", f"n{name}", value=1)
        emit_layer("fallback", "fallback", "n2999", value=1)
    assert len(kept.records) == 3000


def test_a_clock_that_is_set_back_does_not_silence_the_log() -> None:
    """As the clock of the process, after virtual time has run ahead of it."""
    with logger() as (target, kept), instrument(target):
        with virtual_time() as clock:
            clock.advance(1e9)
            emit_layer("fallback", "fallback", "a", value=1)
        emit_layer("fallback", "fallback", "a", value=1)
    assert len(kept.records) == 2


def test_the_logger_may_be_given_by_name() -> None:
    with logger() as (target, kept):
        for given in (target, target.name):
            with instrument(given):
                policy().call(int)
        policy().call(int)
    assert kept.messages() == ["DEBUG work: attempt 1 succeeded in 0 s"] * 2


def test_the_default_logger_is_called_redouble(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "redouble"), instrument():
        policy().call(int)
    assert [record.name for record in caplog.records] == ["redouble"]


@pytest.mark.parametrize("wrong", [None, 3, logging.Logger, logging.DEBUG])
def test_a_wrong_logger_raises(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"logger=.*: write a logger, or the name of one"):
        instrument(wrong)


def test_the_handle_removes_the_observer() -> None:
    with logger() as (target, kept):
        first, second = instrument(target), instrument(target)
        first.remove()
        first.remove()
        second()
        policy().call(int)
    assert kept.records == []
