"""Label values derived from events: codes, kinds, reasons and statuses."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import httpx
import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Kind, Verdict
from redouble._failures.verdict import CANCELLED_BY_LIMIT
from redouble.errors import Reason
from redouble.instruments import Metric
from redouble.instruments._labels import code_of, http_status, is_http, kind_of, label_value, reason_of
from redouble.instruments._metrics_recorder import metrics_observer
from redouble.types import Event
from tests.support.fakes import Boom


def event(**fields: Any) -> Event:
    values: dict[str, Any] = dict.fromkeys(Event._fields)
    values |= {"what": "failure", "name": "work", "attempt": 1, "elapsed": 0.0, "labels": {}, "bound": {}}
    return Event(**values | fields)


class Answer:
    """An object with the given attributes."""

    def __init__(self, **attributes: object) -> None:
        vars(self).update(attributes)


class Shy(Exception):
    """An exception that raises when any attribute is read."""

    def __getattr__(self, name: str) -> object:
        raise ZeroDivisionError


class Unreadable:
    @property
    def status_code(self) -> int:
        raise RuntimeError("not read yet")


def error(name: str = "Odd", **attributes: object) -> Exception:
    made: Exception = type(name, (Exception,), attributes)("what it says")
    return made


REQUEST = httpx.Request("GET", "https://example.org/?token=hunter2")
STATUS_ERROR = httpx.HTTPStatusError("no", request=REQUEST, response=httpx.Response(502, request=REQUEST))


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, None),
        ({"error": Boom()}, None),
        ({"error": STATUS_ERROR}, 502),
        ({"error": error(status_code=429)}, 429),
        ({"value": httpx.Response(503)}, 503),
        ({"value": Answer(status=404)}, 404),
        ({"value": Answer(status_code=HTTPStatus.BAD_GATEWAY)}, 502),
        ({"value": Answer(status="ready")}, None),
        ({"value": Answer(status=3)}, None),
        ({"value": Answer(status_code=1000)}, None),
        ({"value": Answer(status_code=True)}, None),
        ({"value": Unreadable()}, None),
        ({"value": {"status": 200}}, None),
        ({"error": Shy()}, None),
    ],
)
def test_the_status_of_a_response(fields: dict[str, Any], status: int | None) -> None:
    found = http_status(event(**fields))
    assert (found, type(found)) == (status, type(status))


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "not_accepted"),
        ({"value": Answer(status_code=503)}, "503"),
        ({"attempt": 0}, "DeadlineExceeded"),
        ({"error": ConnectionResetError("10.0.0.1:5432")}, "ConnectionResetError"),
        ({"error": STATUS_ERROR}, "502"),
        ({"error": error(sqlstate="40001")}, "40001"),
        ({"error": error(pgcode="40P01")}, "40P01"),
        ({"error": error(sqlstate=None, pgcode="40P01")}, "40P01"),
        ({"error": error(sqlstate=40001)}, "Odd"),
        ({"error": Shy()}, "Shy"),
        ({"error": error("Odd\nName {x}")}, "Odd_Name__x_"),
        ({"error": error("L" * 100)}, "L" * 64),
    ],
)
def test_the_code_of_an_error_or_result(fields: dict[str, Any], code: str) -> None:
    assert code_of(event(what="give_up", **fields)) == code


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, "unknown"),
        ({"kind": Kind.network}, "network"),
        ({"kind": Kind.network, "error": STATUS_ERROR}, "network"),
        ({"kind": Kind.unknown, "error": STATUS_ERROR}, "server"),
        ({"kind": Kind.unknown, "error": error(status_code=404)}, "client"),
        ({"kind": Kind.unknown, "value": Answer(status=500)}, "server"),
        ({"kind": Kind.unknown, "value": Answer(status=202)}, "unknown"),
    ],
)
def test_the_kind_of_a_failure(fields: dict[str, Any], kind: str) -> None:
    """The kind is that of the rule; of a response that no rule classified, that of its status."""
    assert kind_of(event(**fields)) == kind


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "unknown"),
        ({"kind": Kind.timeout}, "timeout"),
        ({"kind": Kind.timeout, "verdict": Verdict.retry()}, "timeout"),
        ({"kind": Kind.timeout, "verdict": Verdict.retry(reason="timeout_read")}, "timeout_read"),
        ({"verdict": Verdict.retry(reason="user 17 is\nbusy")}, "user_17_is_busy"),
        ({"verdict": Verdict.retry(reason="")}, "unknown"),
    ],
)
def test_the_reason_of_a_retry(fields: dict[str, Any], reason: str) -> None:
    assert reason_of(event(**fields)) == reason


@pytest.mark.parametrize(
    ("fields", "http"),
    [
        ({}, False),
        ({"error": Boom()}, False),
        ({"error": httpx.ConnectError("refused")}, True),
        ({"error": requests.ConnectionError("refused")}, True),
        ({"error": error(status_code=503)}, True),
        ({"value": httpx.Response(503)}, True),
        ({"value": 503}, False),
    ],
)
def test_is_http_is_true_for_errors_and_responses_of_clients(fields: dict[str, Any], http: bool) -> None:
    assert is_http(event(**fields)) is http


@given(st.text())
@settings(max_examples=50)
def test_label_values_are_short_and_plain(text: str) -> None:
    made = label_value(text)
    assert len(made) == min(len(text), 64)
    assert all(letter.isascii() and (letter.isalnum() or letter in "_.:-") for letter in made)
    assert label_value(made) == made


def test_the_code_of_a_cut_attempt_is_that_of_the_raised_error() -> None:
    cut = event(what="give_up", error=Boom(), verdict=CANCELLED_BY_LIMIT, reason=Reason.timeout)
    assert code_of(cut) == "DeadlineExceeded"


def test_other_events_are_not_recorded() -> None:
    """Only events with a metric."""
    recorded: list[object] = []

    def record(*what: object) -> None:
        recorded.append(what)

    observer = metrics_observer(record)
    for what in ("before_attempt", "circuit_rejected", "circuit_opened"):
        observer(event(what=what))
    assert recorded == []
    observer(event(what="rejected"))
    observer(event(what="timeout"))
    observer(event(what="give_up", reason=Reason.budget))
    assert len(recorded) == 6


def test_a_call_that_continues_after_its_body_broke_is_not_counted_again() -> None:
    """Its further attempts and errors are counted."""
    recorded: list[str] = []

    def record(metric: Metric, *_: object) -> None:
        recorded.append(metric.name)

    observer = metrics_observer(record)
    observer(event(what="failure", attempt=1, again=True))
    assert recorded == []
    observer(event(what="retry", attempt=1, again=True, delay=1.0))
    observer(event(what="failure", attempt=2, again=True))
    assert recorded == ["retries", "delay", "attempts", "attempt_duration"]
    observer(event(what="success", attempt=3, again=True))
    observer(event(what="give_up", attempt=2, again=True, reason=Reason.attempts))
    assert recorded[4:] == ["attempts", "attempt_duration", "errors", "given_up"]
