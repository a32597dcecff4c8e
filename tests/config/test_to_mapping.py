"""Objects written as plain mappings: only options that are not defaults; what cannot be written raises."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Backoff,
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Coalesce,
    Fallback,
    Hedge,
    Hints,
    Kind,
    Pipeline,
    RateLimit,
    Retry,
    RetryBudget,
    Throttle,
    Timeout,
    TokenBucket,
    Worker,
    transient,
)
from redouble.config import Config, from_mapping, policy, to_mapping
from redouble.errors import ConfigError
from tests.support.fakes import Ledger, Virtual


@pytest.mark.parametrize(
    ("thing", "written"),
    [
        (Retry(), {}),
        (Retry(attempts=5, timeout=10), {"attempts": 5, "timeout": 10}),
        (Retry(attempts=None, timeout=0), {"attempts": "unlimited", "timeout": "0s"}),
        (Retry(give_up_after=None, work_timeout=0.5), {"give_up_after": "unlimited", "work_timeout": 0.5}),
        (Retry(hints=Hints(longest=5, spread=0)), {"hints": {"longest": 5, "spread": 0}}),
        (Retry(worker=Worker()), {"worker": {}}),
        (Retry(worker=Worker("process", overlap=True)), {"worker": {"kind": "process", "overlap": True}}),
        (
            Retry(worker=Worker(limit=20, wait=None, name="io")),
            {"worker": {"limit": 20, "wait": "unlimited", "name": "io"}},
        ),
        (Retry(budget=RetryBudget()), {"budget": {"type": "retry_budget"}}),
        (Retry(name="a", labels={"b": "c"}), {"name": "a", "labels": {"b": "c"}}),
        (Retry(nested="stop", wrap=True, on=[OSError]), {"nested": "stop", "wrap": True, "on": ["OSError"]}),
        (Retry(backoff=[1, 2.5]), {"backoff": [1, 2.5]}),
    ],
)
def test_a_policy_is_written(thing: Retry, written: dict[str, object]) -> None:
    assert to_mapping(thing) == written
    assert to_mapping(policy(written)) == written


EVERY: list[tuple[Any, dict[str, object]]] = [
    (RetryBudget(), {"type": "retry_budget"}),
    (
        RetryBudget(0.5, 1, 5, "request"),
        {"type": "retry_budget", "ratio": 0.5, "per_second": 1, "window": 5, "credit": "request"},
    ),
    (
        RetryBudget(None, max_in_flight=0.2, minimum=1),
        {"type": "retry_budget", "ratio": "unlimited", "max_in_flight": 0.2, "minimum": 1},
    ),
    (
        TokenBucket(9, {Kind.network: 2}, 3, 4, "wait"),
        {
            "type": "token_bucket",
            "capacity": 9,
            "costs": {"others": 5, "network": 2},
            "success_increment": 3,
            "refill_per_second": 4,
            "when_empty": "wait",
        },
    ),
    (Bulkhead(5), {"type": "bulkhead", "limit": 5}),
    (
        Bulkhead(5, None, 2, name="a"),
        {"type": "bulkhead", "limit": 5, "wait": "unlimited", "queue": 2, "name": "a"},
    ),
    (CircuitBreaker(), {"type": "circuit_breaker"}),
    (
        CircuitBreaker(OSError, 2, 0.5, 10, 4, 1, 5, 2, (0.1, 0.5), name="a"),
        {
            "type": "circuit_breaker",
            "on": "OSError",
            "failures": 2,
            "ratio": 0.5,
            "window": 10,
            "minimum": 4,
            "slow": 1,
            "cooldown": 5,
            "probes": 2,
            "reopening": [0.1, 0.5],
            "name": "a",
        },
    ),
    (
        CircuitBreaker(
            ratio=0.5,
            calls=100,
            slow=2,
            slow_ratio=0.8,
            cooldown=Backoff.exponential(5).maximum(300).equal_jitter(),
            probes=10,
            probe_ratio=0.3,
            state="metrics_only",
        ),
        {
            "type": "circuit_breaker",
            "ratio": 0.5,
            "calls": 100,
            "slow": 2,
            "slow_ratio": 0.8,
            "cooldown": {"type": "exponential", "initial": 5, "maximum": 300, "jitter": "equal"},
            "probes": 10,
            "probe_ratio": 0.3,
            "state": "metrics_only",
        },
    ),
    (CircuitBreaker(cooldown=(5, 20)), {"type": "circuit_breaker", "cooldown": [5, 20]}),
    (
        RateLimit(5, 2, 3, 4, following=True),
        {"type": "rate_limit", "rate": 5, "per": 2, "burst": 3, "wait": 4, "following": True},
    ),
    (AdaptiveRate(), {"type": "adaptive_rate"}),
    (
        AdaptiveRate(OSError, 5, 2, name="a"),
        {"type": "adaptive_rate", "on": "OSError", "wait": 5, "least": 2, "name": "a"},
    ),
    (AdaptiveConcurrency(), {"type": "adaptive_concurrency"}),
    (
        AdaptiveConcurrency(5, 2, 9, "aimd", 2, transient, slow=3, relearn=7),
        {
            "type": "adaptive_concurrency",
            "initial": 5,
            "least": 2,
            "most": 9,
            "by": "aimd",
            "window": 2,
            "on": "transient",
            "slow": 3,
            "relearn": 7,
        },
    ),
    (
        Throttle(3, 5, 0.9, 7, (OSError,)),
        {"type": "throttle", "k": 3, "window": 5, "most": 0.9, "minimum": 7, "on": ["OSError"]},
    ),
    (Timeout(5), {"type": "timeout", "seconds": 5}),
    (Timeout(5, Worker(grace=1)), {"type": "timeout", "seconds": 5, "worker": {"grace": 1}}),
    (Fallback(value="none"), {"type": "fallback", "value": "none"}),
    (
        Fallback(value=[1, {"a": 2}], on=OSError, name="a"),
        {"type": "fallback", "value": [1, {"a": 2}], "on": "OSError", "name": "a"},
    ),
    (Fallback.stale(60), {"type": "stale_fallback", "max_age": 60}),
    (
        Fallback.stale(60, most=5, on=OSError, name="a"),
        {"type": "stale_fallback", "max_age": 60, "most": 5, "on": "OSError", "name": "a"},
    ),
    (Coalesce(), {"type": "coalesce"}),
    (Coalesce(name="a"), {"type": "coalesce", "name": "a"}),
    (Hedge(), {"type": "hedge"}),
    (
        Hedge(1, None, hedges=2, on=OSError, budget=RetryBudget(), name="a"),
        {
            "type": "hedge",
            "delay": 1,
            "max_extra_load": "unlimited",
            "hedges": 2,
            "on": "OSError",
            "budget": {"type": "retry_budget"},
            "name": "a",
        },
    ),
    (
        Hedge([0.5, 1], hedges=2, failover=True, worker=Worker(grace=0)),
        {"type": "hedge", "delay": [0.5, 1], "hedges": 2, "failover": True, "worker": {"grace": 0}},
    ),
    (
        Hedge(1, hedges=3, different=[{"region": "eu"}, {"region": "us", "tries": 1}]),
        {
            "type": "hedge",
            "delay": 1,
            "hedges": 3,
            "different": [{"region": "eu"}, {"region": "us", "tries": 1}],
        },
    ),
    (
        Hedge(1, different={"region": "eu"}),
        {"type": "hedge", "delay": 1, "different": {"region": "eu"}},
    ),
    (
        Hedge(minimum=9, shortest=0.5, longest=2),
        {"type": "hedge", "minimum": 9, "shortest": 0.5, "longest": 2},
    ),
]


@pytest.mark.parametrize(("thing", "written"), EVERY, ids=lambda value: type(value).__name__)
def test_a_budget_or_layer_is_written_and_read_back(thing: object, written: dict[str, Any]) -> None:
    assert to_mapping(thing) == written
    if hasattr(thing, "spend"):
        assert to_mapping(from_mapping({"budgets": {"a": written}}).budgets["a"]) == {"name": "a", **written}
    else:
        pipeline = from_mapping({"pipelines": {"p": {"layers": [written]}}}).pipelines["p"]
        assert to_mapping(pipeline.layers[0]) == written


def test_a_pipeline_is_written_and_read_back() -> None:
    written = to_mapping(Timeout(30) | Bulkhead(10) | Retry(attempts=2))
    assert written == {
        "layers": [
            {"type": "timeout", "seconds": 30},
            {"type": "bulkhead", "limit": 10},
            {"type": "retry", "attempts": 2},
        ]
    }
    assert to_mapping(from_mapping({"pipelines": {"p": written}})) == {"pipelines": {"p": written}}
    assert to_mapping(Pipeline()) == {"layers": []}


def test_a_configuration_is_written_with_references_to_its_own_objects() -> None:
    policies = {"a": {"budget": "b"}, "c": {"name": "other"}}
    document = {
        "budgets": {"b": {"type": "retry_budget"}},
        "gates": {"g": {"type": "bulkhead", "limit": 1}},
        "policies": policies,
        "pipelines": {"p": {"layers": ["gates.g", "policies.a", {"type": "hedge", "budget": "b"}]}},
    }
    config = from_mapping(document)
    assert to_mapping(config) == config.to_mapping() == document
    by_hand = Config(config.policies, {}, {}, {})
    assert by_hand.to_mapping()["policies"] == {
        **policies,
        "a": {"budget": {"type": "retry_budget", "name": "b"}},
    }
    shared = RetryBudget()
    view = Config({"a": Retry(budget=shared.without_credit())}, {"b": shared}, {}, {}).to_mapping()
    assert view["policies"] == {"a": {"budget": {"without_credit": "b"}}}
    assert Config(**vars(from_mapping(view))).to_mapping() == view
    gates = {"g": Bulkhead(2), "h": Bulkhead(3, name="h")}
    assert Config({}, {}, gates, {}).to_mapping() == {
        "gates": {"g": {"type": "bulkhead", "limit": 2}, "h": {"type": "bulkhead", "limit": 3}}
    }


@pytest.mark.parametrize(
    ("thing", "path", "message"),
    [
        (Retry(until=bool), "until", "has no name in documents: give it one with redouble.config.register"),
        (Retry(on_retry=print), "on_retry", "set on_retry in code"),
        (Retry(clock=Virtual()), "clock", "set clock in code"),
        (Retry(random=Random(1)), "random", "set random in code"),
        (Retry(on=lambda error: True), "on", "has no name in documents"),
        (Retry(backoff=range(3)), "backoff", "an iterable of your own"),
        (Retry(budget=Ledger()), "budget", "write one of RetryBudget, TokenBucket, or set it in code"),
        (
            Retry(budget=TokenBucket.grpc()),
            "budget",
            "write one of RetryBudget, TokenBucket, or set it in code",
        ),
        (Retry(budget=RetryBudget().without_credit()), "budget", "write one of RetryBudget, TokenBucket, or"),
        (CircuitBreaker(on_change=print), "on_change", "set on_change in code"),
        (CircuitBreaker(random=Random(1)), "random", "set random in code"),
        (CircuitBreaker(clock=Virtual()), "clock", "set clock in code"),
        (Throttle(random=Random(1)), "random", "set random in code"),
        (AdaptiveConcurrency(random=Random(1)), "random", "set random in code"),
        (Hedge(until=len), "until", "has no name in documents"),
        (Hedge(float), "delay", "cannot be written to a document: set it in code"),
        (Hedge(different=float), "different", "cannot be written to a document: set it in code"),
        (Hedge(hedges=2, different=[{"a": 1}, repr]), "different", "cannot be written to a document: set it"),
        (Hedge(different={"a": object()}), "different.a", "cannot be written to a document: set it in code"),
        (Retry() | Chaos(latency=1), "layers.1", "cannot be written to a document"),
        (Pipeline(Fallback(repr)), "layers.0.fns", "set fns in code"),
        (Fallback(value=object()), "value", "cannot be written to a document: set it in code"),
        (Fallback(value={1: 2}), "value", "cannot be written to a document: set it in code"),
        (Fallback.stale(60, key=repr), "key", "set key in code"),
        (Fallback.stale(60, mark=max), "mark", "set mark in code"),
        (RateLimit(1, cost=len), "cost", "is a function: set it in code, or write a number"),
        (Coalesce(repr), "key", "set key in code"),
        (Pipeline(Retry(until=bool)), "layers.0.until", "bool has no name in documents"),
        (type("Own", (Bulkhead,), {})(1), "", "cannot be written to a document"),
        (type("Own", (Retry,), {})(), "", "cannot be written to a document"),
        (5, "", "cannot be written to a document"),
        (Backoff.of(range(3)), "", "an iterable of your own"),
    ],
)
def test_an_option_for_code_alone_cannot_be_written(thing: object, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        to_mapping(thing)
    assert raised.value.path == path
