"""Mistakes in documents: each error has the path, the value, and what was probably meant."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from redouble import Retry
from redouble._internal.validation import nearest
from redouble.config import from_mapping, policy
from redouble.config._document_path import DocPath, rewrite, short_repr
from redouble.errors import ConfigError

MISTAKES: list[Any] = [
    ({"policie": {}}, "policie", "did you mean 'policies'"),
    ({"attempts": 5}, "attempts", r"this is an option: write it under \[defaults\], or"),
    ({"policies": 5}, "policies", "5 is not a table"),
    ({"policies": {"a": 5}}, "policies.a", "5 is not a table"),
    ({"policies": {"a.b": 5}}, 'policies."a.b"', "5 is not a table"),
    ({"policies": {"a": {"atempts": 5}}}, "policies.a.atempts", r"\(its value: 5\); did you mean 'attempts'"),
    (
        {"policies": {"a": {"qqq": 5}}},
        "policies.a.qqq",
        "write one of attempt_timeout, attempts,",
    ),
    ({"policies": {"a": {"attempts": 0}}}, "policies.a.attempts", "1 for no retries.*or 'unlimited'$"),
    ({"policies": {"a": {"attempt_timeout": "0s"}}}, "policies.a.attempt_timeout", "no attempt could"),
    ({"policies": {"": {}}}, 'policies.""', "this name is not allowed"),
    ({"budgets": {"unlimited": {}}}, "budgets.unlimited", "this name is not allowed"),
    ({"defaults": {"name": "a"}}, "defaults.name", "no such key"),
    ({"defaults": {"timeout": 0}}, "defaults.timeout", "'0s'"),
    ({"policies": {"a": {"budget": "b"}}}, "policies.a.budget", r"the document has no \[budgets\]$"),
    (
        {"budgets": {"shared": {}}, "policies": {"a": {"budget": "shard"}}},
        "policies.a.budget",
        "'shard' is not in .*; did you mean 'shared'",
    ),
    ({"policies": {"a": {"budget": {"type": "tokens"}}}}, "policies.a.budget.type", "token_bucket"),
    ({"policies": {"a": {"budget": 5}}}, "policies.a.budget", "5 is not a table"),
    ({"policies": {"a": {"hints": {"longst": 5}}}}, "policies.a.hints.longst", "'longest'"),
    ({"policies": {"a": {"worker": {"kind": "fiber"}}}}, "policies.a.worker.kind", "process, thread"),
    ({"gates": {"a": {"limit": 5}}}, "gates.a.type", "missing: write one of bulkhead"),
    ({"gates": {"a": {"type": "bulkhead"}}}, "gates.a.limit", "missing: how many calls may be in flight"),
    ({"gates": {"a": {"type": "circuit_breaker", "reopening": [1.5]}}}, "gates.a.reopening.0", "from 0 to 1"),
    ({"gates": {"a": {"type": "bulkhed"}}}, "gates.a.type", "did you mean 'bulkhead'"),
    ({"budgets": {"a": {"credit": "x"}}}, "budgets.a.credit", "write one of request, success"),
    (
        {"budgets": {"a": {"type": "token_bucket", "costs": {"throtled": 5}}}},
        "budgets.a.costs.throtled",
        "'throttled'",
    ),
    (
        {"budgets": {"a": {"type": "token_bucket", "when_empty": "wait"}}},
        "budgets.a.when_empty",
        "would wait for ever",
    ),
    (
        {"defaults": {"budget": {"type": "token_bucket", "when_empty": "wait"}}, "policies": {"a": {}}},
        "defaults.budget.when_empty",
        "would wait for ever",
    ),
    ({"policies": {"a": {}}, "pipelines": {"a": {"layers": []}}}, "pipelines.a", "rename one"),
    ({"pipelines": {"a": {}}}, "pipelines.a.layers", "missing"),
    ({"pipelines": {"a": {"layers": "gates.x"}}}, "pipelines.a.layers", "write a list such as"),
    ({"pipelines": {"a": {"layers": ["gates.x"]}}}, "pipelines.a.layers.0", "the document has no .gates.$"),
    ({"pipelines": {"a": {"layers": ["pipelines.b"]}}}, "pipelines.a.layers.0", "holds no other one"),
    (
        {"policies": {"b": {}}, "pipelines": {"a": {"layers": ["policies.b", "policies.b"]}}},
        "pipelines.a.layers.1",
        "policies.b is in it twice",
    ),
    ({"pipelines": {"a": {"layers": ["x"]}}}, "pipelines.a.layers.0", "write 'gates.' or 'policies.'"),
    ({"pipelines": {"a": {"layers": [{}]}}}, "pipelines.a.layers.0.type", "missing"),
    (
        {"pipelines": {"a": {"layers": [{"type": "retry", "atempts": 5}]}}},
        "pipelines.a.layers.0.atempts",
        "'attempts'",
    ),
    (
        {"pipelines": {"a": {"layers": [{"type": "hedge", "different": 5}]}}},
        "pipelines.a.layers.0.different",
        "5 is not a table: write a table of arguments, such as { region = 'eu' }",
    ),
    (
        {"pipelines": {"a": {"layers": [{"type": "hedge", "until": 5}]}}},
        "pipelines.a.layers.0.until",
        "5: write the name of a rule in quotes, such as 'http'",
    ),
]


@pytest.mark.parametrize(("document", "path", "message"), MISTAKES)
def test_a_mistake_raises_with_its_path(document: Any, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        from_mapping(document)
    assert raised.value.path == path
    assert str(raised.value).startswith(f"{path}: ")
    assert pickle.loads(pickle.dumps(raised.value)).path == path


def test_defaults_that_do_not_fit_are_reported_at_the_policy() -> None:
    """The path is that of the policy, because the key is in the defaults and not in the policy."""
    defaults = {"attempts": "unlimited", "give_up_after": "unlimited"}
    with pytest.raises(ConfigError, match="would retry for ever") as raised:
        from_mapping({"defaults": defaults, "policies": {"a": {"wrap": True}}})
    assert raised.value.path == "policies.a"
    with pytest.raises(ConfigError, match="attempts='unlimited' would retry for ever") as raised:
        policy({"attempts": None, "give_up_after": None})
    assert raised.value.path == "attempts"


@pytest.mark.parametrize("document", [5, None, [], "policies", {5: {}}, {("a",): 5}])
def test_a_document_must_be_a_table(document: Any) -> None:
    with pytest.raises(ConfigError, match=r"is not a table.*: write a document, such as tomllib"):
        from_mapping(document)


@pytest.mark.parametrize("table", [5, None, [], "attempts"])
def test_a_policy_must_be_a_table(table: Any) -> None:
    with pytest.raises(ConfigError, match="is not a table"):
        policy(table)


def test_a_policy_alone_cannot_refer_to_a_named_budget() -> None:
    with pytest.raises(ConfigError, match=r"^budget: 'shared' is not in \[budgets\]"):
        policy({"budget": "shared"})
    assert policy({"budget": {"ratio": 0.5}}).budget is not None
    assert policy({}) == Retry()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        ("a", "'a'"),
        (10**5000, "a huge integer"),
        (-(10**70), repr(-(10**70))),
        ([1, [2, [3, [4]]]], "[1, [2, [...]]]"),
        (None, "None"),
    ],
    ids=["number", "text", "huge", "large", "deep", "none"],
)
def test_short_repr_abbreviates_values(value: Any, text: str) -> None:
    assert short_repr(value) == text


def test_short_repr_accepts_a_huge_integer_inside() -> None:
    assert len(short_repr([10**5000])) < 80


@pytest.mark.parametrize("value", ["x" * 999, ["x" * 70] * 9, {"x" * 70: "y" * 70}])
def test_short_repr_cuts_long_values(value: object) -> None:
    assert len(short_repr(value)) <= 80
    assert "..." in short_repr(value)


def test_nearest_suggests_a_similar_name_or_lists_all() -> None:
    assert nearest("atempts", ["attempts", "timeout"]) == "did you mean 'attempts'?"
    assert nearest("x", ["b", "a"]) == "write one of a, b"
    assert nearest("x", []) == "none is defined"
    assert nearest("x", (f"n{i:03}" for i in range(100))).endswith(", n029...")
    assert nearest("attempts" * 1000, ["attempts"]) == "write one of attempts"


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ((), ""),
        (("a", "b-c", "d_1"), "a.b-c.d_1"),
        (("a b", "", "é\n"), '"a b".""."é\\n"'),
        (("x" * 99,), "x" * 99),
    ],
)
def test_keys_are_joined_and_quoted_to_a_path(keys: tuple[str, ...], path: str) -> None:
    assert DocPath(keys).path == path


def test_rewrite_changes_the_text_of_the_same_error() -> None:
    error = ConfigError("is wrong", path="a.b")
    rewrite(error, end=" (in x.toml)")
    assert (str(error), error.path) == ("a.b: is wrong (in x.toml)", "a.b")
    rewrite(error, path="REDOUBLE_A_B")
    assert (str(error), error.path) == ("REDOUBLE_A_B: is wrong (in x.toml)", "REDOUBLE_A_B")
    bare = ConfigError("is wrong")
    rewrite(bare, end=" here")
    assert (str(bare), bare.path) == ("is wrong here", "")
