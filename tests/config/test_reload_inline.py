"""Inline gates and budgets: a reload reconfigures them, and they keep their state."""

from __future__ import annotations

from contextlib import suppress
from operator import is_
from typing import Any, cast

import pytest

from redouble import CircuitBreaker, Pipeline, Retry, TokenBucket, config, policies, stats
from redouble.errors import ConfigError
from tests.support.fakes import Boom


def breaker(**options: object) -> dict[str, object]:
    return {"type": "circuit_breaker", "failures": 1, "name": "inline", **options}


def document(*layers: object, attempts: int = 1) -> dict[str, Any]:
    orders = {"attempts": attempts, "on": "Exception", "backoff": [0]}
    return {"policies": {"orders": orders}, "pipelines": {"checkout": {"layers": list(layers)}}}


def gates() -> list[CircuitBreaker]:
    pipeline = cast("Pipeline", policies("checkout").current)
    return [layer for layer in pipeline.layers if isinstance(layer, CircuitBreaker)]


def fail() -> None:
    raise Boom


def test_an_open_breaker_stays_open_when_its_options_and_a_policy_change() -> None:
    config.load(document("policies.orders", breaker()), environ=None)
    with suppress(Boom):
        policies("checkout").call(fail)
    (before,) = gates()
    assert before.state == "open"
    assert config.reload(document("policies.orders", breaker(cooldown=99), attempts=3)).ok
    assert gates() == [before]
    assert before.state == "open"
    assert cast("float", before.snapshot()["retry_after"]) > 50
    assert [name for name in stats()["breakers"] if name.startswith("inline")] == ["inline"]


@pytest.mark.parametrize(
    ("layers", "kept"),
    [
        ([breaker(), breaker(name="other")], [0, 1]),
        ([breaker(name="other"), breaker()], [1, 0]),
        ([breaker(), breaker()], [0, None]),
        ([breaker(name="new")], [None]),
        ([{"type": "bulkhead", "limit": 3, "name": "inline"}], []),
    ],
)
def test_an_inline_gate_is_kept_by_its_type_and_name(layers: list[object], kept: list[int | None]) -> None:
    config.load(document(breaker(), breaker(name="other")), environ=None)
    before = gates()
    assert config.reload(document(*layers)).ok
    assert [before.index(gate) if gate in before else None for gate in gates()] == kept


def test_an_inline_gate_that_moves_into_a_section_is_a_new_one() -> None:
    config.load(document(breaker()), environ=None)
    (before,) = gates()
    assert config.reload({**document("gates.inline"), "gates": {"inline": breaker()}}).ok
    (after,) = gates()
    assert after is not before


def test_an_inline_budget_keeps_its_tokens() -> None:
    def with_budget(attempts: int, **budget: object) -> dict[str, object]:
        bucket = {"type": "token_bucket", "capacity": 20, "costs": {"others": 5}, **budget}
        return {"policies": {"orders": {"attempts": attempts, "on": "Exception", "budget": bucket}}}

    config.load(with_budget(2), environ=None)
    before = cast("TokenBucket", policies("orders").budget)
    before.spend()
    assert config.reload(with_budget(3, capacity=40)).ok
    assert policies("orders").attempts == 3
    after = cast("TokenBucket", policies("orders").budget)
    assert after is before
    assert after.snapshot() == {"tokens": 15, "owed": 0, "capacity": 40}
    without = {"policies": {"orders": {"attempts": 3}}}
    assert config.reload(without).ok
    assert policies("orders").budget is None


def test_an_unchanged_layer_of_a_changed_pipeline_is_the_same_object() -> None:
    """Even one that cannot be reconfigured, such as a throttle."""
    layers = ({"type": "throttle"}, {"type": "hedge", "delay": 1}, {"type": "timeout", "seconds": 5})
    config.load(document(*layers), environ=None)
    before = cast("Pipeline", policies("checkout").current)
    assert config.reload(document("policies.orders", *layers)).changed == ("pipelines.checkout",)
    after = cast("Pipeline", policies("checkout").current)
    assert all(map(is_, after.layers[1:], before.layers))


def test_an_inline_budget_of_an_inline_policy_keeps_its_tokens() -> None:
    def with_budget(**budget: object) -> dict[str, Any]:
        bucket = {"type": "token_bucket", "capacity": 20, "costs": {"others": 5}, **budget}
        return document({"type": "retry", "attempts": 2, "budget": bucket})

    def budget() -> TokenBucket:
        policy = cast("Retry", cast("Pipeline", policies("checkout").current).layers[0])
        return cast("TokenBucket", policy.budget)

    config.load(with_budget(), environ=None)
    before = budget()
    before.spend()
    assert config.reload(with_budget(capacity=40)).changed == ("pipelines.checkout",)
    assert budget() is before
    assert before.snapshot() == {"tokens": 15, "owed": 0, "capacity": 40}


def test_options_of_a_named_policy_cannot_be_set_in_code() -> None:
    config.load(document(breaker()), environ=None)
    orders = policies("orders")
    with pytest.raises(AttributeError, match="attempts comes from the configuration: change it there"):
        orders.attempts = 3
    assert isinstance(orders.current, Retry)
    assert orders.attempts == 1


def test_the_value_of_an_unknown_key_is_not_in_the_error() -> None:
    for foreign in ({"password": "hunter2"}, "hunter2", ["hunter2"]):
        with pytest.raises(ConfigError) as refused:
            config.from_mapping({"database": foreign})
        assert "hunter2" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"policies\.a\.extra: there is no such key \(its value: a table\)"):
        config.from_mapping({"policies": {"a": {"extra": {"password": "hunter2"}}}})
    with pytest.raises(ConfigError, match=r"policies\.a\.extra: there is no such key \(its value: a list\)"):
        config.from_mapping({"policies": {"a": {"extra": ["hunter2"]}}})


def test_an_option_directly_under_policies_raises_with_a_hint() -> None:
    message = r"policies\.attempts: this is an option: write it under \[defaults\], or \[policies\.NAME\]"
    with pytest.raises(ConfigError, match=message):
        config.from_mapping({"policies": {"attempts": 5}})
    assert config.from_mapping({"policies": {"attempts": {"attempts": 5}}}).policies["attempts"].attempts == 5
