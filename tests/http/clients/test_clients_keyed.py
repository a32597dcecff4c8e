"""A policy for each host, by `Keyed`: it has the effect that it has as the policy of a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redouble import (
    Bulkhead,
    CircuitBreaker,
    Hedge,
    Keyed,
    Layer,
    Retry,
    RetryBudget,
    Timeout,
    errors,
    presets,
)
from redouble.http import HostBudgets, host, rule
from redouble.testing import virtual_time
from tests.support.http.clients import CLIENTS, HTTPX, client
from tests.support.servers import Server

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def ended(server: Server, name: str, policy: Layer, script: str, **options: Any) -> tuple[Any, ...]:
    """Return the result of a call, the number of its requests and its report."""
    url = server.url(script)
    with client(name, policy) as http:
        seen = http.get(url, **options)
    report = seen.report()
    errors = [record.error_type for record in report.history]
    return seen.outcome, seen.content, len(server.ledger(url)), report.reason, report.name, errors


POLICIES: dict[str, tuple[Retry, str]] = {
    "statuses": (Retry(on=rule(statuses={500}), backoff=[0] * 3), "500*2,200"),
    "fewer statuses": (Retry(on=rule(statuses={500}), backoff=[0] * 3), "503,200"),
    "until": (
        Retry(until=lambda response: b"b" in response.content, backoff=[0] * 3),
        "200~body=a,200~body=b",
    ),
    "body": (Retry(backoff=[0] * 3), "200~cut=0,200"),
    "whole body": (Retry(backoff=[0] * 3), "200~size=500~cut=400,200"),
    "attempts": (Retry(attempts=2, backoff=[0], name="mine"), "503"),
    "budget": (Retry(budget=RetryBudget(0, 0), backoff=[0] * 3), "503"),
}


@EVERY_CLIENT
@pytest.mark.parametrize("case", POLICIES)
@pytest.mark.parametrize("of", ["key", "nothing"])
def test_a_keyed_policy_has_the_effect_of_the_policy(server: Server, name: str, case: str, of: str) -> None:
    policy, script = POLICIES[case]
    if name == "aiohttp" and case == "until":
        policy = Retry(until=lambda response: response.headers["X-Attempt"] == "2", backoff=[0] * 3)
    keyed = Keyed(host, lambda key: policy) if of == "key" else Keyed(host, lambda: policy)
    expected = ended(server, name, policy, script)
    assert ended(server, name, keyed, script) == expected
    inner = CircuitBreaker(failures=99)
    assert ended(server, name, keyed | inner, script) == expected


@pytest.mark.quiet
@EVERY_CLIENT
@pytest.mark.parametrize(
    "policy",
    [
        Retry(attempts=1, timeout=0.3),
        Retry(attempts=1, attempt_timeout=0.3),
        Timeout(0.3),
        Timeout(0.3) | Retry(attempts=1),
    ],
    ids=["timeout", "attempt_timeout", "Timeout", "Timeout | Retry"],
)
def test_the_time_limits_of_a_keyed_policy_hold(server: Server, name: str, policy: Layer) -> None:
    """In blocking clients too, which need no worker."""
    with client(name, Keyed(host, lambda: policy)) as http:
        seen = http.get(server.url("stall"), timeout=20)
    assert isinstance(seen.error, Exception)
    assert seen.report().elapsed < 2


@pytest.mark.parametrize("name", HTTPX)
def test_options_of_a_request_change_the_keyed_policy(server: Server, name: str) -> None:
    keyed = Keyed(host, lambda: Retry(attempts=3, backoff=[0] * 3))
    with client(name, keyed) as http:
        for options, requests in (({"attempts": 2}, 2), (None, 1), (keyed, 3), ({"policy": keyed}, 3)):
            url = server.url("503")
            assert http.get(url, options=options).status == 503
            assert len(server.ledger(url)) == requests


@EVERY_CLIENT
def test_keyed_layers_can_be_nested_and_combined(server: Server, name: str) -> None:
    limits = Keyed(host, lambda: Bulkhead(1))
    breakers = Keyed(host, lambda: CircuitBreaker(failures=3))
    nested = Keyed(
        host, lambda: Keyed(host, lambda: Retry(attempts=2, backoff=[0], give_up_after=5) | breakers)
    )
    with client(name, limits | nested) as http:
        assert http.get(server.url("503,200")).status == 200
        seen = [http.get(server.url("rst")).outcome for _ in range(3)]
    assert seen[-1] == "CircuitOpen"
    (key,) = breakers._table.entries
    assert breakers.of(key).state == "open"
    assert limits.of(key).snapshot()["in_use"] == 0


@EVERY_CLIENT
def test_clients_share_the_layers_of_a_keyed_layer(server: Server, name: str) -> None:
    breakers = Keyed(host, lambda: CircuitBreaker(failures=1))
    with client(name, Retry(attempts=1) | breakers) as one, client("requests", breakers) as other:
        assert one.get(server.url("rst")).error is not None
        assert isinstance(other.get(server.url("200")).error, errors.CircuitOpen)


@EVERY_CLIENT
@pytest.mark.parametrize("of", ["key", "nothing"])
def test_a_hedge_for_each_host_is_refused(server: Server, name: str, of: str) -> None:
    """At construction, or at the first call of a key if the layer depends on it."""
    if of == "nothing":
        with pytest.raises(TypeError, match="hedge the call"), client(name, Keyed(host, lambda: Hedge(1))):
            pass
    else:
        with client(name, Keyed(host, lambda key: Hedge(1))) as http:
            assert isinstance(http.get(server.url("200")).error, TypeError)


def test_a_key_function_that_does_not_accept_a_call_is_refused() -> None:
    with pytest.raises(TypeError, match="does not accept"), client("httpx", Keyed(lambda: 1, Retry)):
        pass


@pytest.mark.parametrize("name", [name for name in CLIENTS if "trio" not in name])
def test_the_entry_of_a_key_is_used_until_the_call_ends(server: Server, name: str) -> None:
    keyed = Keyed(host, lambda: Retry(attempts=2, backoff=[25]), idle=20)
    with virtual_time(), client(name, keyed) as http:
        assert http.get(server.url("503,200")).status == 200
        assert http.get(server.url("200")).status == 200
    assert keyed.snapshot() == {"keys": 1, "forgotten": 0}


# ---------------------------------------------------------------------------- budgets


@EVERY_CLIENT
@pytest.mark.parametrize(
    "make",
    [
        lambda: presets.http(
            attempts=9, backoff=[0] * 9, budget=HostBudgets(ratio=0, per_second=0.2, window=10)
        ),
        lambda: Keyed(
            host,
            lambda: Retry(
                attempts=9, backoff=[0] * 9, budget=RetryBudget(ratio=0, per_second=0.2, window=10)
            ),
        ),
    ],
    ids=["HostBudgets", "Keyed"],
)
def test_each_host_has_a_budget_with_numbers_of_the_user(name: str, make: Callable[[], Layer]) -> None:
    with Server() as one, Server() as other, client(name, make()) as http:
        for server in (one, other):
            seen = http.get(server.url("503"))
            assert (seen.report().reason, seen.report().attempts) == ("budget", 3)
