"""`Exchange`: a request is resent only if it is idempotent and its body resendable, whatever the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import product
from typing import Any

import httpx
import pytest

from redouble import (
    Bulkhead,
    CircuitBreaker,
    Keyed,
    Layer,
    Retry,
    errors,
    report,
)
from redouble.http import Idempotency, host
from redouble.http._request_body import Rewind, classify_body, nothing_to_rewind
from tests.support.fakes import Ledger, Virtual
from tests.support.http.offline_clients import Client, retrying

POLICY = retrying(on=Exception, attempts=3)
UNSENT, LOST = httpx.ConnectError, httpx.ReadError


# ------------------------------------------------------------------ the decision to resend


def begun() -> Iterator[bytes]:
    pieces = pieces_of()
    next(pieces)
    return pieces


def pieces_of() -> Iterator[bytes]:
    yield from (b"a", b"b")


def read(file: BytesIO) -> BytesIO:
    file.read()
    return file


BODIES: dict[str, Callable[[], Rewind]] = {
    "again": lambda: nothing_to_rewind,
    "a file": lambda: classify_body(BytesIO(b"abc")),
    "not begun": lambda: classify_body(pieces_of()),
    "once": lambda: classify_body(begun()),
}
REQUESTS: dict[str, dict[str, Any]] = {
    "GET": {"method": "GET"},
    "get": {"method": "get"},
    "QUERY": {"method": "QUERY"},
    "POST": {"method": "POST"},
    "TRACE": {"method": "TRACE"},
    "POST with a key": {"method": "POST", "headers": {"Idempotency-Key": "k"}},
    "POST, idempotent": {"method": "POST", "idempotent": True},
    "GET, not idempotent": {"method": "GET", "idempotent": False},
    "GET with a key, not idempotent": {
        "method": "GET",
        "headers": {"Idempotency-Key": "k"},
        "idempotent": False,
    },
}
NOT_IDEMPOTENT = {"POST", "TRACE", "GET, not idempotent", "GET with a key, not idempotent"}


def step_of(failure: type[Exception] | int) -> Exception | int:
    return failure if isinstance(failure, int) else failure("lost")


@pytest.mark.parametrize(("kind", "body"), list(product(REQUESTS, BODIES)))
@pytest.mark.parametrize("failure", [UNSENT, LOST, 503])
def test_only_idempotent_requests_with_a_replayable_body_are_resent(
    colour: str, kind: str, body: str, failure: type[Exception] | int
) -> None:
    """A request that was not sent may be resent in any case."""
    client = Client(POLICY, step_of(failure), 200, colour=colour)
    try:
        seen: object = client.request(source=BODIES[body](), **REQUESTS[kind])
    except httpx.TransportError as error:
        seen = error
    call_report = report(seen)
    assert call_report is not None
    if failure is UNSENT:
        expected: object = (2, None)
    elif kind in NOT_IDEMPOTENT:
        expected = (1, "stopped")
    elif body == "once":
        expected = (1, "not_replayable")
    else:
        expected = (2, None)
    assert (len(client.sent), call_report.reason) == expected
    assert call_report.attempts == len(client.sent)


@pytest.mark.parametrize("failure", [LOST, 503])
def test_the_reason_why_a_body_was_not_resent_is_noted(colour: str, failure: type[Exception] | int) -> None:
    """The response is returned, or the error raised with a note."""
    step = step_of(failure)
    client = Client(POLICY, step, colour=colour)
    if step == 503:
        assert client.request("PUT", classify_body(begun())).status == 503
        return
    with pytest.raises(httpx.ReadError) as caught:
        client.request("PUT", classify_body(begun()))
    assert caught.value is step
    assert any("its body cannot be sent again" in note for note in caught.value.__notes__)


def test_a_file_is_rewound_to_its_first_position(colour: str) -> None:
    file = BytesIO(b"abcdef")
    file.seek(2)
    source = classify_body(file)
    read(file)
    Client(POLICY, 503, 200, colour=colour).request("PUT", source)
    assert file.tell() == 2


def test_a_file_that_is_not_resent_is_not_rewound(colour: str) -> None:
    file = BytesIO(b"abcdef")
    source = classify_body(file)
    read(file)
    Client(POLICY, 503, colour=colour).request("POST", source)
    assert file.tell() == 6


def test_a_vetoed_retry_spends_no_budget_and_no_delay(colour: str) -> None:
    clock, ledger = Virtual(), Ledger()
    policy = retrying(on=Exception, backoff=[5] * 9, budget=ledger, clock=clock)
    assert Client(policy, 503, colour=colour).request("POST").status == 503
    assert clock.waits == []
    assert not [line for line in ledger.lines if line.startswith("spend")]


@pytest.mark.parametrize("idempotency", [None, "auto"])
def test_a_generated_key_permits_resending_any_method(colour: str, idempotency: Any) -> None:
    client = Client(POLICY, 503, 200, colour=colour, idempotency=idempotency)
    client.request("POST")
    keys = {request.headers.get("Idempotency-Key") for request in client.sent}
    assert len(client.sent) == (2 if idempotency else 1)
    assert len(keys) == 1
    assert (None in keys) is (idempotency is None)


def test_the_key_of_one_request_is_sent_in_the_configured_header(colour: str) -> None:
    client = Client(POLICY, 503, 200, colour=colour, idempotency=Idempotency("X-Key"))
    client.request("POST", idempotency_key="mine")
    assert [request.headers for request in client.sent] == [{"X-Key": "mine"}] * 2


# --------------------------------------------------------------------- user-defined layers


class Twice(Layer):
    """A layer that calls twice, without the engine's check."""

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        def twice(exchange: Any) -> Any:
            try:
                fn(exchange)
            except Exception:
                return fn(exchange)
            return fn(exchange)

        return twice

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        async def twice(exchange: Any) -> Any:
            try:
                await fn(exchange)
            except Exception:
                return await fn(exchange)
            return await fn(exchange)

        return twice


