"""One logical request: a body that breaks before the caller has had any of it is asked for again."""

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
from tests.http.test_exchange_endings import LOST, POLICY, texts, told
from tests.support.fakes import Ledger, Virtual
from tests.support.http.offline_clients import Client, Refused, retrying

NONE = Pipeline()


def test_a_body_that_breaks_is_an_attempt_that_failed(colour: str) -> None:
    client = Client(POLICY, 503, 200, colour=colour)
    again = client.request(broken=[LOST("cut")])
    said = told(again)
    assert (again.status, len(client.sent), said.attempts, said.reason) == (200, 3, 3, None)
    assert texts(said) == ["503 no", "cut", None]


def test_a_call_with_a_limit_begins_anew_within_it(colour: str) -> None:
    client = Client(retrying(on=Exception, timeout=60), 200, colour=colour)
    assert told(client.request(broken=[LOST("cut")])).attempts == 2


def test_restarts_count_as_attempts(colour: str) -> None:
    client = Client(POLICY, 200, colour=colour)
    answer = client.request(broken=[LOST("cut 1"), LOST("cut 2")])
    assert (len(client.sent), told(answer).attempts, told(answer).reason) == (3, 3, None)
    assert texts(told(answer)) == ["cut 1", "cut 2", None]
    client.sent.clear()
    last = LOST("cut at last")
    with pytest.raises(LOST) as caught:
        client.request(broken=[LOST("cut 1"), LOST("cut 2"), last])
    assert caught.value is last
    said = told(last)
    assert (len(client.sent), said.attempts, said.reason) == (3, 3, "attempts")
    assert texts(said) == ["cut 1", "cut 2", "cut at last"]
    assert [note for note in last.__notes__ if "after 3 attempts" in note]


def test_a_restart_may_fail_in_its_own_way(colour: str) -> None:
    client = Client(POLICY, 200, 503, LOST("lost"), colour=colour)
    with pytest.raises(LOST, match="lost") as caught:
        client.request(broken=[LOST("cut")])
    said = told(caught.value)
    assert (len(client.sent), said.attempts, said.reason) == (3, 3, "attempts")
    assert texts(said) == ["cut", "503 no", "lost"]


@pytest.mark.parametrize(
    ("method", "body", "reason"), [("POST", None, "stopped"), ("PUT", iter([b"a"]), "not_replayable")]
)
def test_a_body_that_breaks_is_not_asked_for_again_if_that_does_harm(
    colour: str, method: str, body: Any, reason: str
) -> None:
    client = Client(POLICY, 200, colour=colour)
    broken = LOST("cut")
    with pytest.raises(LOST) as caught:
        client.request(method, classify_body(body), broken=[broken])
    assert caught.value is broken
    said = told(broken)
    assert (len(client.sent), said.attempts, said.reason) == (1, 1, reason)


def test_without_a_policy_a_body_that_breaks_stays_broken(colour: str) -> None:
    client = Client(NONE, 200, colour=colour)
    broken = LOST("cut")
    with pytest.raises(LOST) as caught:
        client.request(broken=[broken])
    assert caught.value is broken
    assert len(client.sent) == 1


def test_a_rule_may_have_no_use_for_what_broke(colour: str) -> None:
    client = Client(retrying(on=Refused), 503, 200, colour=colour)
    broken = LOST("cut")
    with pytest.raises(LOST) as caught:
        client.request(broken=[broken])
    assert (caught.value, len(client.sent), told(broken).reason) == (broken, 2, "stopped")


class Slow(list[Exception]):
    """Errors of bodies that take their time to break."""

    def __init__(self, clock: VirtualClock, takes: float, times: int) -> None:
        super().__init__(LOST("cut") for _ in range(times))
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
def test_restarts_take_their_time_from_the_same_call(
    limit: str, takes: float, times: int, sends: int, reason: str | None, elapsed: float
) -> None:
    """Ten seconds in all, one second between two attempts; nothing begins that could not begin in time."""
    policy = retrying(on=Exception, attempts=9, backoff=[1] * 9, **{limit: 10})
    with virtual_time() as clock:
        client = Client(policy, 200)
        try:
            seen = client.request(broken=Slow(clock, takes, times))
        except LOST as error:
            seen = error
        said = told(seen)
        assert (len(client.sent), said.reason, said.attempts) == (sends, reason, sends)
        assert (said.elapsed, clock.now()) == (elapsed, elapsed)


def test_each_restart_draws_the_next_delay() -> None:
    clock = Virtual()
    client = Client(retrying(on=Exception, attempts=9, backoff=[1, 2, 3, 4], clock=clock), 503, 200)
    client.request(broken=[LOST("cut"), LOST("cut")])
    assert clock.waits == [1, 2, 3]


def test_restarts_spend_budget(colour: str) -> None:
    ledger = Ledger(retries=2)
    client = Client(retrying(on=Exception, attempts=9, budget=ledger), 503, 200, colour=colour)
    with pytest.raises(LOST) as caught:
        client.request(broken=[LOST("cut"), LOST("cut")])
    assert (told(caught.value).reason, len(client.sent)) == ("budget", 3)


def test_an_error_after_the_first_byte_says_so(colour: str) -> None:
    client = Client(POLICY, 503, 200, colour=colour)
    broken = LOST("cut")
    client.request().exchange.mark_delivered(broken)
    said = told(broken)
    assert (said.reason, said.attempts, said.name, len(client.sent)) == ("committed", 2, "mine", 2)
    (note,) = broken.__notes__
    assert note.startswith("redouble: gave up after 2 attempts in ")
    assert note.endswith(" s (items had been handed out)")
    assert pickle.loads(pickle.dumps(stamp_of(broken))) == said


@pytest.mark.parametrize(("policy", "reason", "attempts"), [(POLICY, "attempts", 3), (NONE, "stopped", 1)])
def test_the_body_of_a_failure_is_not_asked_for_again(
    colour: str, policy: Any, reason: str, attempts: int
) -> None:
    """The call had failed before; that its last answer breaks too changes nothing."""
    client = Client(policy, 503, colour=colour)
    whole, broken = LOST("cut"), LOST("cut")
    with pytest.raises(LOST) as caught:
        client.request(broken=[whole])
    assert caught.value is whole
    client.sent.clear()
    client.request().exchange.mark_delivered(broken)
    for error in (whole, broken):
        assert (told(error).reason, told(error).attempts) == (reason, attempts)
    assert len(client.sent) == attempts


@pytest.mark.parametrize(("script", "reason"), [([200, 404], "stopped"), ([200, 503], "attempts")])
def test_an_answer_that_does_not_fit_the_head(script: list[Any], reason: str) -> None:
    """The error of the body is raised, with the record of the attempts."""
    client = Client(POLICY, *script)
    first = client.request()
    broken = LOST("cut")
    with suppress(Refused):
        first.exchange.restart(broken)
    assert first.exchange.mismatch(broken) is broken
    assert (told(broken).reason, told(broken).attempts) == (reason, len(client.sent))


@pytest.mark.parametrize(("method", "calls"), [("GET", 2), ("POST", 1)])
def test_a_rule_further_out_still_asks_for_the_method(method: str, calls: int) -> None:
    """The reason `committed` does not permit resending a POST."""
    made: list[Exception] = []

    def download() -> None:
        error = LOST("cut", request=httpx.Request(method, "http://host.test/"))
        made.append(error)
        Client(POLICY, 200).request(method).exchange.mark_delivered(error)
        raise error

    with pytest.raises(LOST):
        retrying(on=http.rule(), attempts=2).call(download)
    assert len(made) == calls
