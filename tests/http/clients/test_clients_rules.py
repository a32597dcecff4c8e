"""A rule of the caller's is called about every status that a client calls an error, once each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import redouble
from redouble import CircuitBreaker, Fallback, Reason, Retry, Verdict, transient
from redouble.http import rule
from redouble.types import Ended
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server, pattern

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def status_of(error: Any) -> int | None:
    response = getattr(error, "response", None)
    found: int | None = getattr(error, "status", None) if response is None else response.status_code
    return found


class Asked:
    """A rule that records the statuses it is called about, and retries some."""

    def __init__(self, *retried: int, answer: object = True) -> None:
        self.retried, self.answer, self.statuses = retried, answer, list[int | None]()

    def __call__(self, error: Exception) -> Any:
        self.statuses.append(status_of(error))
        return self.answer if status_of(error) in self.retried else None


class Judging(Asked):
    """The same, as a rule that gets more than the error."""

    def judge(self, ended: Ended) -> Any:
        assert ended.error is not None
        self.attempts = ended.attempt
        return self(ended.error)


@EVERY_CLIENT
@pytest.mark.parametrize("kind", [Asked, Judging])
@pytest.mark.parametrize("slow", [False, True], ids=["first attempt", "within the policy"])
@pytest.mark.parametrize("size", [9, 100_000])
def test_a_rule_may_retry_any_status(server: Server, name: str, kind: Any, slow: bool, size: int) -> None:
    asked = kind(423, 404)
    policy = Retry(on=[asked, transient], backoff=[0] * 3)
    with client(name, policy | CircuitBreaker(failures=9) if slow else policy) as http:
        seen = http.get(server.url(f"423~size={size},404,503,200~size={size}"))
    assert (seen.status, seen.content) == (200, pattern(size))
    assert asked.statuses == [423, 404, 503]  # once each
    assert seen.report().attempts == 4
    if kind is Judging:
        assert asked.attempts == 3


@EVERY_CLIENT
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("size", [9, 100_000])
def test_a_status_that_the_rule_does_not_retry_is_a_result(
    server: Server, name: str, stream: bool, size: int
) -> None:
    asked, breaker = Asked(423), CircuitBreaker(failures=1)
    policy = Fallback(lambda error: pytest.fail(f"{error}")) | Retry(on=asked) | breaker
    url = server.url(f"404~size={size}")
    with client(name, policy) as http:
        for _ in range(2):
            seen = http.get(url, stream=stream, piece=1000)
            assert (seen.status, seen.content) == (404, pattern(size))
            assert (seen.report().reason, seen.report().attempts) == (None, 1)
    assert asked.statuses == [404, 404]
    assert breaker.state == "closed"


@EVERY_CLIENT
def test_the_last_response_of_a_retried_status_is_returned(server: Server, name: str) -> None:
    with client(name, Retry(on=Asked(423), attempts=2, backoff=[0])) as http:
        seen = http.get(server.url("423~size=9"))
    assert (seen.status, seen.content) == (423, pattern(9))
    assert (seen.report().reason, seen.report().attempts) == (Reason.attempts, 2)
    assert seen.report().history[0].error_text == "423 Locked"


@EVERY_CLIENT
def test_all_answers_of_a_rule_apply(server: Server, name: str) -> None:
    for answer, requests in (
        (False, 1),
        (Verdict.stop(), 1),
        (Verdict.accept(), 1),
        (0.0, 2),
        (Verdict.retry(after=0), 2),
    ):
        url = server.url("423,200")
        with client(name, Retry(on=Asked(423, answer=answer), backoff=[0] * 3)) as http:
            seen = http.get(url)
        assert (seen.status, len(server.ledger(url))) == (423 if requests == 1 else 200, requests)


@EVERY_CLIENT
def test_a_post_is_not_repeated_by_a_rule_alone(server: Server, name: str) -> None:
    for headers, requests in (({}, 1), ({"Idempotency-Key": "k"}, 2)):
        url = server.url("423,200")
        with client(name, Retry(on=Asked(423), backoff=[0] * 3)) as http:
            http.request("POST", url, body=b"x", headers=headers)
        assert len(server.ledger(url)) == requests


@EVERY_CLIENT
def test_a_rule_that_raises_is_the_error_of_the_call(server: Server, name: str) -> None:
    def broken(error: Exception) -> bool:
        raise LookupError("broken rule")

    with client(name, Retry(on=broken)) as http:
        seen = http.get(server.url("423"))
    assert isinstance(seen.error, LookupError)
    assert status_of(seen.error.__context__) == 423


@EVERY_CLIENT
def test_types_and_our_own_rules_retry_no_other_status(server: Server, name: str) -> None:
    """A 404 is an answer: ``on=httpx.HTTPError`` does not repeat it."""
    on: Any
    for on in (Exception, [Exception, transient], rule(), [rule(statuses={423}), transient]):
        url = server.url("404,200")
        with client(name, Retry(on=on, backoff=[0] * 3)) as http:
            assert http.get(url).status == 404
        assert len(server.ledger(url)) == 1


@EVERY_CLIENT
def test_each_of_two_policies_is_asked(server: Server, name: str) -> None:
    outer, inner = Asked(423), Asked(404)
    policy = Retry(on=outer, backoff=[0] * 3, nested="allow") | Retry(on=inner, backoff=[0] * 3)
    with client(name, policy) as http:
        seen = http.get(server.url("404,423,200"))
    assert seen.status == 200
    assert redouble.report(seen.response) is not None
