"""Errors of ours that a client raises are errors of its library too, for code that catches only those."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests

from redouble import (
    SYSTEM,
    AdaptiveConcurrency,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Keyed,
    Layer,
    RateLimit,
    Retry,
    RetryBudget,
    errors,
    report,
    transient,
)
from redouble.http import host
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)
BASES: dict[str, Any] = {
    "httpx": httpx.HTTPError,
    "httpx2": httpx2.HTTPError,
    "requests": requests.RequestException,
    "aiohttp": aiohttp.ClientError,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


def isolated() -> CircuitBreaker:
    breaker = CircuitBreaker(name="payments")
    breaker.isolate()
    return breaker


def used_up() -> RateLimit:
    limit = RateLimit(1, per=3600, wait=0)
    limit.admit(SYSTEM.now())
    return limit


def full(gate: Any) -> Any:
    gate.admit(0.0)
    return gate


def own_error(error: Exception) -> Any:
    raise OwnRejection("mine") from error


class OwnRejection(errors.Rejected):
    """An error of the user's, derived from one of ours."""


# Made for each test: a test of forks drops the slots of every gate that there is.
RAISED: dict[str, tuple[Callable[[], Layer], type[Exception]]] = {
    "breaker": (isolated, errors.CircuitOpen),
    "bulkhead": (lambda: full(Bulkhead(1, wait=0)), errors.BulkheadFull),
    "adaptive concurrency": (lambda: full(AdaptiveConcurrency(1)), errors.BulkheadFull),
    "rate limit": (used_up, errors.RateLimited),
    "inside": (lambda: Retry(attempts=1) | isolated(), errors.CircuitOpen),
    "keyed": (lambda: Keyed(host, isolated), errors.CircuitOpen),
    "attempts": (lambda: Retry(attempts=2, backoff=[0], wrap=True), errors.AttemptsExhausted),
    "budget": (lambda: Retry(backoff=[0] * 9, budget=RetryBudget(0, 0), wrap=True), errors.BudgetExhausted),
    "stopped": (lambda: Retry(on=LookupError, wrap=True), errors.Stopped),
    "own": (lambda: Fallback(own_error) | Retry(attempts=1), OwnRejection),
}


@EVERY_CLIENT
@pytest.mark.parametrize("case", RAISED)
def test_an_error_of_ours_is_one_of_the_library_too(server: Server, name: str, case: str) -> None:
    make, kind = RAISED[case]
    with client(name, make()) as http:
        error: Any = http.get(server.url("rst~late")).error
    base = BASES[name.partition("-")[0]]
    assert [kind_ for kind_ in (base, kind) if not isinstance(error, kind_)] == []
    assert type(error).__name__ == kind.__name__
    assert str(error)
    assert error.request.method == "GET"
    if kind is errors.CircuitOpen:
        assert "payments is isolated" in str(error)
    if issubclass(kind, errors.RetryError):
        assert error.last is error.__cause__ is not None
        assert error.reason is not None
        assert report(error) is not None
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy)) == (kind, str(error))
    if issubclass(kind, errors.Rejected):
        verdict = transient(error)
        assert verdict is not None
        assert verdict.kind == "throttled"
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert "_conclude" in frames[:-1]  # down to where it was raised


@EVERY_CLIENT
def test_one_instance_raised_in_many_calls_is_one_of_the_library(server: Server, name: str) -> None:
    same = errors.CircuitOpen("the same")

    def raising(error: Exception) -> Any:
        raise same from error

    with client(name, Fallback(raising) | Retry(attempts=1)) as http:
        for _ in range(3):
            error = http.get(server.url("rst")).error
            assert isinstance(error, BASES[name.partition("-")[0]])
            assert isinstance(error, errors.CircuitOpen)


@EVERY_CLIENT
def test_a_rejection_after_a_broken_body_is_one_of_the_library(server: Server, name: str) -> None:
    policy = Retry(
        on=(OSError, errors.CircuitOpen, *BASES.values()), attempts=3, backoff=[0] * 3
    ) | CircuitBreaker(failures=1)
    with client(name, policy) as http:
        error = http.get(server.url("200~cut=0")).error
    assert isinstance(error, BASES[name.partition("-")[0]])
    assert isinstance(error, errors.CircuitOpen)


@EVERY_CLIENT
def test_other_errors_stay_as_they_are(server: Server, name: str) -> None:
    """Those of the user, and those of a wrong configuration."""
    for kind in (LookupError, errors.ConfigError):

        def raising(error: Exception, kind: Any = kind) -> Any:
            raise kind("mine") from error

        with client(name, Fallback(raising)) as http:
            assert type(http.get(server.url("rst")).error) is kind
