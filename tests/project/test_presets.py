"""`redouble.presets`: the values of each preset, and options that replace them."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields, replace
from typing import Any

import pytest

from redouble import (
    Backoff,
    Hints,
    Kind,
    Retry,
    RetryBudget,
    TokenBucket,
    presets,
    transient,
)
from tests.support.presets import ALL, first
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

EACH = pytest.mark.parametrize("name", ALL)


def full(initial: float, maximum: float) -> Backoff:
    return Backoff.exponential(initial).maximum(maximum).full_jitter()


AWS: dict[str, Any] = {
    "attempts": 3,
    "backoff": {Kind.throttled: full(1, 20), None: full(0.05, 20)},
    "hints": Hints(over=5, spread=0),
    "give_up_after": None,
}

NUMBERS: dict[str, dict[str, Any]] = {
    "http": {"attempts": 3, "backoff": full(0.1, 5), "give_up_after": 30},
    "aws_standard": AWS,
    "aws_adaptive": AWS,
    "grpc": {
        "attempts": 4,
        "backoff": Backoff.exponential(0.1).maximum(1).jitter(0.2),
        "hints": Hints(mode="instead", spread=0),
        "give_up_after": None,
    },
    "httpware": {
        "attempts": 3,
        "backoff": full(0.1, 5),
        "hints": Hints(mode="instead", longest=5, spread=0),
        "give_up_after": None,
    },
    "finagle": {"on": presets._unsent, "attempts": None, "backoff": Backoff.constant(0)},
    "database": {"attempts": 4, "backoff": full(0.05, 1), "give_up_after": 10},
    "polling": {
        "attempts": None,
        "backoff": Backoff.exponential(1).maximum(30).equal_jitter(),
        "give_up_after": 300,
    },
    "llm": {"attempts": 4, "backoff": full(0.2, 2), "timeout": 30},
}

BUDGETS: dict[str, Any] = {
    "http": RetryBudget(0.2, 10, 10, "success"),
    "aws_standard": TokenBucket(500, {Kind.throttled: 5, None: 14}),
    "aws_adaptive": TokenBucket(500, {Kind.throttled: 5, None: 14}),
    "grpc": TokenBucket.grpc(10, 0.1),
    "httpware": RetryBudget(0.2, 10, 10, "request"),
    "finagle": RetryBudget(0.2, 10, 10, "request"),
    "database": RetryBudget(0.2, 10, 10, "success"),
    "polling": None,
    "llm": RetryBudget(0.2, 10, 10, "success"),
}


@EACH
def test_the_values_of_each_preset(name: str) -> None:
    """All other options have the defaults of `Retry`."""
    policy = first(ALL[name]())
    assert replace(policy, budget=None) == type(policy)(**NUMBERS[name])
    assert repr(first(ALL[name]()).budget) == repr(BUDGETS[name])


@EACH
def test_each_policy_of_a_preset_has_its_own_budget(name: str) -> None:
    """Each call of a preset creates a policy with a new budget."""
    one, other = first(ALL[name]()), first(ALL[name]())
    assert one is not other
    assert (one.budget is other.budget) is (one.budget is None)
    shared = RetryBudget()
    assert first(ALL[name](budget=shared)).budget is shared
    assert first(ALL[name](budget=None)).budget is None


@EACH
def test_options_replace_the_values(name: str) -> None:
    policy = first(ALL[name](attempts=2, backoff=[9], give_up_after=99, on=KeyError, name="mine"))
    assert (policy.attempts, [*policy.backoff], policy.give_up_after) == (2, [9], 99)
    assert (policy.on, policy.name) == (KeyError, "mine")
    usual = first(ALL[name]())
    assert (policy.hints, policy.timeout) == (usual.hints, usual.timeout)


@EACH
def test_wrong_options_raise(name: str) -> None:
    """Options are validated like those of `Retry`."""
    preset: Any = ALL[name]
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'attemps'"):
        preset(attemps=2)
    with pytest.raises(ValueError, match=r"^attempts=0: write a whole number"):
        preset(attempts=0)
    with pytest.raises(TypeError, match=r"^timeout='2s': write seconds as a number"):
        preset(timeout="2s")


@EACH
def test_options_must_be_keywords(name: str) -> None:
    """A preset that is not called cannot be used as a decorator."""
    preset: Any = ALL[name]
    for wrong in (3, test_the_values_of_each_preset):
        with pytest.raises(TypeError, match=rf"write presets\.{name}\(attempts=2\)"):
            preset(wrong)


@EACH
def test_the_signature_shows_the_options_with_their_values(name: str) -> None:
    """And help() shows it."""
    preset = ALL[name]
    signature = inspect.signature(preset)
    assert signature.return_annotation is type(preset())
    assert preset.__annotations__ == {"return": type(preset())}
    assert list(signature.parameters) == [option.name for option in fields(Retry)]
    assert all(option.kind is option.KEYWORD_ONLY for option in signature.parameters.values())
    usual = first(preset())
    for option in ("attempts", "give_up_after", "timeout", "hints", "backoff"):
        assert signature.parameters[option].default == getattr(usual, option)
    assert (preset.__name__, preset.__module__, preset.__qualname__) == (name, "redouble.presets", name)
    doc = inspect.getdoc(preset) or ""
    assert doc.splitlines()[0].endswith((".", ":"))
    assert name in pydoc.render_doc(preset)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("http", "httpware"),
        ("http", "Finagle"),
        ("aws_standard", "botocore and smithy-kotlin"),
        ("aws_adaptive", "adaptive mode"),
        ("grpc", "gRPC service config"),
        ("httpware", "reference"),
        ("finagle", "Finagle"),
        ("database", "AWS"),
        ("llm", "llm-fiber"),
    ],
)
def test_the_docstring_names_the_source_of_the_values(name: str, source: str) -> None:
    assert source in (inspect.getdoc(ALL[name]) or "")


def test_the_rule_of_every_other_preset_is_transient() -> None:
    """`finagle` retries a part of what `transient` retries."""
    assert {first(preset()).on for name, preset in ALL.items() if name != "finagle"} == {transient}
