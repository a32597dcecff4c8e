"""The SDKs of OpenAI and Anthropic through an `llm.Model`: retried calls, and their results."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redouble import Reason, Retry, llm, report
from tests.support.fakes import Virtual
from tests.support.llm.sdk_clients import model_of, question_for, sdk
from tests.support.llm.sdk_models import (
    HELLO,
    IGNORE_UNCLOSED_GENERATORS,
    KEY,
    PROMPT,
    SdkClient,
    Server,
    every_way,
    model,
    value,
)

pytestmark = IGNORE_UNCLOSED_GENERATORS

QUOTA = value('{"error": {"code": "insufficient_quota", "message": "spent"}}')
LAST = {  # the error of each SDK for a status
    "429": {"openai": "RateLimitError", "anthropic": "RateLimitError"},
    "500": {"openai": "InternalServerError", "anthropic": "InternalServerError"},
    "503": {"openai": "InternalServerError", "anthropic": "ServiceUnavailableError"},
    "529": {"openai": "InternalServerError", "anthropic": "OverloadedError"},
}


# ---------------------------------------------------------------------- retried calls


@every_way
@pytest.mark.parametrize(
    ("script", "attempts"),
    [
        ("OK", 1),
        ("500,503,OK", 3),
        ("408,409,OK", 3),
        ("502,504,529,OK", 4),
        ("599,OK", 2),
        ("429~rams=1,OK", 2),
        ("400~h.x-should-retry=true,OK", 2),
        ("rst~late,OK", 2),
        ("close~late,OK", 2),
        ("garbage,cuthead=9,rsthead=9,OK", 4),
        ("503~cut=3,OK", 2),
    ],
)
def test_a_retried_call_returns_one_answer(
    server: Server, sdk_client: SdkClient, how: str, script: str, attempts: int
) -> None:
    """Each failure causes one retry."""
    url = server.url(sdk_client.script(script))
    result = sdk_client.ask(how, model(), url)
    assert result.outcome == f"{HELLO} {attempts}"
    received = server.ledger(url)
    assert len(received) == attempts
    assert len({entry.body for entry in received}) == 1


@pytest.mark.parametrize("fault", ["cut=0", "cut=5", "rst=5", "badchunk=5"])
def test_a_broken_answer_that_is_not_streamed_is_retried(
    server: Server, sdk_client: SdkClient, fault: str
) -> None:
    url = server.url(sdk_client.script(f"OK~{fault},503,OK"))
    assert sdk_client.call(model(), url).outcome == f"{HELLO} 3"
    assert len(server.ledger(url)) == 3


@every_way
@pytest.mark.parametrize(
    "script",
    [
        *("400", "401", "403", "404", "413", "422"),
        "429~h.x-should-retry=false",
        "503~h.x-should-retry=false",
        f"429~body={QUOTA}",
    ],
)
def test_other_errors_are_not_retried(server: Server, sdk_client: SdkClient, how: str, script: str) -> None:
    url = server.url(sdk_client.script(f"{script},OK"))
    result = sdk_client.ask(how, model(sdk_client.sdk), url)
    assert result.error.status_code == int(script[:3])
    call_report = result.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.stopped, 1, 1)
    assert call_report.labels == {"provider": sdk_client.sdk, "model": "m"}


@every_way
@pytest.mark.parametrize("script", LAST)
def test_the_last_error_is_that_of_the_sdk(
    server: Server, sdk_client: SdkClient, how: str, script: str
) -> None:
    url = server.url(script)
    result = sdk_client.ask(how, model(sdk_client.sdk, retry={"attempts": 3}), url)
    assert (result.outcome, result.error.status_code) == (LAST[script][sdk_client.sdk], int(script))
    assert result.error.response.json() == {"ok": False, "step": 3}
    call_report = result.report()
    assert (call_report.reason, call_report.attempts, len(server.ledger(url))) == (Reason.attempts, 3, 3)
    assert call_report.labels == {"provider": sdk_client.sdk, "model": "m"}
    assert [note for note in result.error.__notes__ if "gave up after 3 attempts" in note]


@every_way
def test_retry_if_decides_first(server: Server, sdk_client: SdkClient, how: str) -> None:
    seen_calls: list[tuple[int, int, llm.Context]] = []

    def retry_if(error: Any, attempt: int, context: llm.Context) -> bool | None:
        seen_calls.append((error.status_code, attempt, context))
        return {400: True, 500: False}.get(error.status_code)

    url = server.url("400,503,500")
    result = sdk_client.ask(how, model(retry_if=retry_if), url)
    assert (result.error.status_code, len(server.ledger(url))) == (500, 3)
    context = llm.Context("someone", "m", stream=how != "call")
    assert seen_calls == [(400, 1, context), (503, 2, context), (500, 3, context)]


# --------------------------------------------------------------------------------- hints


@every_way
@pytest.mark.parametrize(
    ("asks", "seconds"),
    [
        ("ra=7", 7),
        ("rams=1500", 1.5),
        ("ra=7~rams=1500", 1.5),
        ("h.x-ratelimit-reset-requests=20ms", 0.02),
        ("h.x-ratelimit-remaining-requests=0~h.x-ratelimit-reset-requests=6m0s", 360),
    ],
)
def test_the_delay_is_never_shorter_than_the_hint(
    server: Server, sdk_client: SdkClient, how: str, asks: str, seconds: float
) -> None:
    clock = Virtual()
    url = server.url(sdk_client.script(f"429~{asks},OK"))
    patient = model(timeouts=None, retry={"clock": clock, "give_up_after": None})
    assert sdk_client.ask(how, patient, url).outcome == f"{HELLO} 2"
    assert seconds <= sum(clock.waits) <= 1.1 * seconds


@every_way
def test_a_hint_that_is_too_long_ends_the_call_at_once(
    server: Server, sdk_client: SdkClient, how: str
) -> None:
    url = server.url(sdk_client.script("429~ra=3600,OK"))
    result = sdk_client.ask(how, model(), url)
    assert result.outcome == "RateLimitError"
    call_report = result.report()
    assert (call_report.reason, call_report.history[0].hint, len(server.ledger(url))) == (
        Reason.timeout,
        3600,
        1,
    )


# ---------------------------------------------------------------------------------- keys


@every_way
def test_each_call_has_one_key(server: Server, sdk_client: SdkClient, how: str) -> None:
    url = server.url(sdk_client.script("503,429~rams=1,OK,503,OK"))
    keyed = model(idempotency="auto")
    assert [sdk_client.ask(how, keyed, url).outcome for _ in range(2)] == [f"{HELLO} 3", f"{HELLO} 5"]
    keys = [received.headers["idempotency-key"] for received in server.ledger(url)]
    assert [len(set(keys[:3])), len(set(keys[3:])), len(set(keys))] == [1, 1, 2]


@every_way
def test_the_callers_own_key_is_kept(server: Server, sdk_client: SdkClient, how: str) -> None:
    url = server.url(sdk_client.script("503,OK"))
    own = {"idempotency-KEY": "order-7", "x-other": "too"}
    sdk_client.ask(how, model(idempotency="auto"), url, extra_headers=own)
    sent = [(entry.headers["idempotency-key"], entry.headers["x-other"]) for entry in server.ledger(url)]
    assert sent == [("order-7", "too")] * 2


@every_way
def test_by_default_there_is_no_key(server: Server, sdk_client: SdkClient, how: str) -> None:
    url = server.url(sdk_client.script("OK"))
    sdk_client.ask(how, model(), url)
    assert "idempotency-key" not in server.ledger(url)[0].headers


# ------------------------------------------------------------------ retries of the SDK


@every_way
def test_an_sdk_that_retries_by_itself_is_refused_with_the_fix(
    server: Server, sdk_client: SdkClient, how: str
) -> None:
    url = server.url("503")
    result = sdk_client.ask(how, model(), url, client=sdk_client.client(url, max_retries=2))
    assert result.outcome == "TypeError"
    assert "max_retries=2" in str(result.error)
    assert "client.with_options(max_retries=0)" in str(result.error)
    assert server.ledger(url) == []


def test_every_method_of_an_sdk_that_retries_by_itself_is_refused(
    server: Server, sdk_client: SdkClient
) -> None:
    url = server.url("503")
    client = sdk_client.client(url, max_retries=2)
    asks = sdk_client.opener(client, "call")[0].__self__
    for fn in (client.post, asks.with_raw_response.create, asks.with_streaming_response.create):
        with pytest.raises(TypeError, match="max_retries=2"):
            model().stream(fn)
        with pytest.raises(TypeError, match="max_retries=2"):
            sdk_client.run(_calling(sdk_client, fn))
    assert server.ledger(url) == []


def test_a_call_that_returns_a_raw_response_is_retried(server: Server, sdk_client: SdkClient) -> None:
    url = server.url(sdk_client.script("503,OK"))
    fn, question = sdk_client.opener(sdk_client.client(url), "call")
    asks = fn.__self__
    answer = sdk_client.run(_calling(sdk_client, asks.with_raw_response.create, **question))
    assert (answer.http_response.status_code, len(server.ledger(url))) == (200, 2)


def _calling(sdk_client: SdkClient, fn: Any, **question: Any) -> Any:
    async def acall() -> Any:
        return await model().call(fn, **question)

    return acall if sdk_client.loop else lambda: model().call(fn, **question)


@pytest.mark.parametrize("name", ["openai-httpx2", "openai-httpx2-asyncio", "anthropic-httpx2-trio"])
@pytest.mark.parametrize("script", ["503", "429", "rst~late"])
@pytest.mark.parametrize("stream", [False, True])
def test_attempts_of_the_transport_below_do_not_multiply(
    server: Server, name: str, script: str, stream: bool
) -> None:
    url = server.url(script)
    with sdk(name, url, Retry(backoff=[0] * 9, attempts=2)) as below:
        create, question = model_of(below.raw)[0], question_for(below.raw)
        whole = model()

        def ask() -> object:
            return (
                list(whole.stream(create, stream=True, **question))
                if stream
                else whole.call(create, **question)
            )

        async def aask() -> object:
            if stream:
                return [chunk async for chunk in whole.stream(create, stream=True, **question)]
            return await whole.call(create, **question)

        with pytest.raises(Exception) as caught:  # noqa: PT011  the SDK's own
            below.run(aask if "-asyncio" in name or "-trio" in name else ask)
    call_report = report(caught.value)
    assert call_report is not None
    assert (call_report.reason, len(server.ledger(url))) == (Reason.nested, 2)


# -------------------------------------------------------------------- redacted content


@every_way
@pytest.mark.parametrize("script", ["503", "401", "rst~late"])
def test_reports_and_logs_contain_neither_api_key_nor_prompt(
    server: Server, sdk_client: SdkClient, how: str, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[object] = []
    hooks = dict.fromkeys(("on_failure", "on_retry", "on_give_up"), events.append)
    with caplog.at_level(logging.DEBUG, "redouble"):
        result = sdk_client.ask(how, model(idempotency="auto", retry=hooks), server.url(script))
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("redouble")]
    published = f"{result.report()} {events} {logged} {getattr(result.error, '__notes__', ())}"
    assert events
    assert KEY not in published
    assert PROMPT not in published
