"""Streams of the SDKs through an `llm.Model`: restarted before the first chunk, and never after it.

A stream that ends properly without its end marker is an error, although no HTTP client would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Reason
from tests.support.llm.sdk_models import (
    HELLO,
    IGNORE_UNCLOSED_GENERATORS,
    USAGE,
    SdkClient,
    Server,
    every_stream,
    model,
)

pytestmark = IGNORE_UNCLOSED_GENERATORS

BEFORE = {"openai": 1, "anthropic": 2, "responses": 4}  # events without text at the start
# The number of events after which a stream is complete. For a chat these end with the last text, because the
# SDK hides the end marker.
COMPLETE = {"openai": 6, "anthropic": 9, "responses": 12}


def hides_first_error(sdk_client: SdkClient, how: str) -> bool:
    """Return True if the SDK turns an error event at the start into a `RuntimeError` without its type.

    It expects another event first. Such an error cannot be classified, and is not retried.
    """
    return (sdk_client.kind, how) == ("responses", "manager")


def skip_hidden_error(sdk_client: SdkClient, how: str, script: str) -> None:
    if "error=0" in script and hides_first_error(sdk_client, how):
        pytest.skip("of an error that comes first this SDK does not tell which it is")


# ----------------------------------------------------- before and after the first chunk


@every_stream
@pytest.mark.parametrize(
    ("script", "attempts"),
    [
        ("OK~cut=0,OK", 2),
        ("OK~rst=0,OK", 2),
        ("OK~badchunk=0,OK", 2),
        ("OK~end=0,OK", 2),
        ("503,OK~end=0,OK~cut=0,OK", 4),
        ("529,rst~late,OK~rst=0,OK", 4),
        ("OK~error=0,OK", 2),
        ("OK~error=0~error_type=api_error,OK~error=0~error_type=rate_limit_error,OK", 3),
        ("OK~error=0,rst~late,OK~rst=0,OK", 4),
    ],
)
def test_a_stream_that_breaks_before_its_first_chunk_is_restarted(
    server: Server, sdk_client: SdkClient, how: str, script: str, attempts: int
) -> None:
    skip_hidden_error(sdk_client, how, script)
    url = server.url(sdk_client.script(script))
    result = sdk_client.ask(how, model(idempotency="auto"), url)
    assert result.outcome == f"{HELLO} {attempts}"
    received = server.ledger(url)
    assert len(received) == attempts
    assert len({entry.headers["idempotency-key"] for entry in received}) == 1
    assert len({entry.body for entry in received}) == 1


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "badchunk", "end", "error"])
@pytest.mark.parametrize(("words", "text"), [(0, ""), (2, "Hello from"), (4, f"{HELLO} 1")])
def test_a_stream_that_breaks_after_its_first_chunk_is_not_restarted(
    server: Server, sdk_client: SdkClient, how: str, fault: str, words: int, text: str
) -> None:
    url = server.url(sdk_client.script(f"OK~{fault}={BEFORE[sdk_client.kind] + words},OK"))
    result = sdk_client.ask(how, model(sdk_client.sdk), url)
    assert result.text == text
    # The SDK delivers the error event of a response as a chunk; for the others it raises its own error.
    ours = {"end": "CutShort"} | ({"error": "ErrorEvent"} if sdk_client.kind == "responses" else {})
    assert (result.outcome == ours.get(fault)) is (fault in ours)
    call_report = result.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.committed, 1, 1)
    assert call_report.labels == {"provider": sdk_client.sdk, "model": "m"}
    assert [note for note in result.error.__notes__ if note.startswith("redouble: ")]


@every_stream
def test_a_restarted_stream_is_not_restarted_after_its_first_chunk(
    server: Server, sdk_client: SdkClient, how: str
) -> None:
    url = server.url(sdk_client.script(f"503,OK~end=0,OK~end={BEFORE[sdk_client.kind] + 1},OK"))
    result = sdk_client.ask(how, model(), url)
    assert result.text == "Hello"
    call_report = result.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.committed, 3, 3)


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "end", "error"])
def test_a_stream_that_never_starts_is_given_up(
    server: Server, sdk_client: SdkClient, how: str, fault: str
) -> None:
    skip_hidden_error(sdk_client, how, f"{fault}=0")
    url = server.url(sdk_client.script(f"OK~{fault}=0"))
    result = sdk_client.ask(how, model(retry={"attempts": 3}), url)
    assert result.chunks == []
    call_report = result.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.attempts, 3, 3)


@every_stream
@pytest.mark.parametrize("kind", ["invalid_request_error", "insufficient_quota", "unheard_of"])
def test_other_error_events_are_not_retried(
    server: Server, sdk_client: SdkClient, how: str, kind: str
) -> None:
    url = server.url(sdk_client.script(f"OK~error=0~error_type={kind},OK"))
    result = sdk_client.ask(how, model(), url)
    assert (kind in str(result.error)) is not hides_first_error(sdk_client, how)
    assert result.chunks == []
    call_report = result.report()
    assert (call_report.reason, len(server.ledger(url))) == (Reason.stopped, 1)


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "end", "badchunk"])
def test_a_failure_after_the_end_marker_is_ignored(
    server: Server, sdk_client: SdkClient, how: str, fault: str
) -> None:
    url = server.url(sdk_client.script(f"OK~{fault}={COMPLETE[sdk_client.kind]}"))
    assert sdk_client.ask(how, model(), url).outcome == f"{HELLO} 1"


# ---------------------------------------------------------------------------- the chunks


@every_stream
@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_the_body_may_be_split_anywhere(server: Server, sdk_client: SdkClient, how: str, piece: int) -> None:
    whole = sdk_client.ask(how, model(), server.url(sdk_client.script("OK")))
    result = sdk_client.ask(how, model(), server.url(sdk_client.script(f"OK~piece={piece}")))
    assert result.outcome == whole.outcome == f"{HELLO} 1"
    assert len(result.chunks) == len(whole.chunks)


@every_stream
def test_chunks_are_those_of_the_sdk(server: Server, sdk_client: SdkClient, how: str) -> None:
    """Every chunk is unchanged, and in order."""
    url = server.url(sdk_client.script("OK"), key=f"{sdk_client.kind}-{sdk_client.loop}-{how}-alone")
    fn, question = sdk_client.opener(sdk_client.client(url), how)
    alone: list[Any] = []

    def read() -> None:
        opening = fn(**question)
        with opening as stream:
            alone.extend(stream)

    async def aread() -> None:
        opening = fn(**question)
        async with opening if how == "manager" else await opening as stream:
            alone.extend([chunk async for chunk in stream])

    sdk_client.run(aread if sdk_client.loop else read)
    result = sdk_client.ask(how, model(), server.url(sdk_client.script("OK")))
    assert result.chunks == alone
    assert {*map(type, result.chunks)} == {*map(type, alone)}


@every_stream
def test_a_stream_has_its_usage(server: Server, sdk_client: SdkClient, how: str) -> None:
    result = sdk_client.ask(
        how, model(), server.url(sdk_client.script("503,OK")), **sdk_client.usage_options()
    )
    assert (result.outcome, result.usage) == (f"{HELLO} 2", USAGE)


def test_a_raw_stream_yields_its_bytes(sdk_client: SdkClient) -> None:
    with Server() as server:
        url = server.url(sdk_client.script("503,OK"))
        fn, question = sdk_client.opener(sdk_client.client(url), "stream")
        raw = fn.__self__.with_streaming_response.create

        async def aread() -> bytes:
            return b"".join([piece async for piece in model().stream(raw, **question)])

        def read() -> bytes:
            return b"".join(model().stream(raw, **question))

        body = sdk_client.run(aread if sdk_client.loop else read)
        assert body.startswith((b"data: {", b"event: "))
        assert body.endswith(b"\n\n")
        assert len(server.ledger(url)) == 2


# ----------------------------------------------------------------------------- the end


@every_stream
def test_closing_a_stream_early_closes_the_connection(sdk_client: SdkClient, how: str) -> None:
    with Server() as server:
        result = sdk_client.ask(how, model(), server.url(sdk_client.script("OK~stall=4")), most=3)
        assert (len(result.chunks), result.error) == (3, None)
        server.wait_until_open(0)


def test_no_connection_is_leaked(sdk_client: SdkClient) -> None:
    script = "503,OK~cut=0,OK,OK~end=3,OK~error=2,503~size=200000,OK"
    with Server() as server:
        url = server.url(sdk_client.script(script))
        outcomes = [
            sdk_client.ask(how, model(), url).error is None for how in ("stream", "stream", "manager", "call")
        ]
        assert outcomes == [True, False, False, True]
        assert len(server.ledger(url)) == 7
        server.wait_until_open(1)  # the last one, which stays in the pool
