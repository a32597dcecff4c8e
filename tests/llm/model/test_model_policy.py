"""The policies and time limits that a model derives, and its copies for one call."""

from __future__ import annotations

import pickle
from random import Random
from typing import Any

import pytest

from redouble import Backoff, Retry, Worker, presets, transient
from redouble.llm import Model, Spend, Timeouts, table
from redouble.llm._rules import ModelRule
from tests.support.llm.scripted_model import LABELS, Service, ask, every_shape, model_of


def test_the_defaults_are_those_of_the_decision_record() -> None:
    policy = Model("openai", "gpt-5").policy
    assert policy is not None
    assert (policy.attempts, policy.backoff) == (4, Backoff.exponential(0.2).maximum(2).full_jitter())
    assert repr(policy) == repr(presets.llm())


@pytest.mark.parametrize("stream", [False, True])
def test_the_derived_policies_keep_the_options_of_the_policy(stream: bool) -> None:
    policy = Retry(attempts=7, labels={"team": "chat"}, name="talk", give_up_after=5, nested="allow")
    model = model_of(policy=policy, timeouts=Timeouts(read=3, first=8, total=20))
    derived = model._streams if stream else model._calls
    assert (derived.attempts, derived.name, derived.nested) == (7, "talk", "allow")
    assert derived.labels == {"team": "chat", **LABELS}
    assert (derived.timeout, derived.attempt_timeout) == (20, 8 if stream else None)
    assert derived.give_up_after == 5
    assert derived.worker == model.worker


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({}, 10),
        ({"timeouts": 3}, 3),
        ({"timeouts": 60}, 60),
        ({"timeouts": Timeouts()}, 30),
        ({"timeouts": None}, None),
    ],
)
def test_without_timeouts_the_limit_of_the_policy_applies(
    options: dict[str, Any], total: float | None
) -> None:
    model = model_of(policy=Retry(timeout=10), **options)
    assert isinstance(model.timeouts, Timeouts)
    assert (model.timeouts.total, model._calls.timeout, model._streams.timeout) == (total, total, total)


def test_the_shorter_of_two_attempt_limits_applies() -> None:
    policy = Retry(attempt_timeout=2)
    assert model_of(policy=policy)._streams.attempt_timeout == 2
    assert model_of(policy=policy, timeouts=Timeouts(read=1))._streams.attempt_timeout == 1
    assert model_of(policy=policy, timeouts=Timeouts(read=1))._calls.attempt_timeout == 2
    assert model_of(timeouts=None)._streams.attempt_timeout is None


def test_give_up_after_is_dropped_if_there_is_a_total() -> None:
    assert model_of(policy=Retry())._calls.give_up_after is None
    assert model_of(policy=Retry(), timeouts=None)._calls.give_up_after == 30
    assert model_of(policy=Retry())._calls.nested == "stop"


def test_the_worker_of_the_policy_wins() -> None:
    mine = Worker(grace=1)
    assert model_of(policy=Retry(worker=mine))._calls.worker is mine
    assert model_of(policy=Retry(worker=mine))._streams.worker is mine
    assert model_of(worker=None)._calls.worker is None


def test_rules_of_the_policy_replace_the_table() -> None:
    def rules(on: Any) -> Any:
        word = model_of(policy=Retry(on=on))._calls.on
        assert isinstance(word, ModelRule)
        return word.rules

    assert rules(transient) == rules(table)
    assert rules(KeyError) != rules(table)


# -------------------------------------------------------------------------------- in calls


@every_shape
def test_attempts_and_delays_are_those_of_the_decision_record(colour: str, shape: str) -> None:
    """Full jitter: up to 0.2 s, 0.4 s and 0.8 s; delays of both halves of each range occur."""
    halves: set[tuple[int, bool]] = set()
    model = Model("openai", "gpt-5", policy=presets.llm(random=Random(1)))
    for _ in range(8):
        service = Service(ConnectionError())
        seen = ask(colour, shape, model, service)
        assert (service.calls, seen.report.reason) == (4, "attempts")
        assert len(seen.delays) == 3
        for number, (delay, most) in enumerate(zip(seen.delays, (0.2, 0.4, 0.8), strict=True)):
            assert 0 <= delay <= most
            halves.add((number, delay > most / 2))
    assert len(halves) == 6


# ------------------------------------------------------------------------------ as a value


def test_models_are_frozen_and_compared_by_value() -> None:
    one, other = model_of(timeouts=60), model_of(timeouts=60)
    assert one == other
    assert {one, other} == {one}
    assert one != model_of(timeouts=61)
    with pytest.raises(AttributeError):
        one.model = "gpt-6"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    assert repr(one).startswith("Model(provider='openai', model='gpt-5', timeouts=Timeouts(connect=5.0, ")
    assert "_calls" not in repr(one)


def test_within_changes_the_limits_alone() -> None:
    spend = Spend(tokens=9)
    model = model_of(spend=spend, reserve=1, policy=presets.llm(timeout=None), idempotency="auto")
    shorter = model.within(3)
    assert (shorter.timeouts, model.timeouts) == (Timeouts(3, 3, 3), Timeouts())
    assert (shorter.spend, shorter.policy, shorter.idempotency) == (spend, model.policy, "auto")
    assert shorter.policy is model.policy  # and the same budget


def test_a_model_and_its_rule_are_values() -> None:
    model = Model("openai", "x", policy=Retry(timeout=3))
    assert pickle.loads(pickle.dumps(model)).model == "x"
    assert hash(model._calls.on) == hash(Model("openai", "x", policy=Retry(timeout=3))._calls.on)
