"""`http.host` as the key of a keyed layer: each host has a layer of its own."""

from __future__ import annotations

from collections.abc import Hashable

import httpx
import pytest

import redouble.http
import redouble.httpx
from redouble import CircuitBreaker, Keyed, Retry, errors
from tests.support.http.clients import CLIENTS, client


def test_each_host_has_a_breaker_of_its_own() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "down.example":
            raise httpx.ConnectError("refused")
        return httpx.Response(200)

    breakers = Keyed(redouble.http.host, lambda: CircuitBreaker(failures=1))
    transport = redouble.httpx.Transport(Retry(attempts=1) | breakers, wrapped=httpx.MockTransport(answer))
    with httpx.Client(transport=transport) as client:
        for error in (httpx.ConnectError, errors.CircuitOpen):
            with pytest.raises(error):
                client.get("https://down.example/")
        assert client.get("https://up.example:8443/").status_code == 200
    assert breakers.of("https://down.example:443").state == "open"
    assert breakers.of("https://up.example:8443").state == "closed"
    assert breakers.snapshot()["keys"] == 2


ORIGINS = {
    "http://a.test/x?y": "http://a.test:80",
    "http://a.test:80/": "http://a.test:80",
    "http://a.test:8080": "http://a.test:8080",
    "http://a.test:443/": "http://a.test:443",
    "https://a.test/": "https://a.test:443",
    "https://a.test:443/": "https://a.test:443",
    "https://a.test:80/": "https://a.test:80",
    "HTTPS://A.Test/": "https://a.test:443",
    "http://user:secret@a.test/": "http://a.test:80",
    "http://[::1]/": "http://[::1]:80",
    "http://[::1]:8080/": "http://[::1]:8080",
    "http://b\u00fccher.test/": "http://xn--bcher-kva.test:80",
}


@pytest.mark.parametrize("name", CLIENTS)
def test_the_host_is_the_origin_and_the_same_in_every_client(name: str) -> None:
    """Scheme, host and effective port: nothing else of a URL, and no credentials."""
    found: list[Hashable] = []

    def key(call: object) -> Hashable:
        found.append(redouble.http.host(call))
        return found[-1]

    closed = CircuitBreaker()
    closed.isolate()
    with client(name, Keyed(key, lambda: closed)) as http:
        if name == "requests":
            http.raw.mount("https://", http.raw.get_adapter("http://a.test/"))
        for url in ORIGINS:
            assert isinstance(http.get(url).error, errors.CircuitOpen)
    assert dict(zip(ORIGINS, found, strict=True)) == ORIGINS


def test_http_and_https_have_budgets_of_their_own() -> None:
    """The fast path credits the same budget as the slow one."""
    budgets = redouble.http.HostBudgets(ratio=1, per_second=0)
    answers = httpx.MockTransport(lambda request: httpx.Response(200))
    with httpx.Client(transport=redouble.httpx.Transport(Retry(budget=budgets), wrapped=answers)) as http:
        for url in ("http://a.test/", "http://a.test:80/", "https://a.test/"):
            assert http.get(url).status_code == 200
            with redouble.deadline(9):
                assert http.get(url).status_code == 200
    origins = ("http://a.test:80", "https://a.test:443")
    assert [budgets.of(origin).snapshot()["credits"] for origin in origins] == [4, 2]


def test_http_host_outside_a_client_policy_raises() -> None:
    with pytest.raises(TypeError, match=r"redouble\.http\.host is for the policy of an HTTP client, and was"):
        redouble.http.host("https://up.example/")
