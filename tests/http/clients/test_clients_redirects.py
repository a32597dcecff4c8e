"""A call that is redirected is one call: its retries and limits count for all of its requests."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from redouble import Reason, Retry
from tests.support.http.clients import CLIENTS, SYNC_CLIENTS, client
from tests.support.servers import Server
from tests.support.servers.script import value

NONE = [0] * 99
EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)
POLICIES = {
    "fast path": Retry(attempts=3, backoff=NONE),
    "with a limit": Retry(attempts=3, backoff=NONE, timeout=30),
}
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@EVERY_CLIENT
@EVERY_POLICY
def test_the_attempts_are_counted_over_all_hops(server: Server, name: str, policy: Retry) -> None:
    """Two retries, wherever they are needed."""
    last = server.url("503*9")
    middle = server.url(f"503,302~loc={value(last)}")
    first = server.url(f"302~loc={value(middle)}")
    with client(name, policy) as http:
        seen = http.get(first, follow=True)
    assert (seen.status, seen.report().reason, seen.report().attempts) == (503, Reason.attempts, 3)
    assert [len(server.ledger(url)) for url in (first, middle, last)] == [1, 2, 2]


@EVERY_CLIENT
@EVERY_POLICY
def test_a_redirected_call_succeeds(server: Server, name: str, policy: Retry) -> None:
    last = server.url("503,200")
    first = server.url(f"302~loc={value(last)}")
    with client(name, policy) as http:
        for number in (1, 2):  # nothing of the first call is left for the second
            seen = http.get(first, follow=True)
            assert (seen.status, seen.report().attempts) == (200, 3 - number)


@pytest.mark.quiet
@EVERY_CLIENT
def test_the_limit_holds_over_all_hops(server: Server, name: str) -> None:
    last = server.url("stall")
    middle = server.url(f"503,302~loc={value(last)}")
    first = server.url(f"503,302~loc={value(middle)}")
    with client(name, Retry(attempts=9, backoff=[0.2] * 9, timeout=0.6)) as http:
        seen = http.get(first, follow=True)
    assert isinstance(seen.error, TimeoutError)
    assert seen.report().limit == "total"


@EVERY_CLIENT
@EVERY_POLICY
def test_a_redirect_that_the_caller_follows_is_another_call(server: Server, name: str, policy: Retry) -> None:
    last = server.url("503,503,200")
    first = server.url(f"503,302~loc={value(last)}")
    with client(name, policy) as http:
        assert http.get(first).report().attempts == 2
        assert http.get(last).report().attempts == 3


@pytest.mark.parametrize("name", ["httpx", "httpx2", "requests"])
@EVERY_POLICY
def test_the_next_request_of_a_response_is_another_call(server: Server, name: str, policy: Retry) -> None:
    last = server.url("503,503,200")
    first = server.url(f"503,302~loc={value(last)}")
    with client(name, policy) as http:
        response = http.get(first).response
        following = response.next if name == "requests" else response.next_request
        assert http.raw.send(following).status_code == 200
        assert pickle.loads(pickle.dumps(response)).status_code == 302


@pytest.mark.parametrize("name", SYNC_CLIENTS)
@EVERY_POLICY
def test_a_request_that_is_sent_again_is_another_call(server: Server, name: str, policy: Retry) -> None:
    url = server.url("503,302~loc=/,503,503,200")
    with client(name, policy) as http:
        request: Any = http.get(url).response.request
        assert http.raw.send(request).status_code == 200


@pytest.mark.parametrize("name", ["httpx", "httpx2"])
def test_the_options_of_a_request_hold_for_all_hops(server: Server, name: str) -> None:
    last = server.url("503*9")
    middle = server.url(f"302~loc={value(last)}")
    first = server.url(f"302~loc={value(middle)}")
    with client(name, Retry(attempts=9, backoff=NONE)) as http:
        assert http.get(first, follow=True, options={"attempts": 2}).report().attempts == 2
