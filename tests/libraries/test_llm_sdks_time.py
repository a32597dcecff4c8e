"""Time, with the SDKs through an `llm.Model`: silence, drips, limits, and callers who do not wait any longer.

The limits here are real, and short only where a server is silent. Nothing is measured, and where another
attempt is due, a busy machine may need one more.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import anyio
import pytest

import redouble
from redouble import Reason, Retry, llm
from redouble.instruments import memory
from tests.support.llm.sdk_models import (
    ASYNC,
    HELLO,
    LEFT,
    Asked,
    Server,
    black_hole,
    every_stream,
    every_way,
    model,
    opened,
)

pytestmark = LEFT

SILENCE = 0.3  # seconds, that are waited out
BRIEF = llm.Timeouts(connect=30, read=SILENCE, total=30)
THINKING = llm.Timeouts(connect=30, read=SILENCE, total=60, first=30)
SOON = llm.Timeouts(connect=30, read=30, total=SILENCE)
SLOW = Retry(backoff=[5] * 3)  # no delay fits into that
SPOKEN = {"openai": 3, "responses": 6, "anthropic": 4}  # events, two with words
LATE = ("AttemptTimeout", "APITimeoutError", "ReadTimeout")  # of whichever limit fires first


@pytest.fixture(scope="module", params=ASYNC)
def waiting(request: pytest.FixtureRequest) -> Generator[Asked]:
    with opened(request.param) as found:
        yield found


def reasons(metrics: memory.Metrics) -> set[str]:
    """Return the reasons of the retries."""
    return {dict(labels)["reason"] for labels in metrics.series()["retries"]}


# ------------------------------------------------------------------------------- silence


@every_way
@pytest.mark.parametrize("script", ["stall,OK", "OK~stall=0,OK"])
def test_silence_at_the_start_is_tried_again(asked: Asked, how: str, script: str) -> None:
    with Server() as server, memory.instrument() as metrics:
        url = server.url(asked.script(script))
        heard = asked.ask(how, model(timeouts=BRIEF), url)
        received = server.ledger(url)
        assert heard.outcome == f"{HELLO} {len(received)}"
        assert len({entry.connection for entry in received}) == len(received) > 1
        assert reasons(metrics) == {"timeout_read"}


@every_stream
@pytest.mark.parametrize("limits", [BRIEF, THINKING])
def test_silence_in_the_middle_is_the_end(asked: Asked, how: str, limits: llm.Timeouts) -> None:
    """Whoever notices: we, or the SDK, which was told of the same limit, or of one that is longer."""
    with Server() as server:
        url = server.url(asked.script(f"OK~stall={SPOKEN[asked.kind]},OK"))
        heard = asked.ask(how, model(asked.sdk, timeouts=limits), url)
        assert heard.text == "Hello from"
        assert heard.outcome in (LATE if limits is BRIEF else LATE[:1])
        story = heard.report()
        assert (story.reason, story.attempts, len(server.ledger(url))) == (Reason.committed, 1, 1)
        assert story.labels == {"provider": asked.sdk, "model": "m"}


# --------------------------------------------------------------------------------- limits


@every_way
@pytest.mark.parametrize("drip", ["driphead=0.02", "drip=0.02~piece=1"])
def test_a_drip_ends_when_the_time_of_the_whole_call_does(asked: Asked, how: str, drip: str) -> None:
    with Server() as server:
        url = server.url(asked.script(f"OK~{drip}"))
        heard = asked.ask(how, model(asked.sdk, timeouts=SOON), url)
        assert heard.outcome == "DeadlineExceeded"
        assert isinstance(heard.error, TimeoutError)
        story = heard.report()
        assert (story.reason, story.limit, story.attempts) == (Reason.timeout, "total", 1)
        assert story.labels == {"provider": asked.sdk, "model": "m"}
        assert len(server.ledger(url)) == 1
        if asked.loop:  # what blocks ends with the server
            server.wait_until_open(0)


@every_way
def test_a_silent_server_is_not_waited_for_longer_than_the_whole_call(asked: Asked, how: str) -> None:
    with Server() as server:
        url = server.url("stall")
        heard = asked.ask(how, model(timeouts=SOON, policy=SLOW), url)
        story = heard.report()
        assert (story.reason, story.attempts, len(server.ledger(url))) == (Reason.timeout, 1, 1)


def test_a_deadline_around_a_call_counts_too(asked: Asked) -> None:
    def read(fn: Any, question: dict[str, Any]) -> None:
        with redouble.deadline(SILENCE):
            model(policy=SLOW).call(fn, **question)

    async def aread(fn: Any, question: dict[str, Any]) -> None:
        with redouble.deadline(SILENCE):
            await model(policy=SLOW).call(fn, **question)

    with Server() as server:
        url = server.url("stall")
        with pytest.raises(Exception) as caught:  # noqa: PT011  ours, or the SDK's own, which was told of it
            asked.run(aread if asked.loop else read, *asked.opener(asked.client(url), "call"))
        assert type(caught.value).__name__ in ("DeadlineExceeded", "APITimeoutError")
        story = redouble.report(caught.value)
        assert story is not None
        assert (story.reason, story.attempts, len(server.ledger(url))) == (Reason.timeout, 1, 1)


@every_way
def test_a_connection_that_takes_too_long(asked: Asked, how: str) -> None:
    limits = llm.Timeouts(connect=0.2, read=30, total=30)
    with black_hole() as port, memory.instrument() as metrics:
        url = f"http://127.0.0.1:{port}/"
        heard = asked.ask(how, model(timeouts=limits, retry={"attempts": 2}), url)
    assert heard.outcome == "APITimeoutError"
    assert reasons(metrics) == {"timeout_connect"}
    story = heard.report()
    assert (story.reason, story.attempts) == (Reason.attempts, 2)


# ------------------------------------------------------------------------- cancellation


async def cancelled(asked: Asked, server: Server, url: str, how: str, *, begun: bool) -> list[Any]:
    """Make a call, and cancel it once the server has received the request, or once a chunk has arrived."""
    fn, question = asked.opener(asked.client(url), how)
    chunks, heard = list[Any](), anyio.Event()

    async def ask() -> None:
        if how == "call":
            await model().call(fn, **question)
        async for chunk in model().stream(fn, **question):
            chunks.append(chunk)
            heard.set()

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.to_thread.run_sync(server.wait_for, url, 1)
        if begun:
            await heard.wait()
        group.cancel_scope.cancel()
    return chunks


@every_way
@pytest.mark.parametrize("script", ["stall", "OK~stall=0", "503~ra=20~close"])
def test_who_is_cancelled_leaves_no_connection(waiting: Asked, how: str, script: str) -> None:
    """And nothing is asked again."""
    with Server() as server:
        url = server.url(waiting.script(script))
        assert waiting.run(_later(cancelled, begun=False), waiting, server, url, how) == []
        server.wait_until_open(0)
        assert len(server.ledger(url)) == 1


@every_stream
def test_who_is_cancelled_in_the_middle_leaves_no_connection(waiting: Asked, how: str) -> None:
    with Server() as server:
        url = server.url(waiting.script("OK~stall=3"))
        assert waiting.run(_later(cancelled, begun=True), waiting, server, url, how) != []
        server.wait_until_open(0)
        assert len(server.ledger(url)) == 1


def _later(fn: Any, **options: Any) -> Any:
    async def called(*args: Any) -> Any:
        return await fn(*args, **options)

    return called
