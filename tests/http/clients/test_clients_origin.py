"""What a client attaches to a response belongs to the attempt that got it; runs start with their calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from requests.adapters import BaseAdapter

import redouble.requests
from redouble import Fallback, Retry, report
from redouble.testing import virtual_time
from tests.support.http.clients import CLIENTS, client
from tests.support.http.exchanges import CONNECTION_LOST
from tests.support.http.offline_clients import Client, retrying
from tests.support.servers import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("name", CLIENTS)
def test_a_response_of_another_call_is_returned_untouched(server: Server, name: str) -> None:
    """A fallback returns the last good response, whose body was read: it is not read a second time."""
    kept: list[Any] = []
    policy = Fallback(lambda error: kept[0]) | Retry(attempts=2, backoff=[0])
    with client(name, policy) as http:
        first = http.get(server.url("200~size=9"))
        kept.append(first.response)
        before = report(first.response)
        second = http.request("GET", server.url("rst"))
        assert second.response is first.response
        assert report(second.response) == before  # of the call that got it
        assert http.get(server.url("200")).status == 200  # its connection was not disturbed


@pytest.mark.parametrize("name", CLIENTS)
def test_a_response_of_another_origin_does_not_continue_a_broken_body(server: Server, name: str) -> None:
    """The error of the body is raised, and the other response stays as it is."""
    kept: list[Any] = []
    policy = Fallback(lambda error: kept[0]) | Retry(attempts=1)
    with client(name, policy) as http:
        good = http.get(server.url("200~size=9"))
        kept.append(good.response)
        seen = http.get(server.url("200~size=9~cut=3"))
    if seen.error is None:  # requests reads the body in the attempt, so that the fallback is asked in time
        assert seen.response is good.response
    assert report(good.response) is not None


@pytest.mark.parametrize(("stop", "sends"), [("stop", 2), ("allow", 4)])
def test_an_outer_policy_recognises_the_run_of_a_client_whose_rule_takes_time(stop: Any, sends: int) -> None:
    """The run that continues after a broken body starts with its call, and not before the outer attempt."""
    with virtual_time() as clock:

        def slow_rule(error: Exception) -> bool:
            clock.advance(0.02)
            return isinstance(error, CONNECTION_LOST)

        http = Client(retrying(on=slow_rule, attempts=2), 200)
        broken = [CONNECTION_LOST("cut 1"), CONNECTION_LOST("cut 2")]
        with pytest.raises(CONNECTION_LOST):
            retrying(on=CONNECTION_LOST, attempts=2, nested=stop).call(http.request, broken=broken)
    assert len(http.sent) == sends


def test_a_streamed_body_without_a_first_byte_in_time_is_a_timeout_of_requests() -> None:
    """For adapters whose sockets cannot be limited: their pieces are timed."""

    class Slow(BaseAdapter):
        def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
            response = requests.Response()
            response.status_code, response.request = 200, request
            response.raw = SlowBody()
            return response

        def close(self) -> None: ...

    with virtual_time() as clock, requests.Session() as session:

        class SlowBody:
            def stream(self, size: int, *, decode_content: bool) -> Iterator[bytes]:
                for _ in range(9):
                    clock.advance(3)
                    yield b""

            def close(self) -> None: ...

        policy = Retry(attempts=1, timeout=5)
        session.mount("http://", redouble.requests.Adapter(policy, wrapped=Slow()))
        response = session.get("http://there/", stream=True)
        with pytest.raises(requests.Timeout, match="cut after 5 s: the call's timeout"):
            next(response.iter_content(9))
