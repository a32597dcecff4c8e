"""Logging by structlog: the same events as with the standard library, with fields."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture, capture_logs
from structlog.typing import EventDict

from redouble import Bulkhead, bind, errors
from redouble._runtime.ambient import ambient
from redouble.instruments.structlog import instrument
from tests.support.fakes import Boom, Operation, Virtual, fail, in_colour, ok
from tests.support.instruments.counts import created_events, policy
from tests.support.instruments.log_capture import STANDARD_FIELDS, logger
from tests.support.instruments.sample_events import emit_layer_events
from tests.support.layers.breaker_scripts import BreakerScript

EMPTY = {"delay": None, "reason": None, "kind": None, "http_status": None, "decision": None, "error": None}


def nothing() -> None: ...


def capturing(level: int) -> tuple[Any, list[EventDict]]:
    """Return a structlog logger with a minimum level, and the list of its entries."""
    capture = LogCapture()
    wrapper = structlog.make_filtering_bound_logger(level)
    return structlog.wrap_logger(
        structlog.PrintLogger(), processors=[capture], wrapper_class=wrapper
    ), capture.entries


def backed(target: logging.Logger) -> Any:
    """Return a structlog logger that passes its fields to the standard library."""
    return structlog.wrap_logger(
        target,
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.render_to_log_kwargs],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def call(colour: str = "sync", **options: Any) -> None:
    """Make a call that fails, and then either succeeds or has no attempt left."""
    clock = Virtual()
    operation = Operation([fail("lost", takes=1.5), ok(takes=0.25)], clock)
    retrying = policy(clock=clock, **options)

    async def later() -> object:
        return operation()

    def blocking() -> object:
        with bind(run_id="r-17", shard=3):
            return retrying.call(operation)

    async def waiting() -> object:
        with bind(run_id="r-17", shard=3):
            return await retrying.call(later)

    with suppress(Boom):
        in_colour(colour, blocking, waiting)


def test_the_fields_of_each_entry(colour: str) -> None:
    with capture_logs() as lines, instrument():
        call(colour, labels={"team": "x"})
    every = EMPTY | {"policy": "work", "labels": {"team": "x"}, "run_id": "r-17", "shard": 3}
    bad = {"attempt": 1, "reason": "unknown", "kind": "unknown", "error": "ScriptedError", "elapsed": 1.5}
    failed, retry, succeeded = lines
    assert failed == every | bad | {
        "event": "redouble.failure",
        "log_level": "debug",
        "summary": "work: attempt 1 failed in 1.5 s: ScriptedError: lost",
    }
    assert retry == every | bad | {
        "event": "redouble.retry",
        "log_level": "info",
        "delay": 1,
        "decision": "retry",
        "summary": "work: attempt 1 failed (unknown), next in 1 s",
    }
    assert succeeded == every | {
        "event": "redouble.success",
        "log_level": "debug",
        "attempt": 2,
        "decision": "accept",
        "elapsed": 2.75,
        "summary": "work: attempt 2 succeeded in 0.25 s",
    }


def test_giving_up_is_a_warning() -> None:
    with capture_logs() as lines, instrument():
        call(attempts=1)
        call(on=KeyError)
    logged = [(line["log_level"], line["event"], line["reason"]) for line in lines]
    assert logged == [
        ("debug", "redouble.failure", "unknown"),
        ("warning", "redouble.give_up", "attempts"),
        ("debug", "redouble.failure", "unknown"),
        ("debug", "redouble.give_up", "stopped"),
    ]


def test_entries_of_gates_and_breakers() -> None:
    gate = Bulkhead(1, 0, name="mail")
    with capture_logs() as lines, instrument():
        BreakerScript(failures=1, cooldown=10, name="pay").run("bad +10 good")
        BreakerScript(failures=1, cooldown=10, name="pay").run("metrics_only bad")
        with gate, pytest.raises(errors.BulkheadFull):
            gate.call(int)
    assert [(line["event"], line["policy"], line["log_level"]) for line in lines] == [
        ("redouble.circuit_opened", "pay", "info"),
        ("redouble.circuit_half_open", "pay", "info"),
        ("redouble.circuit_closed", "pay", "info"),
        ("redouble.circuit_metrics_only", "pay", "info"),
        ("redouble.circuit_exceeded", "pay", "info"),
        ("redouble.rejected", "mail", "debug"),
    ]
    assert lines[-1]["reason"] == "bulkhead"


@pytest.mark.parametrize(("level", "expected"), [(10, 3), (20, 1), (30, 0)])
def test_the_level_of_a_structlog_logger_applies(level: int, expected: int) -> None:
    target, lines = capturing(level)
    with instrument(target):
        call()
    assert len(lines) == expected


@pytest.mark.parametrize(("level", "expected"), [(10, 3), (20, 1), (30, 0)])
def test_the_level_of_a_wrapped_standard_logger_applies(level: int, expected: int) -> None:
    with logger(level) as (target, kept), instrument(backed(target)):
        call()
    assert len(kept.records) == expected
    assert all(vars(record)["policy"] == "work" for record in kept.records)


@pytest.mark.parametrize("kind", ["structlog's own", "the standard library's"])
def test_successful_calls_emit_no_event_unless_debug_is_enabled(kind: str) -> None:
    with logger() as (target, _):
        for level, expected in [(logging.INFO, []), (logging.DEBUG, ["success"])]:
            target.setLevel(level)
            made = capturing(level)[0] if kind == "structlog's own" else backed(target)
            with instrument(made), created_events() as events:
                policy()(nothing)()
            assert events == expected


class Plain:
    """A logger that has the required method alone."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def log(self, level: int, event: str, **fields: object) -> None:
        self.lines.append(event)


