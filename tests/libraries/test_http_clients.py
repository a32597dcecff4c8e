"""The HTTP clients that the SDKs accept, features of the SDKs with them, and retries in two places."""

from __future__ import annotations

from typing import Any

import pytest

import redouble
import redouble.httpx
import redouble.httpx2
from redouble import Reason, Retry, TokenBucket
from tests.libraries.servers import library, run
from tests.support.fakes import Virtual
from tests.support.llm.sdk_clients import (
    KEY,
    Server,
    every_sdk,
    model_of,
    question_for,
    script_of,
    sdk,
    value,
)

POLICY = Retry(backoff=[0] * 9)
QUOTA = '{"error": {"code": "insufficient_quota", "type": "insufficient_quota", "message": "spent"}}'
DEFAULTS = [
    ("openai", "DefaultHttpxClient"),
    ("openai", "DefaultHttpx2Client"),
    ("anthropic", "DefaultHttpxClient"),
]


# ----------------------------------------------------------------- the accepted clients


def test_anthropic_refuses_a_client_of_httpx() -> None:
    with (
        library("httpx").Client(transport=redouble.httpx.Transport()) as http,
        pytest.raises(TypeError, match="httpx2"),
    ):
        library("anthropic").Anthropic(api_key=KEY, http_client=http)


def opened(theirs: str, make: str, url: str, transport: Any) -> Any:
    """Return a client of an SDK on the SDK's own HTTP client class, which follows redirects."""
    http = getattr(library(theirs), make)(transport=transport, trust_env=False)
    name = {"openai": "OpenAI", "anthropic": "Anthropic"}[theirs]
    sdk_client = getattr(library(theirs), "Async" + name if "Async" in make else name)
    path = "v1" if theirs == "openai" else ""
    return sdk_client(api_key=KEY, base_url=url + path, max_retries=0, http_client=http)


@pytest.mark.parametrize(("theirs", "make"), DEFAULTS)
def test_the_sdks_own_client_classes_accept_the_transport(server: Server, theirs: str, make: str) -> None:
    aim = server.url(f"503,{theirs}")
    url = server.url(f"503,307~loc={value(aim)}")
    with opened(theirs, make, url, redouble.httpx2.Transport(POLICY, idempotency="auto")) as raw:
        create, words = model_of(raw)
        assert words(create(**question_for(raw))) == "Hello from attempt 2"
    received = [*server.ledger(url), *server.ledger(aim)]
    assert len(received) == 4
    assert len({each.headers["idempotency-key"] for each in received}) == 1


@pytest.mark.parametrize(("theirs", "make"), DEFAULTS)
def test_the_sdks_own_async_client_classes_accept_the_transport(
    server: Server, theirs: str, make: str
) -> None:
    aim = server.url(f"503,{theirs}")
    url = server.url(f"503,307~loc={value(aim)}")
    transport = redouble.httpx2.AsyncTransport(POLICY, idempotency="auto")

    async def main() -> None:
        async with opened(theirs, make.replace("Default", "DefaultAsync"), url, transport) as raw:
            create, words = model_of(raw)
            assert words(await create(**question_for(raw))) == "Hello from attempt 2"

    run(main())
    assert len([*server.ledger(url), *server.ledger(aim)]) == 4


@pytest.mark.parametrize("name", ["openai-httpx2", "openai-httpx", "anthropic-httpx2"])
def test_a_raw_response_has_a_report(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,OK"))
    with sdk(name, url, POLICY) as model:
        chat = model.raw.chat.completions if hasattr(model.raw, "chat") else model.raw.messages
        raw = chat.with_raw_response.create(**question_for(model.raw))
        call_report = redouble.report(raw.http_response)
        words = model_of(model.raw)[1](raw.parse())
    assert call_report is not None
    assert (call_report.attempts, words) == (2, "Hello from attempt 2")


@pytest.mark.parametrize("name", ["openai-httpx2", "openai-httpx", "anthropic-httpx2"])
def test_the_sdks_stream_helpers_restart_too(server: Server, name: str) -> None:
    url = server.url(script_of(name, "OK~stream~cut=0,OK"))
    with sdk(name, url, POLICY) as model:
        chat = model.raw.chat.completions if hasattr(model.raw, "chat") else model.raw.messages
        with chat.stream(**question_for(model.raw)) as stream:
            last = stream.get_final_completion() if hasattr(model.raw, "chat") else stream.get_final_message()
    assert model_of(model.raw)[1](last) == "Hello from attempt 2"


# ------------------------------------------------------------------ the SDK's own retries


@every_sdk
def test_retries_of_the_sdk_multiply_those_of_the_transport(server: Server, name: str) -> None:
    """Each attempt of the SDK is a new request with a new key, so the SDK's retries should be off."""
    url = server.url("503~rams=1")
    with sdk(name, url, Retry(backoff=[0] * 9, attempts=2), max_retries=2) as model:
        result = model.ask()
    received = server.ledger(url)
    assert result.error.status_code == 503
    assert [each.headers["x-stainless-retry-count"] for each in received] == ["0", "0", "1", "1", "2", "2"]
    assert len({each.headers["idempotency-key"] for each in received}) == 3
    assert result.report().attempts == 2


@every_sdk
def test_the_sdk_does_not_retry_what_the_transport_retried(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,rst~late,OK"))
    with sdk(name, url, POLICY, max_retries=2) as model:
        assert model.ask().outcome == "Hello from attempt 3"
    assert len(server.ledger(url)) == 3


# ---------------------------------------------------------------------- around the call


@every_sdk
@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        ("503,OK", "Hello from attempt 2"),
        ("500,409,529,OK", "Hello from attempt 4"),
        ("400~h.x-should-retry=true,OK", "Hello from attempt 2"),
        ("rst~late,OK", "Hello from attempt 2"),
        ("OK~cut=5,OK", "Hello from attempt 2"),
        ("429~h.x-should-retry=false,OK", "RateLimitError"),
        (f"429~body={value(QUOTA)},OK", "RateLimitError"),
        ("404,OK", "NotFoundError"),
    ],
)
def test_a_policy_around_an_sdk_without_the_transport(
    server: Server, name: str, script: str, outcome: str
) -> None:
    with sdk(name, server.url(script_of(name, script)), bare=True) as model:
        assert model.ask(around=POLICY).outcome == outcome


