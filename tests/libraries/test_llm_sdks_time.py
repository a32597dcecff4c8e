"""Time limits of SDK calls through an `llm.Model`: silent and dripping servers, and cancellation.

The limits are real, and short only if the server is silent. Nothing is measured, and on a busy machine there
may be one more attempt.
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
    IGNORE_UNCLOSED_GENERATORS,
    SdkClient,
    Server,
    black_hole,
    every_stream,
    every_way,
    model,
    opened,
)

pytestmark = IGNORE_UNCLOSED_GENERATORS

SILENCE = 0.3  # a timeout in seconds that is reached
BRIEF = llm.Timeouts(connect=30, read=SILENCE, total=30)
THINKING = llm.Timeouts(connect=30, read=SILENCE, total=60, first=30)
SOON = llm.Timeouts(connect=30, read=30, total=SILENCE)
SLOW = Retry(backoff=[5] * 3)  # longer delays than SILENCE
SPOKEN = {"openai": 3, "responses": 6, "anthropic": 4}  # the number of events that contain two words
LATE = ("AttemptTimeout", "APITimeoutError", "ReadTimeout")  # depending on which limit is reached first


@pytest.fixture(scope="module", params=ASYNC)
def waiting(request: pytest.FixtureRequest) -> Generator[SdkClient]:
    with opened(request.param) as found:
        yield found


def reasons(metrics: memory.Metrics) -> set[str]:
    """Return the reasons of the retries."""
    return {dict(labels)["reason"] for labels in metrics.series()["retries"]}


# ------------------------------------------------------------------------------- silence


@every_way
@pytest.mark.parametrize("script", ["stall,OK", "OK~stall=0,OK"])
def test_silence_at_the_start_is_retried(sdk_client: SdkClient, how: str, script: str) -> None:
    with Server() as server, memory.instrument() as metrics:
        url = server.url(sdk_client.script(script))
        result = sdk_client.ask(how, model(timeouts=BRIEF), url)
        received = server.ledger(url)
        assert result.outcome == f"{HELLO} {len(received)}"
        assert len({entry.connection for entry in received}) == len(received) > 1
        assert reasons(metrics) == {"timeout_read"}


@every_stream
@pytest.mark.parametrize("limits", [BRIEF, THINKING])
def test_silence_after_the_first_chunk_ends_the_stream(
    sdk_client: SdkClient, how: str, limits: llm.Timeouts
) -> None:
    """By redouble or by the SDK, which has the same limit or a longer one."""
    with Server() as server:
        url = server.url(sdk_client.script(f"OK~stall={SPOKEN[sdk_client.kind]},OK"))
        result = sdk_client.ask(how, model(sdk_client.sdk, timeouts=limits), url)
        assert result.text == "Hello from"
        assert result.outcome in (LATE if limits is BRIEF else LATE[:1])
        call_report = result.report()
        assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.committed, 1, 1)
        assert call_report.labels == {"provider": sdk_client.sdk, "model": "m"}


# --------------------------------------------------------------------------------- limits


@every_way
@pytest.mark.parametrize("drip", ["driphead=0.02", "drip=0.02~piece=1"])
def test_a_dripping_response_ends_at_the_total(sdk_client: SdkClient, how: str, drip: str) -> None:
    with Server() as server:
        url = server.url(sdk_client.script(f"OK~{drip}"))
        result = sdk_client.ask(how, model(sdk_client.sdk, timeouts=SOON), url)
        assert result.outcome == "DeadlineExceeded"
        assert isinstance(result.error, TimeoutError)
        call_report = result.report()
        assert (call_report.reason, call_report.limit, call_report.attempts) == (Reason.timeout, "total", 1)
        assert call_report.labels == {"provider": sdk_client.sdk, "model": "m"}
        assert len(server.ledger(url)) == 1
        if sdk_client.loop:  # a blocking read lasts until the server stops
            server.wait_until_open(0)


@every_way
def test_a_silent_server_is_given_up_at_the_total(sdk_client: SdkClient, how: str) -> None:
    with Server() as server:
        url = server.url("stall")
        result = sdk_client.ask(how, model(timeouts=SOON, policy=SLOW), url)
        call_report = result.report()
        assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.timeout, 1, 1)


def test_an_outer_deadline_limits_a_call(sdk_client: SdkClient) -> None:
    def read(fn: Any, question: dict[str, Any]) -> None:
        with redouble.deadline(SILENCE):
            model(policy=SLOW).call(fn, **question)

    async def aread(fn: Any, question: dict[str, Any]) -> None:
        with redouble.deadline(SILENCE):
            await model(policy=SLOW).call(fn, **question)

    with Server() as server:
        url = server.url("stall")
        with pytest.raises(Exception) as caught:  # noqa: PT011  redouble's error or the SDK's
            sdk_client.run(
                aread if sdk_client.loop else read, *sdk_client.opener(sdk_client.client(url), "call")
            )
        assert type(caught.value).__name__ in ("DeadlineExceeded", "APITimeoutError")
        call_report = redouble.report(caught.value)
        assert call_report is not None
        assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.timeout, 1, 1)


@every_way
def test_the_connect_timeout_is_passed_to_the_sdk(sdk_client: SdkClient, how: str) -> None:
    limits = llm.Timeouts(connect=0.2, read=30, total=30)
    with black_hole() as port, memory.instrument() as metrics:
        url = f"http://127.0.0.1:{port}/"
        result = sdk_client.ask(how, model(timeouts=limits, retry={"attempts": 2}), url)
    assert result.outcome == "APITimeoutError"
    assert reasons(metrics) == {"timeout_connect"}
    call_report = result.report()
    assert (call_report.reason, call_report.attempts) == (Reason.attempts, 2)


# ------------------------------------------------------------------------- cancellation


async def cancelled(sdk_client: SdkClient, server: Server, url: str, how: str, *, begun: bool) -> list[Any]:
    """Make a call, and cancel it once the server has received the request, or once a chunk has arrived."""
    fn, question = sdk_client.opener(sdk_client.client(url), how)
    chunks, result = list[Any](), anyio.Event()

    async def ask() -> None:
        if how == "call":
            await model().call(fn, **question)
        async for chunk in model().stream(fn, **question):
            chunks.append(chunk)
            result.set()

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        await anyio.to_thread.run_sync(server.wait_for, url, 1)
        if begun:
            await result.wait()
        group.cancel_scope.cancel()
    return chunks


@every_way
@pytest.mark.parametrize("script", ["stall", "OK~stall=0", "503~ra=20~close"])
def test_cancelling_a_call_closes_the_connection(waiting: SdkClient, how: str, script: str) -> None:
    """Nothing is retried."""
    with Server() as server:
        url = server.url(waiting.script(script))
        assert waiting.run(_later(cancelled, begun=False), waiting, server, url, how) == []
        server.wait_until_open(0)
        assert len(server.ledger(url)) == 1


@every_stream
def test_cancelling_a_stream_closes_the_connection(waiting: SdkClient, how: str) -> None:
    with Server() as server:
        url = server.url(waiting.script("OK~stall=3"))
        assert waiting.run(_later(cancelled, begun=True), waiting, server, url, how) != []
        server.wait_until_open(0)
        assert len(server.ledger(url)) == 1


def _later(fn: Any, **options: Any) -> Any:
    async def called(*args: Any) -> Any:
        return await fn(*args, **options)

    return called
