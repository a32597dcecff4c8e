"""Spend and metrics of SDK calls through an `llm.Model`, with the usage that the SDK reports."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Reason, llm
from redouble.instruments import memory
from tests.support.llm.sdk_models import (
    HELLO,
    IGNORE_UNCLOSED_GENERATORS,
    USAGE,
    SdkClient,
    Server,
    every_stream,
    every_way,
    model,
)

pytestmark = IGNORE_UNCLOSED_GENERATORS

PRICE = llm.Price(input=1_000_000, output=10_000_000)  # one token costs 1 or 10
LABELS = {"provider": "acme", "model": "m"}


def allowance(tokens: int = 1000) -> llm.Spend:
    return llm.Spend(tokens=tokens, cost=10_000, requests=10, warn_at=None)


def paying(spend: llm.Spend, reserve: int = 100) -> llm.Model:
    return model("acme", spend=spend, reserve=reserve, price=PRICE)


def taken(spend: llm.Spend) -> tuple[float, float, float]:
    """Return the spent tokens, cost and requests, after checking that nothing is reserved."""
    snapshot = spend.snapshot()
    assert snapshot["tokens_reserved"] == snapshot["cost_reserved"] == snapshot["requests_reserved"] == 0
    return snapshot["tokens"], snapshot["cost"], snapshot["requests"]


# ------------------------------------------------------------------------------- spend


@every_way
def test_the_usage_that_the_sdk_reports_counts(server: Server, sdk_client: SdkClient, how: str) -> None:
    """Once per call, regardless of the number of attempts."""
    spend, said = allowance(), {} if how == "call" else sdk_client.usage_options()
    url = server.url(sdk_client.script("503,429~rams=1,OK"))
    assert sdk_client.ask(how, paying(spend), url, **said).outcome == f"{HELLO} 3"
    assert taken(spend) == (USAGE.total, USAGE.input + 10 * USAGE.output, 1)


@every_stream
def test_a_stream_without_usage_counts_as_reserved(server: Server, sdk_client: SdkClient, how: str) -> None:
    spend = allowance()
    assert sdk_client.ask(how, paying(spend), server.url(sdk_client.script("OK"))).outcome == f"{HELLO} 1"
    assert taken(spend)[0] == (100 if sdk_client.kind == "openai" else USAGE.total)


@every_way
@pytest.mark.parametrize("script", ["401", "503"])
def test_a_failed_call_uses_a_request_and_no_tokens(
    server: Server, sdk_client: SdkClient, how: str, script: str
) -> None:
    spend = allowance()
    result = sdk_client.ask(how, paying(spend), server.url(script))
    assert result.error.status_code == int(script)
    assert taken(spend) == (0, 0, 1)


@every_stream
def test_a_stream_closed_early_counts_its_usage_so_far(
    server: Server, sdk_client: SdkClient, how: str
) -> None:
    """Or the whole reservation, if the stream has not reported the prompt's tokens."""
    spend = allowance()
    url = server.url(sdk_client.script("OK"))
    result = sdk_client.ask(how, paying(spend), url, most=4)
    assert len(result.chunks) == 4
    tokens = taken(spend)[0]
    assert USAGE.input < tokens < USAGE.total if sdk_client.kind == "anthropic" else tokens == 100


@every_way
def test_without_an_allowance_nothing_is_sent(server: Server, sdk_client: SdkClient, how: str) -> None:
    spend, url = allowance(tokens=150), server.url(sdk_client.script("OK"))
    spend.reserve(tokens=51).commit()  # by another caller
    result = sdk_client.ask(how, paying(spend), url)
    assert (result.outcome, result.error.what, server.ledger(url)) == ("SpendRefused", "tokens", [])
    call_report = result.report()
    assert (call_report.attempts, call_report.labels) == (0, LABELS)
    assert taken(spend) == (51, 0, 1)


