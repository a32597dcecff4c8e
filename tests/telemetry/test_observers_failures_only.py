"""An observer of failures only costs a successful call nothing, and receives the failures of every path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry, RetryBudget, Worker, observe
from redouble._runtime.ambient import ambient
from redouble.types import Event, What
from tests.support.call_shapes import EVERY_SHAPE
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server
from tests.support.telemetry.flaky_calls import Flaky, flaky_call

pytestmark = pytest.mark.usefixtures("no_observers_left")

FAILURES: tuple[What, ...] = ("failure", "retry", "give_up")


OPTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": dict,
    "budget": lambda: {"budget": RetryBudget(per_second=100)},
    "request": lambda: {"budget": RetryBudget(per_second=100, credit="request")},
    "hook": lambda: {"on_success": print_nothing},
}


def print_nothing(event: Event) -> None: ...


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_failures_are_received_in_every_shape(colour: str, shape: str, options: str) -> None:
    received: list[str] = []
    policy = Retry(on=Boom, attempts=2, backoff=[0], name="x", **OPTIONS[options]())
    with observe(lambda event: received.append(f"{event.what} {event.name} {event.attempt}"), only=FAILURES):
        assert not ambient.active
        assert flaky_call(colour, shape, policy, 0) == 7
        assert received == []
        assert flaky_call(colour, shape, policy, 1) == 7
        assert received == ["failure x 1", "retry x 1"]
        assert isinstance(flaky_call(colour, shape, policy, 2), Boom)
    assert received[2:] == ["failure x 1", "retry x 1", "failure x 2", "give_up x 2"]


ALL = ("before_attempt", "failure", "retry", "before_attempt", "success")
EVERY_ONLY = pytest.mark.parametrize("only", [FAILURES, ()])


@EVERY_ONLY
@pytest.mark.parametrize("shape", ["decorator", "call", "run"])
def test_events_are_received_with_workers(shape: str, only: tuple[What, ...]) -> None:
    received: list[str] = []
    policy = Retry(on=Boom, attempts=2, backoff=[0], attempt_timeout=60, worker=Worker())
    with observe(lambda event: received.append(event.what), only=only):
        assert flaky_call("sync", shape, policy, 1) == 7
        assert isinstance(flaky_call("sync", shape, policy, 2), Boom)
    expected = [*ALL, "before_attempt", "failure", "retry", "before_attempt", "failure", "give_up"]
    assert received == [what for what in expected if not only or what in only]


@EVERY_ONLY
@pytest.mark.parametrize("colour", ASYNC)
def test_events_are_received_with_limits_and_from_blocking_code(colour: str, only: tuple[What, ...]) -> None:
    received: list[str] = []
    policy = Retry(on=Boom, attempts=2, backoff=[0], attempt_timeout=60)
    with observe(lambda event: received.append(event.what), only=only):
        assert flaky_call(colour, "decorator", policy, 1) == 7
        flaky = Flaky(1)
        assert in_colour(colour, int, lambda: policy.acall(flaky.work)) == 7
    assert received == [what for what in ALL * 2 if not only or what in only]


@pytest.mark.parametrize("name", CLIENTS)
def test_failures_are_received_from_http_clients(name: str) -> None:
    received: list[str] = []
    with (
        Server() as server,
        client(name, Retry(attempts=2, backoff=[0] * 3, name="http")) as http,
        observe(lambda event: received.append(event.what), only=FAILURES),
    ):
        assert http.request("GET", server.url("200")).status == 200
        assert received == []
        assert http.request("GET", server.url("503,200")).status == 200
        assert http.request("GET", server.url("503,503")).status == 503
    assert received == ["failure", "retry", "failure", "retry", "failure", "give_up"]
