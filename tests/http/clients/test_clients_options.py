"""The options of one request, in the extensions of httpx and httpx2."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import redouble
from redouble import CircuitBreaker, Retry, Timeout
from redouble.http._plan import MAX_VARIANTS
from redouble.types import Event
from tests.support.fakes import Ledger, Virtual
from tests.support.http.clients import HTTPX, client
from tests.support.servers import Server, value

POLICY = Retry(attempts=3, backoff=[0, 0], name="mine")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize(
    ("options", "attempts", "reason"),
    [
        ({}, 3, "attempts"),
        (None, 1, "stopped"),
        (False, 1, "stopped"),
        ({"policy": None}, 1, "stopped"),
        ({"policy": None, "idempotent": True}, 1, "stopped"),
        ({"attempts": 1}, 1, "attempts"),
        ({"attempts": 2}, 2, "attempts"),
        ({"attempts": 5, "backoff": [0] * 9}, 5, "attempts"),
        ({"backoff": (0,)}, 2, "backoff_ended"),
        ({"on": ZeroDivisionError}, 1, "stopped"),
        (Retry(attempts=2, backoff=[0]), 2, "attempts"),
        (Timeout(60) | Retry(attempts=2, backoff=[0]), 2, "attempts"),
        (CircuitBreaker(failures=99), 1, "stopped"),
        ({"policy": Retry(attempts=9, backoff=[0]), "attempts": 2}, 2, "attempts"),
        ({"policy": Timeout(60) | Retry(backoff=[0] * 9), "attempts": 2, "idempotent": True}, 2, "attempts"),
    ],
)
@pytest.mark.parametrize("name", HTTPX)
def test_the_options_apply_to_one_request(
    server: Server, name: str, options: Any, attempts: int, reason: str
) -> None:
    """The next request uses the client's policy again."""
    with client(name, POLICY) as http:
        for arguments, tries, why in (({"options": options}, attempts, reason), ({}, 3, "attempts")):
            url = server.url("503")
            seen = http.request("GET", url, **arguments)
            assert (seen.status, len(server.ledger(url))) == (503, tries)
            assert (seen.report().attempts, seen.report().reason) == (tries, why)


@pytest.mark.parametrize("options", [{}, None, {"attempts": 1}, {"idempotent": False}, Retry(attempts=2)])
@pytest.mark.parametrize("name", HTTPX)
def test_a_successful_request_accepts_every_kind_of_options(server: Server, name: str, options: Any) -> None:
    with client(name, POLICY) as http:
        seen = http.get(server.url("200"), options=options)
        assert (seen.status, seen.report().attempts, seen.report().reason) == (200, 1, None)


@pytest.mark.parametrize("name", HTTPX)
def test_without_retries_the_error_is_the_clients_own_without_notes(server: Server, name: str) -> None:
    with client(name, POLICY) as http, client(name, bare=True) as bare:
        seen = http.get(server.url("rst~late"), options=None)
        expected = bare.get(server.url("rst~late"))
        assert seen.error is not None
        assert (type(seen.error), str(seen.error)) == (type(expected.error), str(expected.error))
        assert seen.notes == []


@pytest.mark.parametrize("name", HTTPX)
def test_a_request_may_have_its_own_name_labels_and_hooks(server: Server, name: str) -> None:
    events = list[Event]()
    options: dict[str, Any] = {"name": "special", "labels": {"who": "me"}, "on_retry": events.append}
    with client(name, POLICY) as http:
        seen = http.get(server.url("503,200"), options=options)
        assert (seen.report().name, seen.report().labels) == ("special", {"who": "me"})
        assert http.get(server.url("503,200")).report().name == "mine"
    assert [(event.name, event.labels) for event in events] == [("special", {"who": "me"})]


@pytest.mark.parametrize("name", HTTPX)
def test_missing_options_are_those_of_the_client(server: Server, name: str) -> None:
    """Including its budget and its clock."""
    budget, clock = Ledger(), Virtual()
    policy = Retry(attempts=3, backoff=[7, 7], budget=budget, clock=clock)
    with client(name, policy) as http:
        assert http.get(server.url("503,200"), options={"attempts": 2}).outcome == 200
    assert clock.waits == [7]
    assert len(budget.grants) == 1


