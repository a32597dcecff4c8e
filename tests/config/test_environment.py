"""Environment variables that override a document: their table, their option, and how their text is parsed."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Backoff, Hints, Kind, Retry, Worker, transient
from redouble.config import Config, from_mapping
from redouble.errors import ConfigError

EXPONENTIAL = {"type": "exponential", "initial": 1}

DOCUMENT: dict[str, Any] = {
    "budgets": {"shared": {}, "to-kens": {"type": "token_bucket"}},
    "gates": {"db": {"type": "bulkhead", "limit": 10}, "breaker": {"type": "circuit_breaker"}},
    "policies": {"payments": {"backoff": EXPONENTIAL, "attempts": 2}, "other": {}, "pay.out": {}},
}


def read(document: dict[str, Any] | None = None, /, **environ: str) -> Config:
    return from_mapping(DOCUMENT if document is None else document, environ=environ)


@pytest.mark.parametrize(
    ("key", "text", "options"),
    [
        ("ATTEMPTS", "5", {"attempts": 5}),
        ("ATTEMPTS", " unlimited ", {"attempts": None}),
        ("TIMEOUT", "10", {"timeout": 10}),
        ("TIMEOUT", "250ms", {"timeout": 0.25}),
        ("TIMEOUT", "0s", {"timeout": 0}),
        ("GIVE_UP_AFTER", "unlimited", {"give_up_after": None}),
        ("ATTEMPT_TIMEOUT", "2m", {"attempt_timeout": 120}),
        ("ON", "OSError", {"on": OSError}),
        ("ON", "transient, OSError", {"on": [transient, OSError]}),
        ("WRAP", "true", {"wrap": True}),
        ("NESTED", "stop", {"nested": "stop"}),
        ("NAME", "x y", {"name": "x y"}),
        ("HINTS__LONGEST", "60s", {"hints": Hints(longest=60)}),
        ("HINTS__MODE", "ignore", {"hints": Hints(mode="ignore")}),
        ("HINTS__SPREAD", "0.5", {"hints": Hints(spread=0.5)}),
        ("WORKER__GRACE", "100ms", {"worker": Worker(grace=0.1)}),
        ("WORKER__OVERLAP", "TRUE", {"worker": Worker(overlap=True)}),
        ("LABELS__TEAM", "a b", {"labels": {"team": "a b"}}),
        ("BACKOFF", "0.1, 500ms", {"backoff": [0.1, 0.5]}),
    ],
)
def test_a_variable_sets_an_option_of_a_policy(key: str, text: str, options: Any) -> None:
    config = read(**{f"REDOUBLE_POLICIES__OTHER__{key}": text})
    expected: dict[str, Any] = {"name": "other", **options}
    assert config.policies["other"] == Retry(**expected)
    assert config.policies["pay.out"] == Retry(name="pay.out")


def test_variables_set_options_of_every_section() -> None:
    config: Any = read(
        REDOUBLE_BUDGETS__SHARED__RATIO="0.1",
        REDOUBLE_BUDGETS__TO_KENS__COSTS__THROTTLED="3",
        REDOUBLE_GATES__DB__LIMIT="20",
        REDOUBLE_GATES__DB__WAIT="unlimited",
        REDOUBLE_GATES__BREAKER__REOPENING="0.1,0.5",
        REDOUBLE_DEFAULTS__WORK_TIMEOUT="9",
        REDOUBLE_POLICIES__PAY_OUT__ATTEMPTS="3",
    )
    assert config.budgets["shared"].ratio == 0.1
    assert config.budgets["to-kens"].costs[Kind.throttled] == 3
    assert (config.gates["db"].limit, config.gates["db"].wait) == (20, None)
    assert config.gates["breaker"].settings.reopening == (0.1, 0.5)
    assert {one.work_timeout for one in config.policies.values()} == {9}
    assert config.policies["pay.out"].attempts == 3


def test_a_variable_may_set_a_list_of_layers_or_stages() -> None:
    config = read(
        {**DOCUMENT, "pipelines": {"pipe": {"layers": []}}},
        REDOUBLE_PIPELINES__PIPE__LAYERS="gates.db, policies.other",
        REDOUBLE_POLICIES__PAYMENTS__BACKOFF__THEN="full_jitter",
    )
    assert config.pipelines["pipe"].layers == (config.gates["db"], config.policies["other"])
    assert config.policies["payments"].backoff == Backoff.exponential(1).full_jitter()


def test_a_variable_may_change_the_type() -> None:
    document: dict[str, Any] = {"gates": {"db": {"type": "bulkhead"}}, "policies": {"other": {}}}
    config: Any = read(
        document,
        REDOUBLE_GATES__DB__TYPE="throttle",
        REDOUBLE_GATES__DB__K="3",
        REDOUBLE_POLICIES__OTHER__BUDGET__TYPE="token_bucket",
        REDOUBLE_POLICIES__OTHER__BUDGET__CAPACITY="7",
        REDOUBLE_POLICIES__OTHER__BACKOFF__TYPE="constant",
        REDOUBLE_POLICIES__OTHER__BACKOFF__DELAY="2s",
    )
    assert config.gates["db"].settings.k == 3
    assert config.policies["other"].budget.capacity == 7
    assert config.policies["other"].backoff == Backoff.constant(2)


def test_keys_of_a_backoff_are_merged_over_the_policy_or_the_defaults() -> None:
    changed = {
        "REDOUBLE_POLICIES__PAYMENTS__BACKOFF__MAXIMUM": "5s",
        "REDOUBLE_POLICIES__OTHER__BACKOFF__JITTER": "full",
    }
    config = read({**DOCUMENT, "defaults": {"backoff": {"type": "constant", "delay": 3}}}, **changed)
    assert config.policies["payments"].backoff == Backoff.exponential(1).maximum(5)
    assert config.policies["other"].backoff == Backoff.constant(3).full_jitter()
    assert config.policies["pay.out"].backoff == Backoff.constant(3)
    config = read(
        REDOUBLE_DEFAULTS__BACKOFF__TYPE="constant", REDOUBLE_DEFAULTS__BACKOFF__DELAY="3", **changed
    )
    assert config.policies["other"].backoff == Backoff.constant(3).full_jitter()
    assert DOCUMENT["policies"]["payments"]["backoff"] is EXPONENTIAL
    assert EXPONENTIAL == {"type": "exponential", "initial": 1}


def test_a_variable_changes_one_backoff_of_several_by_kind() -> None:
    by_kind = {"throttled": {"type": "constant", "delay": 3}, "others": [1]}
    config: Any = read(
        {"policies": {"a": {"backoff": by_kind}}}, REDOUBLE_POLICIES__A__BACKOFF__THROTTLED__DELAY="4"
    )
    assert config.policies["a"].backoff[Kind.throttled] == Backoff.constant(4)


def test_existing_labels_keep_their_spelling() -> None:
    document = {"policies": {"a": {"labels": {"Team-Name": "x", "b": "c"}}}}
    config = read(
        document, REDOUBLE_POLICIES__A__LABELS__TEAM_NAME="y", REDOUBLE_POLICIES__A__LABELS__NEW_ONE="z"
    )
    assert config.policies["a"].labels == {"Team-Name": "y", "b": "c", "new_one": "z"}


def test_names_that_contain_each_other_or_options_are_told_apart() -> None:
    document: dict[str, Any] = {
        "policies": {"pay": {}, "pay_attempts": {}, "pay--hints_": {}, "gates_db": {}}
    }
    document["gates"] = {"db": {"type": "bulkhead", "limit": 1}}
    config: Any = read(
        document,
        REDOUBLE_POLICIES__PAY_ATTEMPTS__TIMEOUT="1",
        REDOUBLE_POLICIES__PAY__ATTEMPTS="7",
        REDOUBLE_POLICIES__PAY__HINTS__LONGEST="5",
        REDOUBLE_POLICIES__PAY_HINTS__ATTEMPTS="6",
        REDOUBLE_GATES__DB__LIMIT="9",
        REDOUBLE_POLICIES__GATES_DB__WRAP="true",
    )
    assert config.policies["pay_attempts"].timeout == 1
    assert config.policies["pay"].attempts == 7
    assert config.policies["pay"].hints == Hints(longest=5)
    assert config.policies["pay--hints_"].attempts == 6
    assert config.gates["db"].limit == 9
    assert config.policies["gates_db"].wrap is True


def test_unrelated_variables_are_ignored() -> None:
    others = {
        "REDOUBLE_FOO": "1",
        "REDOUBLE_TEST_PORT": "5",
        "REDOUBLE_": "x",
        "REDOUBLE": "y",
        "PAYMENTS_ON": "z",
    }
    assert read(**others).policies == read().policies
    assert from_mapping(DOCUMENT).policies == read().policies


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "POLICIES__PAYMENTS__ATEMPTS",
            "5",
            "there is no such key (its value: '5'); did you mean 'attempts'",
        ),
        (
            "POLICIES__PAYMENTS__HINTS__LONGST",
            "5",
            "there is no such key (its value: '5'); did you mean 'longest'",
        ),
        ("POLICIES__PAYMENTS__CLOCK", "5", "'5': this can only be set in code"),
        ("POLICIES__PAYMENTS__UNTIL", "5", "'5' is not known; write 'http', or name your own rule with"),
        ("GATES__DB__LIMITS", "5", "did you mean 'limit'"),
        ("DEFAULTS__NAME", "x", "there is no such key"),
        ("DEFAULTS__ATTEMPTS__X", "5", "{'x': '5'}: write a whole number"),
        (
            "POLICIES__PAYMNTS__ATTEMPTS",
            "5",
            "[policies] has nothing named 'PAYMNTS'; did you mean 'PAYMENTS'",
        ),
        ("POLICIES__PAYMNTS__BACKOFF__MAXIMUM", "5", "[policies] has nothing named 'PAYMNTS'"),
        ("POLICIES__", "5", "[policies] has nothing named '';"),
        ("GATES__BD__LIMIT", "5", "[gates] has nothing named 'BD'; write one of BREAKER, DB"),
        ("BUDGETS__SHARD__RATIO", "5", "did you mean 'SHARED'"),
        ("PIPELINES__CHECKOUT__LAYERS", "5", "[pipelines] has nothing named 'CHECKOUT'; none is defined"),
        ("POLICY__PAYMENTS__ATTEMPTS", "5", "the document has no section 'POLICY'; did you mean 'POLICIES'"),
        (
            "PAYMENTS__ATTEMPTS",
            "5",
            "the document has no section 'PAYMENTS'; write one of BUDGETS, DEFAULTS,",
        ),
        (
            "PAYMENTS_ATTEMPTS",
            "5",
            "write __ between the elements of the path: REDOUBLE_POLICIES__PAYMENTS__AT",
        ),
        ("POLICIES_PAYMENTS_ATTEMPTS", "5", "write __ between the elements of the path"),
        ("GATES_DB_LIMIT", "5", "write __ between the elements of the path"),
        ("GATES__DB", "5", "'5' is not a table"),
        ("POLICIES__PAYMENTS__ATTEMPTS", "0", "0: write a whole number, 1 for no retries"),
        (
            "POLICIES__PAYMENTS__ATTEMPTS",
            "x",
            "'x': write a whole number, 1 for no retries (the first attempt counts), or 'unlimited'",
        ),
        ("POLICIES__PAYMENTS__ATTEMPTS", "5.0", "'5.0': write a whole number"),
        ("POLICIES__PAYMENTS__ATTEMPTS", "true", "'true': write a whole number"),
        ("POLICIES__PAYMENTS__TIMEOUT", "0", "0: with a limit of 0 seconds nothing could run"),
        ("POLICIES__PAYMENTS__TIMEOUT", "nan", "'nan' is no duration"),
        ("POLICIES__PAYMENTS__TIMEOUT", "", "'' is no duration"),
        ("POLICIES__PAYMENTS__WRAP", "1", "'1': write true or false"),
        ("POLICIES__PAYMENTS__NESTED", "x", "write one of allow, stop, warn"),
        ("POLICIES__PAYMENTS__ON", "OsError", "did you mean 'OSError'"),
        ("POLICIES__PAYMENTS__HINTS", "at_least", "'at_least' is not a table"),
        ("POLICIES__PAYMENTS__BACKOFF", "1,x", "'x' is no duration"),
        ("POLICIES__PAYMENTS__BACKOFF__LOW", "1", "there is no such key"),
        ("POLICIES__PAYMENTS__BACKOFF__THEN", "full_jittr", "did you mean 'full_jitter'"),
        ("POLICIES__PAYMENTS__BUDGET", "shard", "did you mean 'shared'"),
        ("POLICIES__OTHER__BACKOFF__MAXIMUM", "5", "missing: write one of constant"),
        ("POLICIES__OTHER__BACKOFF__TYPE", "exponential", "missing: the first delay"),
        ("GATES__DB__LIMIT", "0", "0: write a whole number, 1 or more"),
        ("GATES__DB__TYPE", "x", "write one of"),
        ("GATES__BREAKER__WINDOW", "0", "write more seconds, such as 30"),
        ("POLICIES__PAYMENTS__ATTEMPT_TIMEOUT", "0s", "no attempt could succeed"),
    ],
)
def test_a_wrong_variable_raises_with_its_name(variable: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(**{f"REDOUBLE_{variable}": text})
    assert message in str(raised.value)
    assert raised.value.path == f"REDOUBLE_{variable}"


@pytest.mark.parametrize(
    ("path", "value", "variable"),
    [
        ("policies.a.backoff", "[1]", "POLICIES__A__BACKOFF__MAXIMUM"),
        ("policies.a.budget", "'shared'", "POLICIES__A__BUDGET__RATIO"),
        ("pipelines.p.layers", "[]", "PIPELINES__P__LAYERS__LAST"),
    ],
)
def test_a_value_without_keys_cannot_be_changed_by_key(path: str, value: str, variable: str) -> None:
    document: dict[str, Any] = {**DOCUMENT, "policies": {"a": {"backoff": [1], "budget": "shared"}}}
    document["pipelines"] = {"p": {"layers": []}}
    with pytest.raises(ConfigError) as raised:
        read(document, **{f"REDOUBLE_{variable}": "5"})
    assert str(raised.value) == f"{path}: {value} has no keys, and REDOUBLE_{variable} sets one"


def test_a_variable_may_set_a_whole_value_and_no_key_of_it_too() -> None:
    with pytest.raises(
        ConfigError, match="'1,2' has no keys, and REDOUBLE_POLICIES__OTHER__BACKOFF__TAKE sets"
    ):
        read(REDOUBLE_POLICIES__OTHER__BACKOFF="1,2", REDOUBLE_POLICIES__OTHER__BACKOFF__TAKE="1")


@pytest.mark.parametrize("environ", [5, [], {"REDOUBLE_A_WRAP": 5}, {5: "A"}])
def test_environ_must_be_a_mapping_of_texts(environ: Any) -> None:
    with pytest.raises(TypeError, match=r"^environ.*write a mapping of texts to texts, such as os\.environ"):
        from_mapping({}, environ=environ)


def test_an_ambiguous_variable_is_an_error() -> None:
    document: dict[str, Any] = {"policies": {"pay-ments": {}, "pay_ments": {}}}
    with pytest.raises(ConfigError, match=r"fits policies\.pay-ments and policies\.pay_ments") as raised:
        read(document, REDOUBLE_POLICIES__PAY_MENTS__ATTEMPTS="5")
    assert raised.value.path == "REDOUBLE_POLICIES__PAY_MENTS__ATTEMPTS"
    assert read(document).policies["pay-ments"].attempts == 4


DOCUMENTS: list[Any] = [
    ({"policies": {"a": 5}}, "POLICIES__A__ATTEMPTS", "policies.a"),
    ({"gates": {"a": {"limit": 5}}}, "GATES__A__LIMIT", "gates.a.type"),
    ({"gates": {"a": 5}}, "GATES__A__LIMIT", "gates.a"),
    ({"policies": 5}, "POLICIES__A__ATTEMPTS", "policies"),
    ({"policies": {"a": {"labels": {5: "x"}}}}, "POLICIES__A__ATTEMPTS", "policies.a.labels"),
]


@pytest.mark.parametrize(("document", "variable", "path"), DOCUMENTS)
def test_a_mistake_in_the_document_has_the_path_there(document: Any, variable: str, path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(document, **{f"REDOUBLE_{variable}": "5"})
    assert raised.value.path == path
