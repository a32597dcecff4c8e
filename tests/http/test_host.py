"""`http.host` as the key of a keyed layer: each host has a layer of its own."""

from __future__ import annotations

import httpx
import pytest

import redouble.http
import redouble.httpx
from redouble import CircuitBreaker, Keyed, Retry, errors


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
    assert breakers.of("down.example").state == "open"
    assert breakers.of("up.example:8443").state == "closed"
    assert breakers.snapshot()["keys"] == 2


def test_http_host_outside_a_client_policy_raises() -> None:
    with pytest.raises(TypeError, match=r"redouble\.http\.host is for the policy of an HTTP client, and was"):
        redouble.http.host("https://up.example/")
