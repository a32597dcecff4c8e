"""One logical request: a body that breaks before any of it was delivered restarts the request."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from redouble import Pipeline, http
from redouble._engine.report import stamp_of
from redouble.http._request_body import classify_body
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Ledger, Virtual
from tests.support.http.exchanges import CONNECTION_LOST, POLICY, error_texts, report_of
from tests.support.http.offline_clients import Client, StatusError, again, retrying

NONE = Pipeline()


def test_a_broken_body_is_a_failed_attempt(colour: str) -> None:
    client = Client(POLICY, 503, 200, colour=colour)
    again = client.request(broken=[CONNECTION_LOST("cut")])
    call_report = report_of(again)
    assert (again.status, len(client.sent), call_report.attempts, call_report.reason) == (200, 3, 3, None)
    assert error_texts(call_report) == ["503 no", "cut", None]


def test_a_call_with_a_time_limit_restarts(colour: str) -> None:
    client = Client(retrying(on=Exception, timeout=60), 200, colour=colour)
    assert report_of(client.request(broken=[CONNECTION_LOST("cut")])).attempts == 2


def test_restarts_count_as_attempts(colour: str) -> None:
    client = Client(POLICY, 200, colour=colour)
    answer = client.request(broken=[CONNECTION_LOST("cut 1"), CONNECTION_LOST("cut 2")])
    assert (len(client.sent), report_of(answer).attempts, report_of(answer).reason) == (3, 3, None)
    assert error_texts(report_of(answer)) == ["cut 1", "cut 2", None]
    client.sent.clear()
    last = CONNECTION_LOST("cut at last")
    with pytest.raises(CONNECTION_LOST) as caught:
        client.request(broken=[CONNECTION_LOST("cut 1"), CONNECTION_LOST("cut 2"), last])
    assert caught.value is last
    call_report = report_of(last)
    assert (len(client.sent), call_report.attempts, call_report.reason) == (3, 3, "attempts")
    assert error_texts(call_report) == ["cut 1", "cut 2", "cut at last"]
    assert [note for note in last.__notes__ if "after 3 attempts" in note]


def test_a_restart_may_fail_with_another_error(colour: str) -> None:
    client = Client(POLICY, 200, 503, CONNECTION_LOST("lost"), colour=colour)
    with pytest.raises(CONNECTION_LOST, match="lost") as caught:
        client.request(broken=[CONNECTION_LOST("cut")])
    call_report = report_of(caught.value)
    assert (len(client.sent), call_report.attempts, call_report.reason) == (3, 3, "attempts")
    assert error_texts(call_report) == ["cut", "503 no", "lost"]


@pytest.mark.parametrize(
    ("method", "body", "reason"), [("POST", None, "stopped"), ("PUT", iter([b"a"]), "not_replayable")]
)
def test_a_broken_body_does_not_restart_a_request_that_may_not_be_resent(
    colour: str, method: str, body: Any, reason: str
) -> None:
    client = Client(POLICY, 200, colour=colour)
    broken = CONNECTION_LOST("cut")
    with pytest.raises(CONNECTION_LOST) as caught:
        client.request(method, classify_body(body), broken=[broken])
    assert caught.value is broken
    call_report = report_of(broken)
    assert (len(client.sent), call_report.attempts, call_report.reason) == (1, 1, reason)


def test_without_a_policy_the_error_of_a_body_is_raised(colour: str) -> None:
    client = Client(NONE, 200, colour=colour)
    broken = CONNECTION_LOST("cut")
    with pytest.raises(CONNECTION_LOST) as caught:
        client.request(broken=[broken])
    assert caught.value is broken
    assert len(client.sent) == 1


def test_a_rule_may_refuse_to_retry_a_broken_body(colour: str) -> None:
    client = Client(retrying(on=StatusError), 503, 200, colour=colour)
    broken = CONNECTION_LOST("cut")
    with pytest.raises(CONNECTION_LOST) as caught:
        client.request(broken=[broken])
    assert (caught.value, len(client.sent), report_of(broken).reason) == (broken, 2, "stopped")


class Slow(list[Exception]):
    """Errors of bodies, each of which breaks after ``takes`` seconds."""

    def __init__(self, clock: VirtualClock, takes: float, times: int) -> None:
        super().__init__(CONNECTION_LOST("cut") for _ in range(times))
        self.clock, self.takes = clock, takes

    def __iter__(self) -> Iterator[Exception]:
        for error in super().__iter__():
            self.clock.advance(self.takes)
            yield error


@pytest.mark.parametrize(
    ("takes", "times", "sends", "reason", "elapsed"),
    [
        (4, 1, 2, None, 5),
        (4, 2, 2, "timeout", 9),
        (3, 2, 3, None, 8),
        (3, 3, 3, "timeout", 11),
        (10, 1, 1, "timeout", 10),
    ],
)
@pytest.mark.parametrize("limit", ["timeout", "give_up_after"])
def test_restarts_count_for_the_limits_of_the_call(
    limit: str, takes: float, times: int, sends: int, reason: str | None, elapsed: float
) -> None:
    """The limit is 10 s and the delay 1 s; no attempt starts after the limit."""
    policy = retrying(on=Exception, attempts=9, backoff=[1] * 9, **{limit: 10})
    with virtual_time() as clock:
        client = Client(policy, 200)
        try:
            seen = client.request(broken=Slow(clock, takes, times))
        except CONNECTION_LOST as error:
            seen = error
        call_report = report_of(seen)
        assert (len(client.sent), call_report.reason, call_report.attempts) == (sends, reason, sends)
        assert (call_report.elapsed, clock.now()) == (elapsed, elapsed)


def test_each_restart_draws_the_next_delay() -> None:
    clock = Virtual()
    client = Client(retrying(on=Exception, attempts=9, backoff=[1, 2, 3, 4], clock=clock), 503, 200)
    client.request(broken=[CONNECTION_LOST("cut"), CONNECTION_LOST("cut")])
    assert clock.waits == [1, 2, 3]


def test_restarts_spend_budget(colour: str) -> None:
    ledger = Ledger(retries=2)
    client = Client(retrying(on=Exception, attempts=9, budget=ledger), 503, 200, colour=colour)
    with pytest.raises(CONNECTION_LOST) as caught:
        client.request(broken=[CONNECTION_LOST("cut"), CONNECTION_LOST("cut")])
    assert (report_of(caught.value).reason, len(client.sent)) == ("budget", 3)


def test_an_error_after_the_first_byte_has_a_note_and_a_report(colour: str) -> None:
    client = Client(POLICY, 503, 200, colour=colour)
    broken = CONNECTION_LOST("cut")
    client.request().exchange.mark_delivered(broken)
    call_report = report_of(broken)
    assert (call_report.reason, call_report.attempts, call_report.name, len(client.sent)) == (
        "committed",
        2,
        "mine",
        2,
    )
    (note,) = broken.__notes__
    assert note.startswith("redouble: gave up after 2 attempts in ")
    assert note.endswith(" s (items had been handed out)")
    assert pickle.loads(pickle.dumps(stamp_of(broken))) == call_report


@pytest.mark.parametrize(("policy", "reason", "attempts"), [(POLICY, "attempts", 3), (NONE, "stopped", 1)])
def test_the_broken_body_of_a_failed_response_does_not_restart(
    colour: str, policy: Any, reason: str, attempts: int
) -> None:
    """The call has failed already; the reason stays that of the failure."""
    client = Client(policy, 503, colour=colour)
    whole, broken = CONNECTION_LOST("cut"), CONNECTION_LOST("cut")
    with pytest.raises(CONNECTION_LOST) as caught:
        client.request(broken=[whole])
    assert caught.value is whole
    client.sent.clear()
    client.request().exchange.mark_delivered(broken)
    for error in (whole, broken):
        assert (report_of(error).reason, report_of(error).attempts) == (reason, attempts)
    assert len(client.sent) == attempts


@pytest.mark.parametrize(("script", "reason"), [([200, 404], "stopped"), ([200, 503], "attempts")])
def test_a_new_response_that_does_not_fit_the_head_raises(script: list[Any], reason: str) -> None:
    """The error of the body, with the report of all attempts."""
    client = Client(POLICY, *script)
    first = client.request()
    broken = CONNECTION_LOST("cut")
    with suppress(StatusError):
        first.exchange.finish(again(first.exchange, broken))
    assert first.exchange.mismatch(broken) is broken
    assert (report_of(broken).reason, report_of(broken).attempts) == (reason, len(client.sent))


@pytest.mark.parametrize(("method", "calls"), [("GET", 2), ("POST", 1)])
def test_an_outer_rule_still_checks_the_method(method: str, calls: int) -> None:
    """The reason `committed` does not permit resending a POST."""
    made: list[Exception] = []

    def download() -> None:
        error = CONNECTION_LOST("cut", request=httpx.Request(method, "http://host.test/"))
        made.append(error)
        Client(POLICY, 200).request(method).exchange.mark_delivered(error)
        raise error

    with pytest.raises(CONNECTION_LOST):
        retrying(on=http.rule(), attempts=2).call(download)
    assert len(made) == calls