@every_sdk
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("ra=7", 7), ("rams=1500", 1.5), ("h.x-ratelimit-reset-requests=6m0s", 360)],
)
def test_a_policy_around_an_sdk_follows_the_hints(
    server: Server, name: str, asked: str, seconds: float
) -> None:
    clock = Virtual()
    policy = Retry(backoff=[0] * 9, clock=clock, give_up_after=None)
    with sdk(name, server.url(script_of(name, f"429~{asked},OK")), bare=True) as model:
        assert model.ask(around=policy).outcome == "Hello from attempt 2"
    assert seconds <= sum(clock.waits) <= 1.1 * seconds


@pytest.mark.parametrize("name", ["openai-httpx2-asyncio", "anthropic-httpx2-trio"])
def test_an_async_method_of_an_sdk_needs_a_coroutine_function_around_it(server: Server, name: str) -> None:
    """The method is a plain function that returns an awaitable, so a retry would not call it again."""
    url = server.url(script_of(name, "OK"))
    with sdk(name, url, bare=True) as model:
        create, _ = model_of(model.raw)

        async def call() -> None:
            with pytest.raises(TypeError, match="decorate or pass a coroutine function"):
                await POLICY.call(create, **question_for(model.raw))

        model.run(call)
    assert server.ledger(url) == []


# ---------------------------------------------------------------------- in both places


@every_sdk
@pytest.mark.parametrize("script", ["rst~late", "503"])
def test_a_policy_around_recognises_that_the_transport_gave_up(
    server: Server, name: str, script: str
) -> None:
    url = server.url(script)
    outer = Retry(backoff=[0] * 9, nested="stop")
    with sdk(name, url, POLICY) as model:
        result = model.ask(around=outer)
    call_report = redouble.report(result.error)
    assert call_report is not None
    assert (call_report.reason, len(server.ledger(url))) == (Reason.nested, 4)


@every_sdk
@pytest.mark.parametrize("script", ["rst~late", "503"])
def test_an_exhausted_budget_of_the_transport_stops_the_outer_policy(
    server: Server, name: str, script: str
) -> None:
    url = server.url(script)
    empty = TokenBucket(1)
    with sdk(name, url, Retry(backoff=[0] * 9, budget=empty)) as model:
        result = model.ask(around=Retry(backoff=[0] * 9, nested="allow"))
    assert result.error is not None
    assert len(server.ledger(url)) == 1


# ---------------------------------------------------------------- transports that retry too


@pytest.mark.parametrize("kind", ["Transport", "AsyncTransport"])
@pytest.mark.parametrize("inside", [False, True])
def test_a_transport_of_httpx_retries_is_refused(kind: str, inside: bool) -> None:
    """Also if it is the other way round: attempts would multiply in any order."""
    retries = library("httpx_retries")
    theirs: Any = retries.RetryTransport(retry=retries.Retry(total=2))
    if inside:
        theirs = retries.RetryTransport(transport=theirs, retry=retries.Retry(total=0))
    with pytest.raises(ValueError, match=r"retries by itself \(RetryTransport\)"):
        getattr(redouble.httpx, kind)(wrapped=theirs)
    getattr(redouble.httpx, kind)(wrapped=retries.RetryTransport(retry=retries.Retry(total=0)))
