"""OpenTelemetry's spans: an event for each retry and each unsuccessful end, with the bound values."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import redouble
from redouble import Bulkhead, Kind, Retry, Timeout, Verdict, errors
from redouble.instruments.opentelemetry import instrument
from redouble.testing import virtual_time
from tests.support.fakes import Boom, Operation, Virtual, always, fail, in_colour, ok
from tests.support.http.clients import CLIENTS, client
from tests.support.instruments.counts import policy
from tests.support.instruments.sample_events import emit_layer_events
from tests.support.servers import Server, refused_port

RESENT = "http.request.resend_count"


class Spans:
    """A real SDK with its own provider."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @contextmanager
    def span(self) -> Generator[None]:
        with self.provider.get_tracer("test").start_as_current_span("work", record_exception=False):
            yield

    def last(self) -> ReadableSpan:
        return self._exporter.get_finished_spans()[-1]

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        return [(event.name, dict(event.attributes or {})) for event in self.last().events]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def test_span_events_of_retries_and_of_giving_up(colour: str, spans: Spans) -> None:
    clock = Virtual()
    rule = always(Verdict.retry(kind=Kind.server, reason="http_5xx"))
    retrying = policy(on=rule, attempts=2, clock=clock)
    operation = Operation([fail()], clock)

    async def later() -> object:
        with spans.span(), redouble.bind(run_id="r-17", shard=3):
            return await retrying.run(coloured)

    async def coloured() -> object:
        return operation()

    def blocking() -> object:
        with spans.span(), redouble.bind(run_id="r-17", shard=3):
            return retrying.run(operation)

    with instrument():
        in_colour(colour, blocking, later)
    every = {"run_id": "r-17", "shard": 3, "redouble.name": "work", "redouble.kind": "server"}
    every["error.type"] = "ScriptedError"
    assert spans.events() == [
        (
            "redouble.retry",
            every | {"redouble.attempt": 1, "redouble.reason": "http_5xx", "redouble.delay": 1.0},
        ),
        ("redouble.give_up", every | {"redouble.attempt": 2, "redouble.reason": "attempts"}),
    ]
    assert dict(spans.last().attributes or {}) == {}


def test_success_adds_no_span_event(spans: Spans) -> None:
    with instrument(), spans.span():
        policy().call(int)
    assert spans.events() == []


def test_span_events_of_rejections_and_timeouts(spans: Spans) -> None:
    gate = Bulkhead(1, 0, name="mail")

    async def slow() -> None:
        await redouble.SYSTEM.asleep(99)

    async def main() -> None:
        with spans.span(), redouble.bind(tenant="acme"):
            with gate, pytest.raises(errors.BulkheadFull):
                gate.call(int)
            with pytest.raises(errors.AttemptTimeout):
                await Timeout(5)(slow)()

    with instrument(), virtual_time():
        in_colour("asyncio", lambda: None, main)
    (rejected, of_gate), (cut, of_limit) = spans.events()
    assert (rejected, cut) == ("redouble.rejected", "redouble.timeout")
    assert of_gate == {
        "tenant": "acme",
        "redouble.name": "mail",
        "redouble.attempt": 0,
        "redouble.by": "bulkhead",
        "error.type": "BulkheadFull",
    }
    assert of_limit.pop("redouble.name").endswith("slow")
    of_timeout = {"redouble.by": "timeout", "error.type": "AttemptTimeout"}
    assert of_limit == {"tenant": "acme", "redouble.attempt": 0} | of_timeout


