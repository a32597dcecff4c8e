"""A log record is one line, holds no argument, result or secret, and logging never fails a call."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redouble import Bulkhead, Verdict, bind, errors
from redouble.instruments.logging import instrument
from tests.support.fakes import Boom, always
from tests.support.instruments.counts import EVERY_SHAPE, created_events, policy
from tests.support.instruments.log_capture import STANDARD_FIELDS, logger

OURS = ("policy", "attempt", "delay", "reason", "kind", "http_status", "decision", "error", "elapsed")
ODD = "a\nb\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\x00\x1b[2J\ud800"


def texts(thing: object) -> Iterator[str]:
    """Yield every text of a record: keys and values, recursively."""
    parts: list[object] = []
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, dict):
        known = cast("dict[object, object]", thing)
        parts = [*known, *known.values()]
    elif isinstance(thing, list):
        parts = cast("list[object]", thing)
    for part in parts:
        yield from texts(part)


def nothing() -> None: ...


def is_one_line(text: str) -> bool:
    text.encode()  # a lone surrogate would fail in the handler
    return len(f"{text}.".splitlines()) == 1 and "\x1b" not in text and "\x00" not in text


ANY = st.text(max_size=20) | st.sampled_from([ODD, "x" * 400 + "\n", "\n"])


@given(name=ANY, label=ANY, bound=ANY, said=ANY, reason=ANY)
@example(*[ODD] * 5)
@settings(max_examples=50)
def test_one_record_is_one_line(name: str, label: str, bound: str, said: str, reason: str) -> None:
    """Line breaks may come from names, labels, bound values, errors, their types and their verdicts."""
    kind: Any = type(said.replace("\x00", "") or "Odd", (Exception,), {}) if said.isprintable() else Boom

    def work() -> None:
        raise kind(said)

    rule = always(Verdict.retry(reason=reason))
    retrying, gate = policy(name=name, labels={label: label}, on=rule, attempts=2), Bulkhead(1, 0, name=name)
    with logger() as (target, kept), instrument(target), bind(**{"tenant": bound, bound: bound}):
        retrying.run(work)
        with gate, pytest.raises(errors.BulkheadFull):
            gate.call(work)
    assert len(kept.records) == 5
    for record in kept.records:
        assert is_one_line(logging.Formatter("%(levelname)s %(name)s %(message)s").format(record))
        assert all(
            is_one_line(text)
            for key in vars(record)
            if key not in STANDARD_FIELDS
            for text in texts(vars(record)[key])
        )
        assert all(is_one_line(key) for key in vars(record))


def test_the_name_of_an_error_is_one_line() -> None:
    def work() -> None:
        raise type("Odd\nWARNING all is well", (Exception,), {})

    with logger() as (target, kept), instrument(target):
        policy(attempts=1).run(work)
    assert all(is_one_line(text) for text in texts(kept.fields()))


def test_long_texts_are_truncated() -> None:
    with logger() as (target, kept), instrument(target), bind(essay="x" * 10_000):
        policy(name="n" * 10_000, attempts=1).run(lambda: 1 / 0)
    for fields, record in zip(kept.fields(), kept.records, strict=True):
        assert max(len(text) for text in (*texts(fields), record.getMessage())) == 500
        assert record.getMessage().endswith("...")


@pytest.mark.parametrize("word", [*sorted(STANDARD_FIELDS), *OURS, "labels"])
def test_a_bound_field_never_replaces_a_field_of_the_record(word: str) -> None:
    """A bound field with the name of another one gets the prefix ``bound_``."""
    with logger() as (target, kept), instrument(target), bind(**{word: "mine"}):
        policy(name="fetch").call(int)
    (record,) = kept.records
    assert vars(record)[f"bound_{word}"] == "mine"
    assert record.getMessage() == "fetch: attempt 1 succeeded in 0 s"
    assert (record.name, vars(record)["policy"], vars(record)["attempt"]) == (target.name, "fetch", 1)


def test_no_bound_field_is_lost() -> None:
    """In any order, also if a prefixed name is taken."""
    fields = {"policy": "1", "bound_policy": "2", "msg": "3", "bound_msg": "4"}
    for order in (fields, dict(reversed(fields.items()))):
        with logger() as (target, kept), instrument(target), bind(**order):
            policy().call(int)
        assert set(fields.values()) <= set(texts(kept.fields()))


def test_no_argument_and_no_result_is_logged() -> None:
    def login(password: str, *, token: str) -> str:
        if not failed:
            failed.append(None)
            raise Boom("no")
        return "the hunter4 result"

    failed: list[None] = []
    with logger() as (target, kept), instrument(target):
        assert policy().call(login, "hunter2", token="hunter3")  # noqa: S106
        policy(until=always(False), attempts=2).run(login, "hunter2", token="hunter3")  # noqa: S106
        policy()(login)("hunter2", token="hunter3")  # noqa: S106
    assert len(kept.records) == 3 + 4 + 1
    assert "hunter" not in "".join(repr(vars(record)) + record.getMessage() for record in kept.records)


def test_secrets_in_addresses_are_redacted() -> None:
    def work() -> None:
        raise Boom("cannot reach https://ann:hunter2@example.org/a?token=hunter3&page=2")

    with logger() as (target, kept), instrument(target):
        policy(attempts=1).run(work)
    assert len(kept.records) == 2
    for record in kept.records:
        assert "https://example.org/a?token=REDACTED" in record.getMessage()
        assert "hunter" not in repr(vars(record))


def test_an_error_whose_str_raises_is_logged_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    def work() -> None:
        raise Mute

    with logger() as (target, kept), instrument(target):
        policy(attempts=1).run(work)
    assert [line.rpartition(": ")[2] for line in kept.messages()] == ["Mute", "Mute"]


def test_a_handler_that_fails_changes_nothing() -> None:
    class Broken(logging.Handler):
        asked = 0

        def emit(self, record: logging.LogRecord) -> None:
            self.asked += 1
            raise ZeroDivisionError("a bug in the handler")

    broken, lost = Broken(), Boom()
    failing = iter([lost])

    def work() -> int:
        for error in failing:
            raise error
        return 3

    with logger() as (target, kept), instrument(target):
        target.addHandler(broken)
        assert policy().call(work) == 3
        target.removeHandler(broken)
    assert (broken.asked, len(kept.records)) == (3, 3)


def test_successful_calls_emit_no_event_unless_debug_is_enabled() -> None:
    """A change of the level takes effect at once."""
    with logger(logging.INFO) as (target, kept), instrument(target), created_events() as made:
        retried = policy()(nothing)
        retried()
        policy().call(nothing)
        assert (made, kept.records) == ([], [])
        target.setLevel(logging.DEBUG)
        retried()
        policy().call(nothing)
        assert made == ["success", "success"]
        target.setLevel(logging.INFO)
        retried()
        policy().call(nothing)
    assert made == ["success", "success"]
    assert kept.messages() == ["DEBUG work: attempt 1 succeeded in 0 s"] * 2


def test_successful_calls_in_other_shapes_emit_no_event() -> None:
    for shape in EVERY_SHAPE.values():
        with logger(logging.INFO) as (target, kept), instrument(target):
            shape(policy(), nothing)
        assert kept.records == []
