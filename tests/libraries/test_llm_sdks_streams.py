"""Streams of the SDKs through an `llm.Model`: restarted before the first chunk, and never after it.

A stream that ends properly without its end marker is an error, although no HTTP client would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Reason
from tests.support.llm.sdk_models import HELLO, LEFT, USAGE, Asked, Server, every_stream, model

pytestmark = LEFT

BEFORE = {"openai": 1, "anthropic": 2, "responses": 4}  # events without text at the start
# The number of events after which a stream is complete. For a chat these end with the last text, because the
# SDK hides the end marker.
COMPLETE = {"openai": 6, "anthropic": 9, "responses": 12}


def hides_first_error(asked: Asked, how: str) -> bool:
    """Return True if the SDK turns an error event at the start into a `RuntimeError` without its type.

    It expects another event first. Such an error cannot be classified, and is not retried.
    """
    return (asked.kind, how) == ("responses", "manager")


def skip_hidden_error(asked: Asked, how: str, script: str) -> None:
    if "error=0" in script and hides_first_error(asked, how):
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
        ("OK~error=0~said=api_error,OK~error=0~said=rate_limit_error,OK", 3),
        ("OK~error=0,rst~late,OK~rst=0,OK", 4),
    ],
)
def test_a_stream_that_breaks_before_its_first_chunk_is_restarted(
    server: Server, asked: Asked, how: str, script: str, attempts: int
) -> None:
    skip_hidden_error(asked, how, script)
    url = server.url(asked.script(script))
    heard = asked.ask(how, model(idempotency="auto"), url)
    assert heard.outcome == f"{HELLO} {attempts}"
    received = server.ledger(url)
    assert len(received) == attempts
    assert len({entry.headers["idempotency-key"] for entry in received}) == 1
    assert len({entry.body for entry in received}) == 1


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "badchunk", "end", "error"])
@pytest.mark.parametrize(("words", "said"), [(0, ""), (2, "Hello from"), (4, f"{HELLO} 1")])
def test_a_stream_that_breaks_after_its_first_chunk_is_not_restarted(
    server: Server, asked: Asked, how: str, fault: str, words: int, said: str
) -> None:
    url = server.url(asked.script(f"OK~{fault}={BEFORE[asked.kind] + words},OK"))
    heard = asked.ask(how, model(asked.sdk), url)
    assert heard.text == said
    # The SDK delivers the error event of a response as a chunk; for the others it raises its own error.
    ours = {"end": "CutShort"} | ({"error": "ErrorEvent"} if asked.kind == "responses" else {})
    assert (heard.outcome == ours.get(fault)) is (fault in ours)
    call_report = heard.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.committed, 1, 1)
    assert call_report.labels == {"provider": asked.sdk, "model": "m"}
    assert [note for note in heard.error.__notes__ if note.startswith("redouble: ")]


@every_stream
def test_a_restarted_stream_is_not_restarted_after_its_first_chunk(
    server: Server, asked: Asked, how: str
) -> None:
    url = server.url(asked.script(f"503,OK~end=0,OK~end={BEFORE[asked.kind] + 1},OK"))
    heard = asked.ask(how, model(), url)
    assert heard.text == "Hello"
    call_report = heard.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.committed, 3, 3)


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "end", "error"])
def test_a_stream_that_never_starts_is_given_up(server: Server, asked: Asked, how: str, fault: str) -> None:
    skip_hidden_error(asked, how, f"{fault}=0")
    url = server.url(asked.script(f"OK~{fault}=0"))
    heard = asked.ask(how, model(retry={"attempts": 3}), url)
    assert heard.chunks == []
    call_report = heard.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.attempts, 3, 3)


@every_stream
@pytest.mark.parametrize("kind", ["invalid_request_error", "insufficient_quota", "unheard_of"])
def test_other_error_events_are_not_retried(server: Server, asked: Asked, how: str, kind: str) -> None:
    url = server.url(asked.script(f"OK~error=0~said={kind},OK"))
    heard = asked.ask(how, model(), url)
    assert (kind in str(heard.error)) is not hides_first_error(asked, how)
    assert heard.chunks == []
    call_report = heard.report()
    assert (call_report.reason, len(server.ledger(url))) == (Reason.stopped, 1)


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "end", "badchunk"])
def test_a_failure_after_the_end_marker_is_ignored(
    server: Server, asked: Asked, how: str, fault: str
) -> None:
    url = server.url(asked.script(f"OK~{fault}={COMPLETE[asked.kind]}"))
    assert asked.ask(how, model(), url).outcome == f"{HELLO} 1"


# ---------------------------------------------------------------------------- the chunks


@every_stream
@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_the_body_may_be_split_anywhere(server: Server, asked: Asked, how: str, piece: int) -> None:
    whole = asked.ask(how, model(), server.url(asked.script("OK")))
    heard = asked.ask(how, model(), server.url(asked.script(f"OK~piece={piece}")))
    assert heard.outcome == whole.outcome == f"{HELLO} 1"
    assert len(heard.chunks) == len(whole.chunks)


@every_stream
def test_chunks_are_those_of_the_sdk(server: Server, asked: Asked, how: str) -> None:
    """Every chunk is unchanged, and in order."""
    url = server.url(asked.script("OK"), key=f"{asked.kind}-{asked.loop}-{how}-alone")
    fn, question = asked.opener(asked.client(url), how)
    alone: list[Any] = []

    def read() -> None:
        opening = fn(**question)
        with opening as stream:
            alone.extend(stream)

    async def aread() -> None:
        opening = fn(**question)
        async with opening if how == "manager" else await opening as stream:
            alone.extend([chunk async for chunk in stream])

    asked.run(aread if asked.loop else read)
    heard = asked.ask(how, model(), server.url(asked.script("OK")))
    assert heard.chunks == alone
    assert {*map(type, heard.chunks)} == {*map(type, alone)}


@every_stream
def test_a_stream_has_its_usage(server: Server, asked: Asked, how: str) -> None:
    heard = asked.ask(how, model(), server.url(asked.script("503,OK")), **asked.telling())
    assert (heard.outcome, heard.usage) == (f"{HELLO} 2", USAGE)


def test_a_raw_stream_yields_its_bytes(asked: Asked) -> None:
    """In blocking code; in async code the SDK returns an object that is not iterable, which raises."""
    with Server() as server:
        url = server.url(asked.script("503,OK"))
        fn, question = asked.opener(asked.client(url), "stream")
        raw = fn.__self__.with_streaming_response.create

        async def aread() -> None:
            with pytest.raises(TypeError, match="which `async for` cannot use"):
                await anext(aiter(model().stream(raw, **question)))

        if asked.loop:
            asked.run(aread)
        else:
            body = b"".join(model().stream(raw, **question))
            assert body.startswith((b"data: {", b"event: "))
            assert body.endswith(b"\n\n")
        assert len(server.ledger(url)) == 2


# ----------------------------------------------------------------------------- the end


@every_stream
def test_closing_a_stream_early_closes_the_connection(asked: Asked, how: str) -> None:
    with Server() as server:
        heard = asked.ask(how, model(), server.url(asked.script("OK~stall=4")), most=3)
        assert (len(heard.chunks), heard.error) == (3, None)
        server.wait_until_open(0)


def test_no_connection_is_leaked(asked: Asked) -> None:
    script = "503,OK~cut=0,OK,OK~end=3,OK~error=2,503~size=200000,OK"
    with Server() as server:
        url = server.url(asked.script(script))
        outcomes = [
            asked.ask(how, model(), url).error is None for how in ("stream", "stream", "manager", "call")
        ]
        assert outcomes == [True, False, False, True]
        assert len(server.ledger(url)) == 7
        server.wait_until_open(1)  # the last one, which stays in the pool