def test_span_events_of_other_layers(spans: Spans) -> None:
    """A changed limit belongs to no call."""
    with instrument(), spans.span(), redouble.bind(tenant="acme"):
        emit_layer_events("region")
    every = {"tenant": "acme", "redouble.name": "region"}
    hedge = every | {"redouble.by": "hedge", "redouble.attempt": 2}
    replaced = every | {"redouble.by": "fallback", "redouble.attempt": 0}
    assert spans.events() == [
        (
            "redouble.waited",
            every | {"redouble.by": "bulkhead", "redouble.attempt": 0, "redouble.delay": 0.25},
        ),
        ("redouble.hedged", hedge),
        ("redouble.hedge_won", hedge),
        ("redouble.fallback", replaced | {"error.type": "ConnectionError"}),
        ("redouble.fallback", replaced | {"error.type": "not_accepted"}),
        ("redouble.coalesced", every | {"redouble.by": "coalesce", "redouble.attempt": 0}),
    ]


def test_a_bound_field_never_replaces_an_attribute(spans: Spans) -> None:
    with instrument(), spans.span(), redouble.bind(**{"redouble.name": "mine", "error.type": "mine"}):
        policy(attempts=1).run(Operation([fail()], Virtual()))
    ((_, attributes),) = spans.events()
    assert (attributes["redouble.name"], attributes["error.type"]) == ("work", "ScriptedError")


def test_span_events_have_no_argument_and_no_error_text(spans: Spans) -> None:
    def login(password: str) -> str:
        raise Boom("hunter3")

    with instrument(), spans.span():
        policy(attempts=2).run(login, "hunter2")
        policy(attempts=2, until=always(False)).run(str, "hunter4")
    assert len(spans.events()) == 4
    assert "hunter" not in str(spans.events())


class Broken(trace.NonRecordingSpan):
    """A span whose `add_event` raises."""

    def __init__(self, recording: bool) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self.recording, self.asked = recording, 0

    def is_recording(self) -> bool:
        return self.recording

    def add_event(self, *args: Any, **kwargs: Any) -> None:
        self.asked += 1
        raise ZeroDivisionError("a bug in the SDK")


@pytest.mark.parametrize("recording", [True, False])
def test_a_span_that_raises_breaks_no_call(recording: bool) -> None:
    """No attribute is computed for a span that does not record."""
    broken = Broken(recording)
    with instrument(), trace.use_span(broken, record_exception=False):
        assert policy().call(Operation([fail(), ok(3)], Virtual())) == 3
    assert broken.asked == recording


# ------------------------------------------------------------------------- HTTP requests


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.mark.parametrize("name", CLIENTS)
def test_resends_of_a_request_are_counted(server: Server, spans: Spans, name: str) -> None:
    """The span of a request that is sent once has no count."""
    every: list[tuple[str, int | None]] = [("200", None), ("503,429,200", 2), ("503,rst,503,200", 3)]
    every += [("rst,200", 1), ("404", None), ("503*4", 3)]
    with instrument(), client(name, Retry(backoff=[0] * 3, attempts=4)) as http:
        for script, resent in every:
            with spans.span():
                http.get(server.url(script))
            assert (spans.last().attributes or {}).get(RESENT) == resent, script


@pytest.mark.parametrize("name", CLIENTS)
def test_span_events_of_requests(server: Server, spans: Spans, name: str) -> None:
    with instrument(), client(name, Retry(backoff=[0], attempts=2, name="api")) as http:
        with spans.span():
            assert http.get(server.url("503")).status == 503
        of_status = spans.events()
        with spans.span():
            assert http.get(f"http://127.0.0.1:{refused_port()}/?token=hunter2").error is not None
        of_network = spans.events()
    summaries = [
        (
            what,
            attributes["redouble.name"],
            attributes["redouble.kind"],
            attributes.get("http.response.status_code"),
        )
        for what, attributes in (*of_status, *of_network)
    ]
    assert summaries == [
        ("redouble.retry", "api", "server", 503),
        ("redouble.give_up", "api", "server", 503),
        ("redouble.retry", "api", "network", None),
        ("redouble.give_up", "api", "network", None),
    ]
    assert [attributes["redouble.reason"] for _, attributes in of_status] == ["http_5xx", "attempts"]
    assert "hunter" not in str(of_network)
