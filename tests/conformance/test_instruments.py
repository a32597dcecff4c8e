"""Log records and span events where httpware has events: their levels and fields."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from trio.testing import MockClock

import redouble
from redouble import SYSTEM, Bulkhead, Retry, RetryBudget, Timeout, Worker, errors
from redouble._runtime.backend import backend
from redouble._telemetry import observers as _watch
from redouble.instruments import logging as logs
from redouble.instruments import opentelemetry
from redouble.testing import Script, ok, virtual_time
from tests.conformance import circuits
from tests.conformance.flows import ASYNC, EVERY, in_colour
from tests.conformance.http_calls import httpware, once, raised
from tests.conformance.observables import asserts
from tests.support.http.clients import CLIENTS, client
from tests.support.http.errors import by_httpx
from tests.support.servers import Server

every_colour = pytest.mark.parametrize("colour", EVERY)


@pytest.fixture(scope="module")
def server() -> Generator[Server]:
    with Server() as found:
        yield found


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Log everything: httpware has four loggers, here there is one, `redouble`."""
    caplog.set_level(logging.DEBUG, "redouble")
    with logs.instrument():
        yield caplog


def lines(logged: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return the logged messages with their levels, without the errors' own texts."""
    return [(one.levelname, ": ".join(one.getMessage().split(": ")[:2])) for one in logged.records]


@asserts("HW-RT-02", "events")
@asserts("HW-RT-03", "event_attributes", "events")
@asserts("HW-RT-05", "events")
@asserts("HW-RT-21", "event_attributes", "events")
@asserts("HW-RT-22", "events")
@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize(
    ("script", "method", "body", "told"),
    [
        pytest.param("503,200", "GET", False, [], id="HW-RT-02"),
        pytest.param("503", "GET", False, [(3, 503, "attempts")], id="HW-RT-03"),
        pytest.param("503", "POST", False, [], id="HW-RT-05"),
        pytest.param("503", "PUT", True, [(1, 503, "not_replayable")], id="HW-RT-21"),
        pytest.param("503", "POST", True, [], id="HW-RT-22"),
    ],
)
def test_hw_obs_01_a_warning_for_each_call_given_up(
    name: str,
    script: str,
    method: str,
    body: bool,
    told: list[tuple[int, int, str]],
    server: Server,
    logged: pytest.LogCaptureFixture,
) -> None:
    """HW-OBS-01: with attempts, status, error and reason; method and host are there if they are bound."""
    with client(name, httpware()) as http, redouble.bind(method=method, host="users.test"):
        seen = http.request(method, server.url(script), body=once(name) if body else None)
    warnings: list[Any] = [record for record in logged.records if record.levelno >= logging.WARNING]
    assert [(one.attempt, one.http_status, one.reason) for one in warnings] == told
    for one in warnings:
        assert (one.name, one.error) == ("redouble", getattr(raised(seen), "__name__", None))
        assert (one.method, one.host) == (method, "users.test")


@asserts("HW-RT-18", "event_attributes", "events")
@pytest.mark.parametrize("name", CLIENTS)
def test_hw_rt_18_refused_by_the_budget(name: str, server: Server, logged: pytest.LogCaptureFixture) -> None:
    """HW-OBS-01, HW-RT-18: `retry.budget_refused` is a call given up with the reason ``budget`` here."""
    with (
        client(name, httpware(budget=RetryBudget(ratio=0, per_second=0))) as http,
        redouble.bind(method="GET"),
    ):
        http.get(server.url("503"))
    [one] = [vars(record) for record in logged.records if record.levelno >= logging.WARNING]
    assert (one["attempt"], one["http_status"], one["reason"], one["method"]) == (1, 503, "budget", "GET")


@pytest.mark.parametrize("name", CLIENTS)
def test_hw_obs_01_a_retry_that_is_taken_deviates(
    name: str, server: Server, logged: pytest.LogCaptureFixture
) -> None:
    """HW-OBS-01, HW-RT-02: httpware does not log it; here it is logged at the level INFO."""
    with client(name, httpware()) as http:
        http.get(server.url("503,200"))
    told: list[Any] = [record for record in logged.records if record.levelno >= logging.INFO]
    assert [(one.levelname, one.attempt, one.http_status, one.reason) for one in told] == [
        ("INFO", 1, 503, "http_5xx")
    ]


@every_colour
def test_hw_obs_01_a_circuit(colour: str, logged: pytest.LogCaptureFixture) -> None:
    """HW-OBS-01, HW-CB-07: opened, rejected, half open and closed; some messages the breaker logs itself."""
    script = "500 500 later:10 rejected:20 rejected:20 later:20 200 closed"
    circuits.run(colour, script, failures=2, cooldown=30, name="users")
    counted = "further rejections are counted, and not logged"
    assert lines(logged) == [
        ("INFO", "users: circuit opened for 30 s, 0 calls rejected"),
        ("WARNING", f"users is open after Status, for another 20 s; {counted}"),
        ("DEBUG", "users: rejected by circuit_breaker"),
        ("DEBUG", "users: rejected by circuit_breaker"),
        ("INFO", "users: circuit half open, 2 calls rejected"),
        ("INFO", "users is closed again, after 2 rejected calls"),
    ]


@every_colour
def test_hw_obs_01_a_bulkhead(colour: str, logged: pytest.LogCaptureFixture) -> None:
    """HW-OBS-01: a rejection is logged at the level DEBUG, because the caller has the error."""
    bulkhead, script = Bulkhead(1, wait=0, name="pool"), Script(ok())
    with bulkhead, pytest.raises(errors.BulkheadFull):
        in_colour(colour, bulkhead(script), bulkhead(script.aio))
    assert lines(logged) == [("DEBUG", "pool: rejected by bulkhead")]


@pytest.mark.parametrize("colour", ["sync", *ASYNC])
def test_hw_obs_01_a_limit(colour: str, logged: pytest.LogCaptureFixture) -> None:
    """HW-OBS-01, HW-TO-01: it corresponds to `timeout.exceeded`."""

    def slow() -> None:
        SYSTEM.sleep(1)

    async def aslow() -> None:
        await backend().sleep(1)

    limited, alimited = Timeout(0.05, worker=Worker())(slow), Timeout(0.05)(aslow)
    with virtual_time(), pytest.raises(errors.AttemptTimeout):
        in_colour(colour, limited, alimited, MockClock(autojump_threshold=0))
    [(level, said)] = lines(logged)
    assert (level, said.rpartition(".")[2]) == ("DEBUG", f"{'a' * (colour != 'sync')}slow: cut by a limit")


@every_colour
@pytest.mark.parametrize(("broken", "times"), [("add_event", 3), ("set_attribute", 2)])
def test_hw_obs_01_a_broken_span_never_breaks_the_call(
    colour: str, broken: str, times: int, monkeypatch: pytest.MonkeyPatch, logged: pytest.LogCaptureFixture
) -> None:
    """HW-OBS-01: the error of the span is logged."""
    touched: list[int] = []

    def breaking(*_: object) -> None:
        touched.append(1)
        raise ZeroDivisionError("a bug in the span")

    monkeypatch.setattr(_watch, "_logged", set[Any]())
    span = TracerProvider().get_tracer("test").start_span("call")
    monkeypatch.setattr(span, broken, breaking)
    failures = [by_httpx("GET", 503, {}) for _ in range(3)]
    script, policy = Script(failures[0], ok("done"), *failures[1:]), Retry(attempts=2, backoff=[0])
    decorated, adecorated = policy(script), policy(script.aio)

    def call() -> object:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            return decorated()

    async def acall() -> object:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            return await adecorated()

    with opentelemetry.instrument():
        assert in_colour(colour, call, acall) == "done"
        with pytest.raises(type(failures[2])) as came_out:
            in_colour(colour, call, acall)
    assert came_out.value is failures[2]
    assert len(touched) == times
    complaints = [record.getMessage() for record in logged.records if record.levelno == logging.ERROR]
    assert len(complaints) == times - 1
    assert all("observer _add_span_event failed on" in complaint for complaint in complaints)
