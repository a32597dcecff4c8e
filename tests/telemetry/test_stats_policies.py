"""Policies in `redouble.stats()`: their limits and failure counts, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redouble import Retry, RetryBudget, stats
from tests.support.call_shapes import EVERY_SHAPE
from tests.support.fakes import Boom
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server
from tests.support.telemetry.flaky_calls import flaky_call
from tests.support.telemetry.stats import listed


def test_the_entry_of_a_policy() -> None:
    limits: dict[str, Any] = {"attempts": 3, "give_up_after": 20.0, "timeout": 30.0, "work_timeout": 10.0}
    policy = Retry(name="stats policy", budget=RetryBudget(name="stats budget"), attempt_timeout=5, **limits)
    assert listed("stats policy") == {
        "policies": limits
        | {"attempt_timeout": 5.0, "budget": "stats budget", "failures": 0, "retries": 0, "given_up": 0}
    }
    assert policy.name == "stats policy"


@pytest.mark.parametrize("shape", EVERY_SHAPE)
def test_failures_retries_and_give_ups_are_counted(colour: str, shape: str) -> None:
    """By name: policies are values, and those of one name share an entry."""
    name = f"stats {colour} {shape}"
    policy = Retry(on=Boom, attempts=2, backoff=[0], name=name)
    other = Retry(on=Boom, attempts=3, backoff=[0, 0], name=name)
    for times in (0, 1, 2):
        flaky_call(colour, shape, policy, times)
    flaky_call(colour, shape, other, 2)
    [found] = [entry for own, entry in stats()["policies"].items() if own.startswith(name)]
    assert found["attempts"] == 2
    assert (found["failures"], found["retries"], found["given_up"]) == (5, 4, 1)


def test_a_stream_that_breaks_after_its_first_item_is_given_up() -> None:
    policy = Retry(on=Boom, name="stats stream")

    @policy
    def items() -> Iterator[int]:
        yield 1
        raise Boom

    with pytest.raises(Boom):
        list(items())
    found = listed("stats stream")["policies"]
    assert (found["failures"], found["retries"], found["given_up"]) == (1, 0, 1)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_copies_of_an_http_client_are_not_listed(name: str) -> None:
    policy = Retry(attempts=2, backoff=[0], name=f"stats {name}!", timeout=60, attempt_timeout=60)
    with Server() as server, client(name, policy) as http:
        assert http.request("GET", server.url("503,200")).status == 200
        assert http.request("GET", server.url("503,503")).status == 503
        [found] = [entry for own, entry in stats()["policies"].items() if own.startswith(f"stats {name}!")]
    assert (found["attempts"], found["timeout"], found["attempt_timeout"]) == (2, 60, 60)
    assert (found["failures"], found["retries"], found["given_up"]) == (3, 2, 1)
