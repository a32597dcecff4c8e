"""Streams of the SDKs through an `llm.Model`: restarted until the first chunk, and never after it.

A stream that ends as if it were whole, though it is not, is an error: no HTTP client would notice.
"""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Reason
from tests.support.llm.sdk_models import HELLO, LEFT, USAGE, Asked, Server, every_stream, model

pytestmark = LEFT

BEFORE = {"openai": 1, "anthropic": 2, "responses": 4}  # events without words, at the start
# After so many events it has said that it is complete. Of a chat that is the last word: the SDK keeps the
# end to itself.
COMPLETE = {"openai": 6, "anthropic": 9, "responses": 12}


def is_mute(asked: Asked, how: str) -> bool:
    """Say whether the SDK makes a `RuntimeError` of an error that comes first, which says nothing of it.

    It expects another event before that. Nobody can know then that it is worth another attempt.
    """
    return (asked.kind, how) == ("responses", "manager")


def not_told_of(asked: Asked, how: str, script: str) -> None:
    if "error=0" in script and is_mute(asked, how):
        pytest.skip("of an error that comes first this SDK does not tell which it is")


# ---------------------------------------------------------------------- before and after


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
def test_what_dies_before_the_first_chunk_begins_anew(
    server: Server, asked: Asked, how: str, script: str, attempts: int
) -> None:
    not_told_of(asked, how, script)
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
def test_what_dies_later_is_never_repeated(
    server: Server, asked: Asked, how: str, fault: str, words: int, said: str
) -> None:
    url = server.url(asked.script(f"OK~{fault}={BEFORE[asked.kind] + words},OK"))
    heard = asked.ask(how, model(asked.sdk), url)
    assert heard.text == said
    # What the SDK of a response hands on, it does not raise; the others raise an error of their own.
    ours = {"end": "CutShort"} | ({"error": "ErrorEvent"} if asked.kind == "responses" else {})
    assert (heard.outcome == ours.get(fault)) is (fault in ours)
    story = heard.report()
    assert (story.reason, story.attempts, len(server.ledger(url))) == (Reason.committed, 1, 1)
    assert story.labels == {"provider": asked.sdk, "model": "m"}
    assert [note for note in heard.error.__notes__ if note.startswith("redouble: ")]


@every_stream
def test_what_began_anew_is_not_repeated_either(server: Server, asked: Asked, how: str) -> None:
    url = server.url(asked.script(f"503,OK~end=0,OK~end={BEFORE[asked.kind] + 1},OK"))
    heard = asked.ask(how, model(), url)
    assert heard.text == "Hello"
    story = heard.report()
    assert (story.reason, story.attempts, len(server.ledger(url))) == (Reason.committed, 3, 3)


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "end", "error"])
def test_a_stream_that_never_begins_is_given_up(server: Server, asked: Asked, how: str, fault: str) -> None:
    not_told_of(asked, how, f"{fault}=0")
    url = server.url(asked.script(f"OK~{fault}=0"))
    heard = asked.ask(how, model(retry={"attempts": 3}), url)
    assert heard.chunks == []
    story = heard.report()
    assert (story.reason, story.attempts, len(server.ledger(url))) == (Reason.attempts, 3, 3)


@every_stream
@pytest.mark.parametrize("kind", ["invalid_request_error", "insufficient_quota", "unheard_of"])
def test_other_errors_in_a_stream_are_not_worth_another(
    server: Server, asked: Asked, how: str, kind: str
) -> None:
    url = server.url(asked.script(f"OK~error=0~said={kind},OK"))
    heard = asked.ask(how, model(), url)
    assert (kind in str(heard.error)) is not is_mute(asked, how)
    assert heard.chunks == []
    story = heard.report()
    assert (story.reason, len(server.ledger(url))) == (Reason.stopped, 1)


@every_stream
@pytest.mark.parametrize("fault", ["cut", "rst", "end", "badchunk"])
def test_what_goes_wrong_once_it_has_said_that_it_is_complete_does_no_harm(
    server: Server, asked: Asked, how: str, fault: str
) -> None:
    url = server.url(asked.script(f"OK~{fault}={COMPLETE[asked.kind]}"))
    assert asked.ask(how, model(), url).outcome == f"{HELLO} 1"


# ---------------------------------------------------------------------------- what comes


@every_stream
@pytest.mark.parametrize("piece", [1, 2, 7, 64])
def test_pieces_may_be_cut_anywhere(server: Server, asked: Asked, how: str, piece: int) -> None:
    whole = asked.ask(how, model(), server.url(asked.script("OK")))
    heard = asked.ask(how, model(), server.url(asked.script(f"OK~piece={piece}")))
    assert heard.outcome == whole.outcome == f"{HELLO} 1"
    assert len(heard.chunks) == len(whole.chunks)


@every_stream
def test_chunks_are_what_the_sdk_gives(server: Server, asked: Asked, how: str) -> None:
    """Every chunk unchanged and in order, through all layers."""
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
def test_a_stream_tells_its_usage(server: Server, asked: Asked, how: str) -> None:
    heard = asked.ask(how, model(), server.url(asked.script("503,OK")), **asked.telling())
    assert (heard.outcome, heard.usage) == (f"{HELLO} 2", USAGE)


def test_a_raw_stream_is_its_bytes(asked: Asked) -> None:
    """In blocking code; in async code the SDK gives nothing that could be iterated over, and we say so."""
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
def test_who_reads_no_further_closes_the_connection(asked: Asked, how: str) -> None:
    with Server() as server:
        heard = asked.ask(how, model(), server.url(asked.script("OK~stall=4")), most=3)
        assert (len(heard.chunks), heard.error) == (3, None)
        server.wait_until_open(0)


def test_no_connection_is_left(asked: Asked) -> None:
    script = "503,OK~cut=0,OK,OK~end=3,OK~error=2,503~size=200000,OK"
    with Server() as server:
        url = server.url(asked.script(script))
        outcomes = [
            asked.ask(how, model(), url).error is None for how in ("stream", "stream", "manager", "call")
        ]
        assert outcomes == [True, False, False, True]
        assert len(server.ledger(url)) == 7
        server.wait_until_open(1)  # the last one, which is kept for the next call