@every_stream
def test_a_stream_that_exceeds_the_allowance_is_stopped_and_closed(sdk_client: SdkClient, how: str) -> None:
    spend = allowance(
        tokens=9 if sdk_client.kind == "anthropic" else 2
    )  # anthropic reports the prompt's tokens at the start
    with Server() as server:
        url = server.url(sdk_client.script("OK,OK"))
        result = sdk_client.ask(how, paying(spend, reserve=1), url)
        assert (result.outcome, result.error.what) == ("SpendExceeded", "tokens")
        assert result.text == "Hello from"
        assert (result.report().reason, len(server.ledger(url))) == (Reason.committed, 1)
        server.wait_until_open(0)


# ------------------------------------------------------------------------------- metrics


def series(metrics: memory.Metrics, name: str) -> list[tuple[dict[str, str], Any]]:
    """Return all series of a metric, without the label ``name``."""
    found = metrics.series().get(name, {})
    return [({k: v for k, v in labels if k != "name"}, told) for labels, told in found.items()]


@every_way
@pytest.mark.parametrize(
    ("script", "reasons"),
    [
        ("OK", {}),
        ("503,500,OK", {"http_5xx": 2}),
        ("429~rams=1,529,rst~late,OK", {"rate_limit": 1, "overloaded": 1, "network": 1}),
        ("409,408,OK", {"conflict": 1, "timeout": 1}),
    ],
)
def test_metrics_of_a_successful_call(
    server: Server, sdk_client: SdkClient, how: str, script: str, reasons: dict[str, int]
) -> None:
    with memory.instrument() as metrics:
        result = sdk_client.ask(how, model("acme"), server.url(sdk_client.script(script)))
    assert result.outcome == f"{HELLO} {1 + sum(reasons.values())}"
    assert series(metrics, "calls") == [({"ok": "true", **LABELS}, 1)]
    assert series(metrics, "errors") == []
    assert series(metrics, "retries") == [({"reason": why, **LABELS}, n) for why, n in reasons.items()]
    assert metrics.histogram("call_duration", **LABELS)[0] == 1
    assert len(series(metrics, "time_to_first_item")) == (how != "call")


@every_way
@pytest.mark.parametrize(("script", "attempts"), [("401", 1), ("503", 4), ("429", 4)])
def test_metrics_of_a_failed_call(
    server: Server, sdk_client: SdkClient, how: str, script: str, attempts: int
) -> None:
    url = server.url(script)
    with memory.instrument() as metrics:
        sdk_client.ask(how, model("acme"), url)
    assert series(metrics, "calls") == [({"ok": "false", **LABELS}, 1)]
    assert series(metrics, "errors") == [({"code": script, **LABELS}, 1)]
    assert sum(count for _, count in series(metrics, "retries")) == attempts - 1
    assert metrics.counter("attempts", **LABELS) == attempts == len(server.ledger(url))
    assert metrics.histogram("call_duration", **LABELS)[0] == 1
    assert series(metrics, "time_to_first_item") == []


@every_stream
def test_metrics_of_a_broken_stream(server: Server, sdk_client: SdkClient, how: str) -> None:
    with memory.instrument() as metrics:
        result = sdk_client.ask(how, model("acme"), server.url(sdk_client.script("503,OK~end=3")))
    assert result.outcome == "CutShort"
    assert series(metrics, "calls") == [({"ok": "false", **LABELS}, 1)]
    assert series(metrics, "errors") == [({"code": "CutShort", **LABELS}, 1)]
    assert series(metrics, "retries") == [({"reason": "http_5xx", **LABELS}, 1)]
    for name in ("call_duration", "time_to_first_item"):
        assert metrics.histogram(name, **LABELS)[0] == 1


def test_metrics_are_separate_for_each_model(server: Server, sdk_client: SdkClient) -> None:
    with memory.instrument() as metrics:
        for provider in ("acme", "other"):
            sdk_client.call(model(provider), server.url(sdk_client.script("503,OK")))
    assert [labels["provider"] for labels, _ in series(metrics, "calls")] == ["acme", "other"]
    assert [labels["provider"] for labels, _ in series(metrics, "retries")] == ["acme", "other"]
