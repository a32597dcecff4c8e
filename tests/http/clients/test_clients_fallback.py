"""A `Fallback` of a client's policy passes the request to its functions; a result is never shared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from redouble import Fallback, Layer, Retry
from redouble.http._plan import http_plan
from tests.support.http.clients import CLIENTS, client
from tests.support.servers import Server

EVERY_CLIENT = pytest.mark.parametrize("name", CLIENTS)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@EVERY_CLIENT
def test_a_function_gets_the_request(server: Server, name: str) -> None:
    seen: list[tuple[Exception, Any]] = []

    def instead(error: Exception, request: Any) -> Any:
        seen.append((error, request))
        raise error

    url = server.url("rst")
    with client(name, Fallback(instead) | Retry(attempts=1)) as http:
        error = http.get(url).error
    ((received, request),) = seen
    assert received is error
    assert str(request.url) == url
    assert request.method == "GET"


@EVERY_CLIENT
def test_of_a_chain_only_the_functions_that_need_it_get_the_request(server: Server, name: str) -> None:
    seen: list[object] = []

    def first(error: Exception, request: Any) -> Any:
        seen.append(str(request.url))
        raise error

    def second(error: Exception) -> Any:
        seen.append(type(error))
        raise error

    url = server.url("rst")
    with client(name, Fallback(first, second) | Retry(attempts=1)) as http:
        error = http.get(url).error
    assert seen == [url, type(error)]


def two(error: Exception, one: object, two: object) -> None:
    """Take an argument too many."""


def send(client_call: object) -> None:
    """Send nothing."""


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            Fallback(two) | Retry(),
            r"^Fallback\(two\) of a client: write a function of \(error, request",
        ),
        (Fallback.stale(60) | Retry(), r"Fallback.stale\(60, most=1000\), and only one caller can read"),
    ],
    ids=repr,
)
def test_a_fallback_that_cannot_work_is_refused(policy: Layer, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        http_plan(policy, "client", send, aio=False)


def test_a_fallback_without_arguments_is_used_as_it_is() -> None:
    fallback = Fallback(lambda error: None, value=3)
    assert fallback.of_request() is fallback
