"""Event streams through the SDKs: restarted before the first byte, and never after it."""

from __future__ import annotations

import pytest

import redouble
from redouble import Kind, Reason, Retry
from tests.support.llm.sdk_clients import Server, every_sdk, script_of, sdk

POLICY = Retry(backoff=[0] * 9)
SOON = 0.1  # seconds
LONG = 1.0
BEFORE = {"openai": 1, "anthropic": 2}  # events without text at the start
EVENTS = {"openai": 7, "anthropic": 9}


@every_sdk
@pytest.mark.parametrize(
    ("script", "attempts"),
    [
        ("OK~cut=0,OK", 2),
        ("OK~rst=0,OK", 2),
        ("OK~badchunk=0,OK", 2),
        ("503,OK~cut=0,529,OK", 4),
        ("OK~cut=0,rst~late,OK~rst=0,OK", 4),
    ],
)
def test_a_stream_that_breaks_before_its_first_event_is_restarted(
    server: Server, name: str, script: str, attempts: int
) -> None:
    url = server.url(script_of(name, script))
    with sdk(name, url, POLICY) as model:
        result = model.ask(stream=True)
    assert result.outcome == f"Hello from attempt {attempts}"
    assert (result.report().attempts, result.report().reason) == (attempts, None)
    assert len(server.ledger(url)) == attempts
    assert len({received.headers["idempotency-key"] for received in server.ledger(url)}) == 1
    assert len({received.body for received in server.ledger(url)}) == 1


@every_sdk
def test_a_stream_that_is_silent_at_the_start_is_restarted(server: Server, name: str) -> None:
    url = server.url(script_of(name, "OK~stall=0,OK"))
    with sdk(name, url, Retry(backoff=[0] * 9, attempts=9), timeout=SOON) as model:
        result = model.ask(stream=True)
    assert result.text.startswith("Hello from attempt")
    assert result.report().history[0].kind == Kind.timeout


@every_sdk
@pytest.mark.parametrize("fault", ["cut", "rst", "badchunk"])
@pytest.mark.parametrize(("words", "text"), [(0, ""), (2, "Hello from"), (4, "Hello from attempt 1")])
def test_a_stream_that_breaks_after_its_first_event_is_not_restarted(
    server: Server, name: str, fault: str, words: int, text: str
) -> None:
    """The error is the SDK's, or the HTTP client's if the SDK does not wrap it."""
    theirs = name.partition("-")[0]
    url = server.url(script_of(name, f"OK~{fault}={BEFORE[theirs] + words},OK"))
    with sdk(name, url, POLICY) as model:
        result = model.ask(stream=True)
    assert result.text == text
    assert result.outcome == "APIConnectionError" if theirs == "openai" else result.error is result.cause
    assert (redouble.report(result.cause), len(server.ledger(url))) == (result.report(), 1)
    assert (result.report().reason, result.report().attempts) == (Reason.committed, 1)
    assert [note for note in result.cause.__notes__ if note.startswith("redouble: ")]


@every_sdk
def test_a_restarted_stream_is_not_restarted_after_its_first_event(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,OK~cut=0,OK~cut=3,OK"))
    with sdk(name, url, POLICY) as model:
        result = model.ask(stream=True)
    assert result.text.startswith("Hello")
    assert (result.report().reason, result.report().attempts) == (Reason.committed, 3)
    assert len(server.ledger(url)) == 3


@every_sdk
def test_a_stream_that_falls_silent_is_not_restarted(server: Server, name: str) -> None:
    url = server.url(script_of(name, "OK~stall=3,OK"))
    with sdk(name, url, POLICY, timeout=SOON) as model:
        result = model.ask(stream=True)
    assert result.outcome in {"APITimeoutError", "ReadTimeout"}
    assert (result.report().reason, len(server.ledger(url))) == (Reason.committed, 1)


@every_sdk
def test_a_stream_that_never_starts_is_given_up(server: Server, name: str) -> None:
    url = server.url(script_of(name, "OK~cut=0"))
    with sdk(name, url, Retry(backoff=[0] * 9, attempts=3)) as model:
        result = model.ask(stream=True)
    assert (result.report().reason, result.report().attempts) == (Reason.attempts, 3)
    assert len(server.ledger(url)) == 3


@pytest.mark.parametrize("name", ["openai-httpx2", "anthropic-httpx2-asyncio", "anthropic-httpx2-trio"])
def test_limits_end_at_the_first_byte(server: Server, name: str) -> None:
    """The whole stream takes longer than the timeout."""
    step = 1.5 * LONG / EVENTS[name.partition("-")[0]]
    url = server.url(script_of(name, f"OK~drip={step}"))
    with sdk(name, url, Retry(backoff=[0] * 9, timeout=LONG)) as model:
        assert model.ask(stream=True).outcome == "Hello from attempt 1"


@every_sdk
def test_the_report_of_a_stream_has_all_attempts(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,OK~cut=0,OK"))
    with sdk(name, url, POLICY) as model:
        result = model.ask(stream=True)
    assert [record.kind for record in result.report().history] == [Kind.server, Kind.network, None]


@every_sdk
def test_no_connection_is_leaked(server: Server, name: str) -> None:
    script = "503,OK~cut=0,OK,OK~cut=3,503~size=200000,OK"
    url = server.url(script_of(name, script))
    with sdk(name, url, POLICY) as model:
        for stream in (True, True, True, False):
            model.ask(stream=stream)
        server.wait_until_open(1)
    server.wait_until_open(0)
    assert server.open == 0