@pytest.mark.parametrize("name", HTTPX)
def test_the_other_layers_are_those_of_the_client(server: Server, name: str) -> None:
    """Options of the retries do not create another breaker."""
    breaker = CircuitBreaker(failures=3)
    with client(name, POLICY | breaker) as http:
        for n in (1, 2):
            assert http.get(server.url("503"), options={"attempts": n}).outcome == 503
        assert http.get(server.url("200"), options={"attempts": 1}).outcome == "CircuitOpen"
        assert http.get(server.url("200"), options=None).outcome == 200


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        (
            True,
            TypeError,
            r"extensions\['redouble'\]=True: write a policy, None for no retries",
        ),
        ("none", TypeError, r"extensions\['redouble'\]='none': write a policy"),
        ({"retries": 3}, TypeError, r"no option 'retries': write one of .*attempts"),
        ({"idempotent": "yes"}, TypeError, "idempotent='yes'"),
        ({"idempotency_key": ""}, TypeError, "idempotency_key=''"),
        ({"policy": "none"}, TypeError, "policy='none'"),
        ({"attempts": 0}, ValueError, "attempts"),
        ({"policy": None, "attempts": 2}, TypeError, "attempts: the policy has no Retry"),
        ({"attempts": None, "give_up_after": None}, (TypeError, ValueError), "attempts"),
    ],
)
@pytest.mark.parametrize("name", HTTPX)
def test_a_wrong_option_raises_before_anything_is_sent(
    server: Server, name: str, options: Any, error: Any, says: str
) -> None:
    url = server.url("200")
    with client(name, POLICY) as http:
        for _ in range(2):
            seen = http.get(url, options=options)
            assert isinstance(seen.error, error)
            assert re.search(says, str(seen.error))
        assert server.ledger(url) == []
        assert http.get(url).outcome == 200


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("name", HTTPX)
def test_the_options_apply_after_a_redirect(server: Server, name: str, status: int) -> None:
    there = server.url("503")
    here = server.url(f"503,{status}~loc={value(there)}")
    with client(name, POLICY) as http:
        seen = http.get(here, options={"attempts": 2}, follow=True)
        assert (seen.status, seen.report().attempts, seen.report().reason) == (503, 2, "attempts")
    assert [len(server.ledger(url)) for url in (here, there)] == [2, 1]


@pytest.mark.parametrize("name", HTTPX)
def test_the_key_of_a_request_is_kept_after_a_redirect(server: Server, name: str) -> None:
    there = server.url("503,200")
    here = server.url(f"503,308~loc={value(there)}")
    with client(name, POLICY) as http:
        seen = http.request("POST", here, options={"idempotency_key": "mine"}, body=b"x", follow=True)
        assert seen.outcome == 200
    found = [
        (entry.headers["idempotency-key"], entry.body)
        for url in (here, there)
        for entry in server.ledger(url)
    ]
    assert found == [("mine", b"x")] * 4


@pytest.mark.parametrize("name", HTTPX)
def test_the_extensions_of_the_caller_are_not_changed(server: Server, name: str) -> None:
    """Not even if timeouts are shortened for an attempt."""
    with client(name, Retry(attempts=3, backoff=[0, 0], timeout=30)) as http:
        request = http.raw.build_request(
            "GET", server.url("503,200"), extensions={"redouble": {"attempts": 2}}
        )
        before = {word: dict(what) for word, what in request.extensions.items()}
        response = http.run(http.raw.send, request)
        assert response.status_code == 200
        assert request.extensions == before
        assert response.request is request
        assert (redouble.report(response) or pytest.fail("no report")).attempts == 2


@pytest.mark.parametrize("name", HTTPX)
def test_more_different_options_than_cached_plans_work(server: Server, name: str) -> None:
    """Each request uses its own plan."""
    url = server.url("200")
    with client(name, POLICY) as http:
        for n in range(1, MAX_VARIANTS + 51):
            seen = http.get(url, options={"attempts": n, "name": f"number {n}"})
            assert seen.outcome == 200
        assert http.get(server.url("503"), options={"attempts": 2}).report().attempts == 2


@pytest.mark.parametrize("name", HTTPX)
def test_a_request_may_have_its_own_timeout(server: Server, name: str) -> None:
    with client(name, POLICY) as http:
        seen = http.get(server.url("stall"), options={"timeout": 0.05})
        assert seen.report().reason == "timeout"
        assert "TimeoutException" in [kind.__name__ for kind in type(seen.error).__mro__]
