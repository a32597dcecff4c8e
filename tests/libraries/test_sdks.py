"""The SDKs of OpenAI and Anthropic with redouble's transports, and a server that plays their protocols."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redouble import Kind, Reason, Retry, http
from tests.support.fakes import Virtual
from tests.support.llm.sdk_clients import KEY, PROMPT, Server, every_sdk, refused_port, script_of, sdk, value

AT_ONCE = [0] * 9
SOON = 0.1  # the read timeout for a silent server, in seconds
THEIR_STATUSES = {408, 409, 429, 500, 502, 503, 504, 529}  # statuses that both SDKs retry by themselves

both_ways = pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])


def quickly(**options: Any) -> Retry:
    arguments: dict[str, Any] = {"backoff": AT_ONCE, **options}
    return Retry(**arguments)


# ---------------------------------------------------------------------- resent requests


@every_sdk
@both_ways
@pytest.mark.parametrize(
    ("script", "attempts"),
    [
        ("OK", 1),
        ("503,OK", 2),
        ("408,502,504,OK", 4),
        ("529*2,OK", 3),
        ("429~rams=1,OK", 2),
        ("400~h.x-should-retry=true,OK", 2),
        ("rst~late,OK", 2),
        ("close~late,OK", 2),
        ("garbage,OK", 2),
        ("cuthead=9,rsthead=9,OK", 3),
        ("503~cut=3,OK", 2),
    ],
)
def test_a_retried_call_returns_one_answer(
    server: Server, name: str, stream: bool, script: str, attempts: int
) -> None:
    url = server.url(script_of(name, script))
    with sdk(name, url, quickly()) as model:
        result = model.ask(stream=stream)
    assert result.outcome == f"Hello from attempt {attempts}"
    assert (result.report().attempts, result.report().reason) == (attempts, None)
    assert len(server.ledger(url)) == attempts
    assert len(result.answers) == 1


@every_sdk
@pytest.mark.parametrize("fault", ["cut=0", "cut=5", "rst=5", "badchunk=5"])
def test_a_broken_response_that_is_not_streamed_is_retried(server: Server, name: str, fault: str) -> None:
    url = server.url(script_of(name, f"OK~{fault},503,OK"))
    with sdk(name, url, quickly()) as model:
        result = model.ask()
    assert result.outcome == "Hello from attempt 3"
    assert len(server.ledger(url)) == result.report().attempts == 3


@every_sdk
@both_ways
@pytest.mark.parametrize("script", ["503", "429", "529"])
def test_the_last_failed_response_becomes_the_error_of_the_sdk(
    server: Server, name: str, stream: bool, script: str
) -> None:
    url = server.url(script, key=f"last-{name}-{stream}-{script}")
    with sdk(name, url, quickly(attempts=3)) as model, sdk(name, url, bare=True) as plain:
        result, alone = model.ask(stream=stream), plain.ask(stream=stream)
    assert result.outcome == alone.outcome
    assert result.error.status_code == int(script)
    assert (result.report().reason, result.report().attempts) == (Reason.attempts, 3)
    assert result.error.response is result.answers[0]
    assert result.error.response.json() == {"ok": False, "step": 3}
    assert len(server.ledger(url)) == 4


@every_sdk
def test_the_last_network_error_becomes_the_connection_error_of_the_sdk(server: Server, name: str) -> None:
    url = server.url("rst~late")
    with sdk(name, url, quickly(attempts=3)) as model:
        result = model.ask()
    assert result.outcome == "APIConnectionError"
    assert (result.report().reason, result.report().attempts) == (Reason.attempts, 3)
    assert [note for note in result.cause.__notes__ if "gave up after 3 attempts" in note]
    assert len(server.ledger(url)) == 3


@every_sdk
@pytest.mark.parametrize("script", ["400", "401", "404", "422", "429~h.x-should-retry=false", "500", "409"])
def test_other_statuses_are_not_retried(server: Server, name: str, script: str) -> None:
    """Nor are 500 and 409, which the SDKs retry: a transport does not know the service."""
    url = server.url(script_of(name, f"{script},OK"))
    with sdk(name, url, quickly()) as model:
        result = model.ask()
    assert result.error.status_code == int(script.partition("~")[0])
    assert result.report().attempts == len(server.ledger(url)) == 1


@every_sdk
@pytest.mark.parametrize("status", sorted(THEIR_STATUSES))
def test_a_rule_may_retry_the_statuses_of_the_sdks(server: Server, name: str, status: int) -> None:
    url = server.url(script_of(name, f"{status},OK"))
    with sdk(name, url, quickly(on=http.rule(statuses=THEIR_STATUSES))) as model:
        assert model.ask().outcome == "Hello from attempt 2"


@every_sdk
def test_a_rule_may_read_the_body_of_a_failed_response(server: Server, name: str) -> None:
    """The body is in memory, in async code too."""

    def spent(error: Exception) -> bool | None:
        response: Any = getattr(error, "response", None)
        return False if response is not None and b"insufficient_quota" in response.read() else None

    quota = value('{"error": {"code": "insufficient_quota", "message": "spent"}}')
    url = server.url(script_of(name, f"429,429~body={quota},OK"))
    with sdk(name, url, quickly(on=[spent, http.rule()])) as model:
        result = model.ask()
    assert result.outcome == "RateLimitError"
    assert (result.report().reason, len(server.ledger(url))) == (Reason.stopped, 2)


# ----------------------------------------------------------------------------- hints


@every_sdk
@both_ways
@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("ra=7", 7),
        ("rams=1500", 1.5),
        ("ra=7~rams=1500", 1.5),
        ("h.x-ratelimit-reset-requests=20ms", 0.02),
        ("h.x-ratelimit-remaining-requests=0~h.x-ratelimit-reset-requests=6m0s", 360),
    ],
)
def test_the_delay_is_never_shorter_than_the_hint(
    server: Server, name: str, stream: bool, asked: str, seconds: float
) -> None:
    clock = Virtual()
    url = server.url(script_of(name, f"429~{asked},OK"))
    with sdk(name, url, quickly(clock=clock, give_up_after=None)) as model:
        result = model.ask(stream=stream)
    assert result.outcome == "Hello from attempt 2"
    assert result.report().history[0].hint == seconds
    assert seconds <= sum(clock.waits) <= 1.1 * seconds


@every_sdk
def test_a_hint_that_is_too_long_ends_the_call_at_once(server: Server, name: str) -> None:
    clock = Virtual()
    url = server.url(script_of(name, "429~ra=3600,OK"))
    with sdk(name, url, quickly(clock=clock)) as model:
        result = model.ask()
    assert result.outcome == "RateLimitError"
    assert (result.report().reason, result.report().history[0].hint, clock.waits) == (
        Reason.timeout,
        3600,
        [],
    )


# ------------------------------------------------------------------------------- keys


@every_sdk
@both_ways
def test_without_a_key_a_call_is_not_resent(server: Server, name: str, stream: bool) -> None:
    """The SDKs do not send one themselves."""
    url = server.url(script_of(name, "503,OK"))
    with sdk(name, url, quickly(), idempotency=None) as model:
        result = model.ask(stream=stream)
    assert result.error.status_code == 503
    assert (result.report().reason, result.report().attempts) == (Reason.stopped, 1)
    (received,) = server.ledger(url)
    assert "idempotency-key" not in received.headers


@every_sdk
def test_an_unsent_request_is_resent_without_a_key(name: str) -> None:
    with sdk(name, f"http://127.0.0.1:{refused_port()}/", quickly(), idempotency=None) as model:
        result = model.ask()
    assert result.outcome == "APIConnectionError"
    assert result.report().attempts == 4


@every_sdk
def test_a_rule_may_allow_resending_a_post(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,OK"))
    with sdk(name, url, quickly(on=http.rule(methods={"POST"})), idempotency=None) as model:
        assert model.ask().outcome == "Hello from attempt 2"


@every_sdk
def test_each_call_has_one_key(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,OK~cut=5,OK,503,OK"))
    with sdk(name, url, quickly()) as model:
        assert [model.ask().outcome for _ in range(2)] == ["Hello from attempt 3", "Hello from attempt 5"]
    keys = [received.headers["idempotency-key"] for received in server.ledger(url)]
    assert [len(set(keys[:3])), len(set(keys[3:])), len(set(keys))] == [1, 1, 2]


@every_sdk
def test_the_callers_own_key_is_kept(server: Server, name: str) -> None:
    url = server.url(script_of(name, "503,OK"))
    with sdk(name, url, quickly()) as model:
        model.ask(extra_headers={"Idempotency-Key": "order-7"})
    assert [received.headers["idempotency-key"] for received in server.ledger(url)] == ["order-7"] * 2


# ------------------------------------------------------------------------------- time


@every_sdk
@pytest.mark.parametrize("script", ["stall", "stallhead=9", "OK~stall=5", "OK~drip=0.05", "OK~driphead=0.05"])
@pytest.mark.parametrize("where", ["policy", "deadline"])
def test_the_timeout_of_the_sdk_shrinks_to_the_time_left(
    server: Server, name: str, script: str, where: str
) -> None:
    url = server.url(script_of(name, script))
    policy = quickly(timeout=SOON) if where == "policy" else quickly()
    with sdk(name, url, policy) as model:
        result = model.ask(within=None if where == "policy" else SOON)
    assert result.outcome == "APITimeoutError"
    assert result.report().reason == Reason.timeout


@every_sdk
@both_ways
@pytest.mark.parametrize("whose", ["the policy's", "the SDK's"])
def test_each_attempt_has_its_own_timeout(server: Server, name: str, stream: bool, whose: str) -> None:
    url = server.url(script_of(name, "stall,OK"))
    ours, theirs = (SOON, None) if whose == "the policy's" else (None, SOON)
    with sdk(name, url, quickly(attempts=9, attempt_timeout=ours), timeout=theirs) as model:
        result = model.ask(stream=stream)
    assert result.text.startswith("Hello from attempt")
    assert result.report().history[0].kind == Kind.timeout


# ---------------------------------------------------------------------------- secrets


@every_sdk
@pytest.mark.parametrize("script", ["503", "rst~late"])
def test_reports_and_logs_contain_neither_api_key_nor_prompt(
    server: Server, name: str, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[object] = []
    hooks = dict.fromkeys(("on_failure", "on_retry", "on_give_up"), events.append)
    with caplog.at_level(logging.DEBUG, "redouble"), sdk(name, server.url(script), quickly(**hooks)) as model:
        result = model.ask()
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("redouble")]
    published = f"{result.report()} {events} {logged} {getattr(result.cause, '__notes__', ())}"
    assert len(events) == 8
    assert KEY not in published
    assert PROMPT not in published