@pytest.mark.parametrize("policy", [Twice(), Twice() | retrying(attempts=1), retrying(attempts=1) | Twice()])
@pytest.mark.parametrize(
    ("kind", "body", "failure", "sends"),
    [
        ("GET", "again", 200, 2),
        ("GET", "again", 503, 2),
        ("GET", "once", 503, 1),
        ("POST", "again", 503, 1),
        ("POST", "again", LOST, 1),
        ("POST", "again", UNSENT, 2),
        ("POST", "once", UNSENT, 2),
        ("POST", "again", 200, 1),
        ("GET", "once", 200, 1),
        ("POST, idempotent", "again", 503, 2),
    ],
)
def test_a_layer_that_calls_twice_is_guarded_too(
    colour: str, policy: Layer, kind: str, body: str, failure: type[Exception] | int, sends: int
) -> None:
    """A second call that may not be sent raises the error of the first one."""
    step = step_of(failure)
    client = Client(policy, step, colour=colour)
    try:
        seen: Any = client.request(source=BODIES[body](), **REQUESTS[kind]).status
    except httpx.TransportError as error:
        seen = error
    except errors.RedoubleError as error:  # the first call had no error, but a response
        seen = str(error).partition(":")[0]
    assert len(client.sent) == sends
    assert seen == ("not sent again" if (failure, sends) == (200, 1) else step)


def test_a_permission_to_resend_is_for_one_attempt(colour: str) -> None:
    """A layer inside the policy that calls twice cannot use it twice."""
    client = Client(retrying(on=Exception, attempts=2) | Twice(), UNSENT("x"), LOST("x"), colour=colour)
    with pytest.raises(httpx.ReadError):
        client.request("POST")
    assert len(client.sent) == 2


class Unmarkable(httpx.ReadError):
    """An error that cannot be stamped."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        raise LookupError("no")


@pytest.mark.parametrize(("method", "sends", "waits"), [("GET", 3, [1, 1]), ("POST", 1, [])])
def test_a_retry_for_each_host_is_guarded_too(
    colour: str, method: str, sends: int, waits: list[float]
) -> None:
    clock = Virtual()
    policy = Keyed(host, lambda: retrying(on=Exception, attempts=3, backoff=[1] * 9, clock=clock))
    client = Client(policy, 503, colour=colour)
    assert client.request(method).status == 503
    assert (len(client.sent), clock.waits) == (sends, waits)


def test_an_error_that_cannot_be_stamped_is_guarded(colour: str) -> None:
    """The guard is not found on the error, but in the run."""
    error = Unmarkable("lost")
    client = Client(retrying(on=Exception, attempts=3), error, colour=colour)
    with pytest.raises(Unmarkable):
        client.request("POST")
    assert len(client.sent) == 1
    client = Client(retrying(on=Exception, attempts=3), error, colour=colour)
    with pytest.raises(Unmarkable):
        client.request("GET")
    assert len(client.sent) == 3


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_rejection_by_a_breaker_is_not_a_sent_request(colour: str, method: str) -> None:
    """The request that follows the rejected attempts is the first one sent, so a POST is allowed."""
    breaker = CircuitBreaker(failures=1, cooldown=10, clock=(clock := Virtual()))
    with pytest.raises(httpx.ConnectError):
        Client(breaker, UNSENT("x"), colour=colour).request(method)
    policy = Retry(attempts=4, backoff=[6] * 9, clock=clock) | breaker | Bulkhead(1)
    client = Client(policy, 200, colour=colour)
    assert client.request(method).status == 200
    assert len(client.sent) == 1
