"""`Exchange`: the records on responses and errors, and bodies that fail."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import pytest

from redouble import Pipeline, Report, Timeout, deadline, errors, http, report
from redouble._engine.report import STAMP, ResendGuard, stamp_of
from redouble.testing import virtual_time
from tests.support.fakes import always
from tests.support.http.exchanges import CONNECTION_LOST, POLICY, error_texts, report_of
from tests.support.http.offline_clients import Client, ClientTimeout, retrying

# ---------------------------------------------------------------------------- reports


@pytest.mark.parametrize(
    ("script", "status", "reason", "attempts"),
    [
        ([200], 200, None, 1),
        ([404], 404, None, 1),
        ([503, 200], 200, None, 2),
        ([CONNECTION_LOST("x"), 503, 404], 404, None, 3),
        ([503], 503, "attempts", 3),
        ([CONNECTION_LOST("x"), CONNECTION_LOST("x"), 500], 500, "attempts", 3),
    ],
)
def test_every_response_has_a_report(
    colour: str, script: list[Any], status: int, reason: str | None, attempts: int
) -> None:
    client = Client(POLICY, *script, colour=colour)
    answer = client.request()
    call_report = report_of(answer)
    assert (answer.status, call_report.reason, call_report.attempts) == (status, reason, attempts)
    assert (len(client.sent), len(call_report.history)) == (attempts, attempts)
    assert (call_report.name, call_report.labels) == ("mine", {"shop": "books"})
    assert [record.number for record in call_report.history] == [*range(1, attempts + 1)]
    assert (call_report.history[-1].error_type is None) is (reason is None)


@pytest.mark.parametrize(
    ("policy", "status"), [(Pipeline(), 503), (Timeout(9), 500), (retrying(attempts=1), 503)]
)
def test_a_call_without_retries_has_a_report(colour: str, policy: Any, status: int) -> None:
    call_report = report_of(Client(policy, status, colour=colour).request())
    assert (call_report.attempts, call_report.name) == (1, "client")
    assert call_report.reason in ("stopped", "attempts")
    assert error_texts(call_report) == [f"{status} no"]
    good = report_of(Client(policy, 200, colour=colour).request())
    assert (good.attempts, good.reason, good.name) == (1, None, "client")


def test_a_raised_error_is_not_stamped_with_its_exchange(colour: str) -> None:
    """With a policy it has the stamp of its run; without one a record that vetoes nothing."""
    for policy in (POLICY, Pipeline()):
        with pytest.raises(CONNECTION_LOST) as caught:
            Client(policy, CONNECTION_LOST("x"), colour=colour).request()
        assert not isinstance(stamp_of(caught.value), ResendGuard)
        assert report(caught.value) is not None
        assert pickle.loads(pickle.dumps(report(caught.value))) == report(caught.value)


def test_secrets_in_error_texts_are_redacted(colour: str) -> None:
    error = CONNECTION_LOST("lost http://user:pw@host.test/p?key=abc")
    with pytest.raises(CONNECTION_LOST) as caught:
        Client(POLICY, error, colour=colour).request()
    assert error_texts(report_of(caught.value)) == ["lost http://host.test/p?key=REDACTED"] * 3


def test_a_report_inside_a_rule_has_the_attempts_so_far(colour: str) -> None:
    seen: list[Report] = []

    def rule(error: Exception) -> bool:
        seen.append(report_of(error))
        seen.append(pickle.loads(pickle.dumps(stamp_of(error))))
        return True

    Client(retrying(on=rule, attempts=2, name="mine"), CONNECTION_LOST("x"), 503, colour=colour).request()
    assert [(call_report.attempts, call_report.reason, call_report.name) for call_report in seen] == [
        (number, "stopped", "mine") for number in (1, 1, 2, 2)
    ]
    assert [error_texts(call_report) for call_report in seen] == [["x"]] * 2 + [["503 no"]] * 2


@pytest.mark.parametrize("script", [[200], [503, 200], [503]])
def test_a_record_survives_pickling(colour: str, script: list[Any]) -> None:
    """Pickling replaces the record by its report."""
    answer = Client(POLICY, *script, colour=colour).request()
    found: Any = pickle.loads(pickle.dumps(answer.__dict__[STAMP]))
    assert isinstance(found, Report)
    assert (found.reason, found.attempts, found.name) == (*report_of(answer)[:2], "mine")
    assert found == report_of(answer)


# -------------------------------------------------------------------- rules for results


def test_a_response_that_until_rejects_to_the_end_is_returned(colour: str) -> None:
    client = Client(retrying(on=Exception, attempts=3, until=always(False)), 200, colour=colour)
    answer = client.request()
    assert (answer.status, report_of(answer).reason, len(client.sent)) == (200, "attempts", 3)


@pytest.mark.parametrize(("method", "sends"), [("GET", 2), ("POST", 1)])
def test_a_response_that_until_rejects_is_retried_if_idempotent(colour: str, method: str, sends: int) -> None:
    taken: list[Any] = []

    def second(answer: Any) -> bool:
        taken.append(answer)
        return len(taken) == 2

    client = Client(retrying(on=http.rule(), attempts=3, until=second), 200, colour=colour)
    with suppress(errors.RedoubleError):  # raised if it was not retried
        client.request(method)
    assert len(client.sent) == sends


# ---------------------------------------------------------------------------------- time


def test_a_deadline_error_is_a_timeout_error_of_the_client_too() -> None:
    with virtual_time() as clock, deadline(1):
        clock.advance(2)
        with pytest.raises(ClientTimeout) as caught:
            Client(POLICY, 200).request()
    error: Any = caught.value
    assert errors.DeadlineExceeded in type(error).__mro__
    assert type(error).__name__ == "DeadlineExceeded"
    assert error.request.method == "GET"
    assert report_of(error).attempts == 0