class Older(Plain):
    """A logger with the method ``isEnabledFor`` of the standard library."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802
        return level > logging.DEBUG


class WrongSignature(Plain):
    """A logger whose ``is_enabled_for`` has another signature."""

    def is_enabled_for(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("target", "expected"),
    [(Plain(), ["redouble.success"]), (Older(), []), (WrongSignature(), ["redouble.success"])],
)
def test_a_logger_without_a_readable_level_gets_all_events(target: Plain, expected: list[str]) -> None:
    with instrument(target):
        policy()(nothing)()
    assert target.lines == expected


OURS = ("policy", "attempt", *EMPTY, "elapsed", "labels")
THEIRS = ("event", "level", "timestamp", "logger", "exc_info", "stack_info", "self", "method_name", "summary")


@pytest.mark.parametrize("word", [*OURS, *THEIRS, *sorted(STANDARD_FIELDS - {"exc_info", "stack_info"})])
def test_a_bound_field_never_replaces_another_field(word: str) -> None:
    with bind(**{word: "mine"}), logger() as (target, kept):
        with capture_logs() as lines, instrument():
            policy(name="fetch").call(int)
        with instrument(backed(target)):
            policy(name="fetch").call(int)
    (line,), (record,) = lines, kept.records
    assert line[f"bound_{word}"] == vars(record)[f"bound_{word}"] == "mine"
    assert (line["event"], line["policy"], line["attempt"]) == ("redouble.success", "fetch", 1)
    assert (record.getMessage(), record.name) == ("redouble.success", target.name)


def test_entries_are_one_line_without_secrets() -> None:
    def work(password: str) -> None:
        raise Boom("no\nWARNING https://ann:hunter3@example.org")

    with capture_logs() as lines, instrument(), bind(tenant="a\nb"):
        policy(name="x\ny", attempts=1).run(work, "hunter2")
    assert len(lines) == 2
    assert "hunter" not in str(lines)
    assert "\n" not in "".join(str(value) for line in lines for value in line.values())
    assert {(line["tenant"], line["policy"]) for line in lines} == {("a\\nb", "x\\ny")}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, r"logger=3 cannot be a logger: it has no method log\(\)"),
        (
            logging.getLogger("redouble"),
            r"is a logger of the logging module: use redouble\.instruments\.logging",
        ),
        (logging.Logger, r"logger=Logger is a class: write Logger\(\.\.\.\)"),
    ],
)
def test_a_wrong_logger_raises(wrong: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        instrument(wrong)


def test_the_handle_removes_the_observer() -> None:
    target, lines = capturing(logging.DEBUG)
    handle = instrument(target)
    handle.remove()
    handle()
    call()
    assert lines == []
    assert not ambient.active


def test_events_of_other_layers_have_their_fields() -> None:
    target, entries = capturing(logging.DEBUG)
    with instrument(target):
        emit_layer_events("region")
    shown = [(entry["log_level"], entry["event"], entry["reason"], entry.get("limit")) for entry in entries]
    assert shown == [
        ("debug", "redouble.waited", "bulkhead", None),
        ("info", "redouble.limit_changed", "adaptive_concurrency", 12),
        ("debug", "redouble.hedged", "hedge", None),
        ("debug", "redouble.hedge_won", "hedge", None),
        ("info", "redouble.fallback", "fallback", None),
        ("debug", "redouble.coalesced", "coalesce", None),
    ]
    assert entries[0]["delay"] == 0.25
    assert entries[1]["summary"] == "region: the limit of adaptive_concurrency is now 12"
