"""Server-sent events without an SDK: a stream of httpx2 or httpx through an `llm.Model`, byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

import redouble
from redouble import Reason, llm
from redouble.instruments import memory
from tests.libraries.servers import library
from tests.support.llm.sdk_models import USAGE, Server, call_and_collect, called, model
from tests.support.servers import llm_responses, openai_responses

wire = llm_responses
# The clients do not close their async generators, with or without redouble, and Trio warns.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:Async generator '(httpx|httpx2|httpcore|httpcore2)\.:ResourceWarning"
)

CLIENTS = ["httpx2", "httpx2-asyncio", "httpx2-trio", "httpx", "httpx-asyncio", "httpx-trio"]
EVENTS: dict[str, Callable[..., list[bytes]]] = {
    "openai": wire.openai_events,
    "anthropic": wire.anthropic_events,
    "responses": openai_responses.events,
}
QUESTION = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
SILENCE = 0.3  # a timeout in seconds that is reached

every_protocol = pytest.mark.parametrize("protocol", EVENTS)


def sent(protocol: str, attempt: int = 1, events: int | None = None) -> bytes:
    """Return the stream of the server, or its first ``events`` events."""
    return b"".join(EVENTS[protocol](f"Hello from attempt {attempt}", attempt, QUESTION)[:events])


@dataclass
class Heard:
    body: bytes = b""
    error: Any = None
    usage: llm.Usage | None = None

    def reason_and_attempts(self, server: Server, url: str) -> tuple[Reason | None, int]:
        """Return the reason and the number of attempts, which must be that of the received requests."""
        call_report = redouble.report(self.error)
        assert call_report is not None
        assert call_report.labels == {"provider": "acme", "model": "m"}
        assert len(server.ledger(url)) == call_report.attempts
        return call_report.reason, call_report.attempts


@dataclass
class Reading:
    """An open client, and the function that runs code where it is usable."""

    raw: Any
    run: Callable[..., Any]
    loop: str

    def read(self, model: llm.Model, url: str, most: int | None = None) -> Heard:
        result = Heard()
        self.run(self._aread if self.loop else self._read, result, model, url, most)
        return result

    def _read(self, result: Heard, model: llm.Model, url: str, most: int | None) -> None:
        try:
            with model.stream(self.raw.stream, "POST", url, json=QUESTION) as pieces:
                for number, piece in enumerate(pieces, 1):
                    result.body += piece
                    if number == most:
                        break
            result.usage = pieces.usage
        except Exception as error:
            result.error = error

    async def _aread(self, result: Heard, model: llm.Model, url: str, most: int | None) -> None:
        try:
            async with model.stream(self.raw.stream, "POST", url, json=QUESTION) as pieces:
                number = 0
                async for piece in pieces:
                    result.body += piece
                    number += 1
                    if number == most:
                        break
            result.usage = pieces.usage
        except Exception as error:
            result.error = error.with_traceback(None)


@contextmanager
def reading(name: str) -> Generator[Reading]:
    loop = name.partition("-")[2]
    found: Any = library(name.partition("-")[0])
    if not loop:
        with found.Client() as raw:
            yield Reading(raw, called, loop)
        return
    with start_blocking_portal(loop) as portal, portal.wrap_async_context_manager(found.AsyncClient()) as raw:
        yield Reading(raw, partial(call_and_collect, portal), loop)


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Generator[Reading]:
    with reading(request.param) as found:
        yield found


def acme(**options: Any) -> llm.Model:
    return model("acme", **options)


@every_protocol
@pytest.mark.parametrize(
    ("script", "attempts"),
    [
        ("OK", 1),
        ("429~rams=1,500,503,OK", 4),
        ("529,OK", 2),
        ("rst~late,close~late,OK", 3),
        ("OK~cut=0,OK~rst=0,OK~badchunk=0,OK", 4),
        ("OK~end=0,OK", 2),
        ("OK~error=0,OK~error=0~error_type=server_error,OK", 3),
        ("503,OK~piece=1", 2),
        ("OK~piece=7", 1),
    ],
)
def test_a_stream_is_restarted_before_its_first_piece(
    server: Server, client: Reading, protocol: str, script: str, attempts: int
) -> None:
    url = server.url(script.replace("OK", protocol))
    result = client.read(acme(idempotency="auto"), url)
    assert (result.error, result.body, result.usage) == (None, sent(protocol, attempts), USAGE)
    received = server.ledger(url)
    assert len(received) == attempts
    assert len({entry.headers["idempotency-key"] for entry in received}) == 1


@every_protocol
def test_each_call_has_its_own_key(server: Server, client: Reading, protocol: str) -> None:
    url, keyed = server.url(f"503,{protocol}"), acme(idempotency="auto")
    for _ in range(2):
        client.read(keyed, url)
    keys = [entry.headers["idempotency-key"] for entry in server.ledger(url)]
    assert (keys[0] == keys[1], keys[1] == keys[2], len(keys)) == (True, False, 3)


@every_protocol
@pytest.mark.parametrize("fault", ["cut", "rst", "badchunk", "end", "error"])
def test_a_stream_that_breaks_after_its_first_piece_is_not_restarted(
    server: Server, client: Reading, protocol: str, fault: str
) -> None:
    url = server.url(f"{protocol}~{fault}=4~drip=0.001,{protocol}")
    result = client.read(acme(), url)
    assert sent(protocol).startswith(result.body) or fault == "error"
    assert result.body.startswith(sent(protocol, events=1))
    ours = {"end": "CutShort", "error": "ErrorEvent"}
    assert (type(result.error).__name__ == ours.get(fault)) is (fault in ours)
    assert result.reason_and_attempts(server, url) == (Reason.committed, 1)


@every_protocol
@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_a_stream_without_its_end_marker_raises(
    server: Server, client: Reading, protocol: str, piece: int
) -> None:
    last = len(EVENTS[protocol]("Hello from attempt 1", 1, QUESTION)) - 1
    url = server.url(f"{protocol}~end={last}~piece={piece},{protocol}")
    result = client.read(acme(), url)
    assert (result.body, type(result.error)) == (sent(protocol, events=last), llm.CutShort)
    assert result.reason_and_attempts(server, url) == (Reason.committed, 1)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404])
def test_other_statuses_are_not_retried(server: Server, client: Reading, status: int) -> None:
    url = server.url(f"{status},openai")
    result = client.read(acme(), url)
    assert result.error.response.status_code == status
    assert result.error.response.json()["step"] == 1
    assert result.reason_and_attempts(server, url) == (Reason.stopped, 1)


@pytest.mark.parametrize("script", ["stall,openai", "openai~stall=0,openai"])
def test_silence_before_the_first_piece_is_retried(client: Reading, script: str) -> None:
    with Server() as server:
        url = server.url(script)
        result = client.read(acme(timeouts=llm.Timeouts(30, SILENCE, 30)), url)
        assert (result.error, result.body) == (None, sent("openai", len(server.ledger(url))))


def test_silence_after_the_first_piece_ends_the_stream(client: Reading) -> None:
    with Server() as server:
        url = server.url("openai~stall=3,openai")
        result = client.read(acme(timeouts=llm.Timeouts(30, SILENCE, 30)), url)
        assert result.body == sent("openai", events=3)
        assert type(result.error).__name__ in ("AttemptTimeout", "ReadTimeout")
        assert result.reason_and_attempts(server, url) == (Reason.committed, 1)


def test_a_dripping_stream_ends_at_the_total(client: Reading) -> None:
    with Server() as server:
        url = server.url("openai~drip=0.02~piece=1")
        result = client.read(acme(timeouts=llm.Timeouts(30, 30, SILENCE)), url)
        assert sent("openai").startswith(result.body)
        assert type(result.error).__name__ == "DeadlineExceeded"
        assert result.reason_and_attempts(server, url) == (Reason.timeout, 1)
        server.wait_until_open(0)


def test_closing_a_stream_early_closes_the_connection(client: Reading) -> None:
    with Server() as server:
        result = client.read(acme(), server.url("openai~stall=4"), most=1)
        assert result.error is None
        server.wait_until_open(0)


def test_cancelling_a_reader_closes_the_connection(client: Reading) -> None:
    if not client.loop:
        pytest.skip("a blocking stream is left, not cancelled")

    async def read(url: str) -> None:
        async with anyio.create_task_group() as group:
            began = anyio.Event()

            async def ask() -> None:
                async for _ in acme().stream(client.raw.stream, "POST", url, json=QUESTION):
                    began.set()

            group.start_soon(ask)
            await began.wait()
            group.cancel_scope.cancel()

    with Server() as server:
        url = server.url("openai~stall=4")
        client.run(read, url)
        server.wait_until_open(0)
        assert len(server.ledger(url)) == 1


def test_spend_and_metrics_of_a_stream(server: Server, client: Reading) -> None:
    spend = llm.Spend(tokens=1000, warn_at=None)
    with memory.instrument() as metrics:
        result = client.read(acme(spend=spend, reserve=100), server.url("503,anthropic"))
    assert (result.error, spend.snapshot()["tokens"]) == (None, USAGE.total)
    labels = {"provider": "acme", "model": "m"}
    assert metrics.counter("calls", ok="true", **labels) == 1
    assert metrics.counter("retries", reason="http_5xx", **labels) == 1
    for name in ("call_duration", "time_to_first_item"):
        assert metrics.histogram(name, **labels)[0] == 1
