"""Whole documents: sections, names, defaults and references."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Hedge,
    Hints,
    RateLimit,
    Retry,
    RetryBudget,
    Throttle,
    Timeout,
    TokenBucket,
    Worker,
    transient,
)
from redouble.config import from_mapping
from redouble.errors import ConfigError

EVERYTHING = tomllib.loads(
    """
    [defaults]
    give_up_after = "20s"

    [budgets.shared]
    ratio = 0.5

    [budgets.tokens]
    type = "token_bucket"
    costs = { throttled = 7, others = 1 }

    [gates]
    db = { type = "bulkhead", limit = 10, wait = "1s" }
    breaker = { type = "circuit_breaker", ratio = 0.5, slow = "2s", name = "the-breaker" }
    paced = { type = "rate_limit", rate = 5 }
    adaptive = { type = "adaptive_rate" }
    limit = { type = "adaptive_concurrency", initial = 7 }
    throttle = { type = "throttle", k = 3 }

    [policies.payments]
    on = ["transient", "ConnectionError"]
    attempts = 5
    timeout = "10s"
    backoff = { type = "exponential", initial = "200ms", maximum = "2s", jitter = "full" }
    hints = { longest = "60s" }
    budget = "shared"
    worker = { kind = "thread", grace = "50ms" }
    labels = { team = "payments" }
    nested = "stop"
    wrap = true

    [policies.others]
    name = "the-others"
    budget = { per_second = 1 }

    [pipelines.checkout]
    layers = [
        { type = "timeout", seconds = "30s" },
        "gates.db",
        "policies.payments",
        { type = "retry", attempts = 2 },
        { type = "hedge", delay = 1, budget = "shared" },
        { type = "timeout", seconds = 2, worker = {} },
    ]
    """
)


def test_a_document_with_every_section_is_parsed() -> None:
    config = from_mapping(EVERYTHING)
    shared = config.budgets["shared"]
    assert isinstance(shared, RetryBudget)
    assert shared.ratio == 0.5
    assert isinstance(config.budgets["tokens"], TokenBucket)
    assert {name: type(gate) for name, gate in config.gates.items()} == {
        "db": Bulkhead,
        "breaker": CircuitBreaker,
        "paced": RateLimit,
        "adaptive": AdaptiveRate,
        "limit": AdaptiveConcurrency,
        "throttle": Throttle,
    }
    assert config.policies["payments"] == Retry(
        on=[transient, ConnectionError],
        attempts=5,
        timeout=10,
        give_up_after=20,
        backoff=Backoff.exponential(0.2).maximum(2).full_jitter(),
        hints=Hints(longest=60),
        budget=shared,
        worker=Worker(grace=0.05),
        labels={"team": "payments"},
        nested="stop",
        wrap=True,
        name="payments",
    )
    layers = config.pipelines["checkout"].layers
    assert layers[:3] == (Timeout(30), config.gates["db"], config.policies["payments"])
    assert layers[3] == Retry(attempts=2, give_up_after=20)
    assert isinstance(layers[4], Hedge)
    assert layers[5] == Timeout(2, worker=Worker())


def test_the_name_of_a_table_is_the_default_name() -> None:
    config = from_mapping(EVERYTHING)
    assert [one.name for one in config.policies.values()] == ["payments", "the-others"]
    gates: Any = config.gates
    assert [gates[name].name for name in ("db", "breaker")] == ["db", "the-breaker"]
    budgets: Any = config.budgets
    assert [budget.name for budget in budgets.values()] == ["shared", "tokens"]
    own: Any = config.policies["others"].budget
    assert (own.name, own.per_second) == (None, 1)


def test_a_configuration_survives_a_round_trip() -> None:
    written = from_mapping(EVERYTHING).to_mapping()
    assert from_mapping(written).to_mapping() == written
    assert "defaults" not in written
    assert set(written) == {"budgets", "gates", "policies", "pipelines"}
    assert from_mapping({}).to_mapping() == {}


def test_a_budget_by_name_is_shared_and_an_inline_one_is_not() -> None:
    tables: dict[str, Any] = {"a": {}, "b": {}, "c": {"budget": "unlimited"}}
    shared = from_mapping({"budgets": {"x": {}}, "defaults": {"budget": "x"}, "policies": tables})
    assert shared.policies["a"].budget is shared.policies["b"].budget is shared.budgets["x"]
    assert shared.policies["c"].budget is None
    own = from_mapping({"defaults": {"budget": {"ratio": 0.1}}, "policies": tables})
    assert own.policies["a"].budget is not own.policies["b"].budget
    assert from_mapping(EVERYTHING).budgets["shared"] is not from_mapping(EVERYTHING).budgets["shared"]


def test_an_option_of_a_policy_replaces_the_default_as_a_whole() -> None:
    config = from_mapping(
        {
            "defaults": {"hints": {"longest": 5}, "attempts": 9, "labels": {"a": "b"}},
            "policies": {"a": {"hints": {"over": 1}, "attempts": 2, "labels": {}}, "b": {}},
        }
    )
    assert config.policies["a"] == Retry(hints=Hints(over=1), attempts=2, name="a")
    assert config.policies["b"] == Retry(hints=Hints(longest=5), attempts=9, labels={"a": "b"}, name="b")


def test_named_returns_a_policy_or_a_pipeline() -> None:
    config = from_mapping(EVERYTHING)
    assert config.named("payments") is config.policies["payments"]
    assert config.named("checkout") is config.pipelines["checkout"]
    with pytest.raises(ConfigError, match="no policy or pipeline 'paymets'; did you mean 'payments'"):
        config.named("paymets")
    unnamed: Any = 5
    with pytest.raises(TypeError, match="name=5: write the name of a policy or a pipeline"):
        config.named(unnamed)
    with pytest.raises(ConfigError, match=r"none is defined$"):
        from_mapping({}).named("a")


def test_a_configuration_is_immutable() -> None:
    config: Any = from_mapping(EVERYTHING)
    for section in ("policies", "budgets", "gates", "pipelines"):
        with pytest.raises(TypeError):
            getattr(config, section)["new"] = 5
    with pytest.raises(AttributeError):
        config.policies = {}
