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
        ("HINTS_LONGEST", "60s", {"hints": Hints(longest=60)}),
        ("HINTS_MODE", "ignore", {"hints": Hints(mode="ignore")}),
        ("HINTS_SPREAD", "0.5", {"hints": Hints(spread=0.5)}),
        ("WORKER_GRACE", "100ms", {"worker": Worker(grace=0.1)}),
        ("WORKER_OVERLAP", "TRUE", {"worker": Worker(overlap=True)}),
        ("LABELS_TEAM", "a b", {"labels": {"team": "a b"}}),
        ("BACKOFF", "0.1, 500ms", {"backoff": [0.1, 0.5]}),
    ],
)
def test_a_variable_sets_an_option_of_a_policy(key: str, text: str, options: Any) -> None:
    config = read(**{f"REDOUBLE_OTHER_{key}": text})
    expected: dict[str, Any] = {"name": "other", **options}
    assert config.policies["other"] == Retry(**expected)
    assert config.policies["pay.out"] == Retry(name="pay.out")


def test_variables_set_options_of_every_section() -> None:
    config: Any = read(
        REDOUBLE_BUDGETS_SHARED_RATIO="0.1",
        REDOUBLE_BUDGETS_TO_KENS_COSTS_THROTTLED="3",
        REDOUBLE_GATES_DB_LIMIT="20",
        REDOUBLE_GATES_DB_WAIT="unlimited",
        REDOUBLE_GATES_BREAKER_REOPENING="0.1,0.5",
        REDOUBLE_DEFAULTS_WORK_TIMEOUT="9",
        REDOUBLE_PAY_OUT_ATTEMPTS="3",
    )
    assert config.budgets["shared"].ratio == 0.1
    assert config.budgets["to-kens"].costs[Kind.throttled] == 3
    assert (config.gates["db"].limit, config.gates["db"].wait) == (20, None)
    assert config.gates["breaker"].settings.reopening == (0.1, 0.5)
    assert {one.work_timeout for one in config.policies.values()} == {9}
    assert config.policies["pay.out"].attempts == 3


def test_a_variable_may_change_the_type() -> None:
    document: dict[str, Any] = {"gates": {"db": {"type": "bulkhead"}}, "policies": {"other": {}}}
    config: Any = read(
        document,
        REDOUBLE_GATES_DB_TYPE="throttle",
        REDOUBLE_GATES_DB_K="3",
        REDOUBLE_OTHER_BUDGET_TYPE="token_bucket",
        REDOUBLE_OTHER_BUDGET_CAPACITY="7",
        REDOUBLE_OTHER_BACKOFF_TYPE="constant",
        REDOUBLE_OTHER_BACKOFF_DELAY="2s",
    )
    assert config.gates["db"].settings.k == 3
    assert config.policies["other"].budget.capacity == 7
    assert config.policies["other"].backoff == Backoff.constant(2)


def test_keys_of_a_backoff_are_merged_over_the_policy_or_the_defaults() -> None:
    changed = {"REDOUBLE_PAYMENTS_BACKOFF_MAXIMUM": "5s", "REDOUBLE_OTHER_BACKOFF_JITTER": "full"}
    config = read({**DOCUMENT, "defaults": {"backoff": {"type": "constant", "delay": 3}}}, **changed)
    assert config.policies["payments"].backoff == Backoff.exponential(1).maximum(5)
    assert config.policies["other"].backoff == Backoff.constant(3).full_jitter()
    assert config.policies["pay.out"].backoff == Backoff.constant(3)
    config = read(REDOUBLE_DEFAULTS_BACKOFF_TYPE="constant", REDOUBLE_DEFAULTS_BACKOFF_DELAY="3", **changed)
    assert config.policies["other"].backoff == Backoff.constant(3).full_jitter()
    assert DOCUMENT["policies"]["payments"]["backoff"] is EXPONENTIAL
    assert EXPONENTIAL == {"type": "exponential", "initial": 1}


def test_a_variable_changes_one_backoff_of_several_by_kind() -> None:
    by_kind = {"throttled": {"type": "constant", "delay": 3}, "others": [1]}
    config: Any = read({"policies": {"a": {"backoff": by_kind}}}, REDOUBLE_A_BACKOFF_THROTTLED_DELAY="4")
    assert config.policies["a"].backoff[Kind.throttled] == Backoff.constant(4)


def test_existing_labels_keep_their_spelling() -> None:
    document = {"policies": {"a": {"labels": {"Team-Name": "x", "b": "c"}}}}
    config = read(document, REDOUBLE_A_LABELS_TEAM_NAME="y", REDOUBLE_A_LABELS_NEW_ONE="z")
    assert config.policies["a"].labels == {"Team-Name": "y", "b": "c", "new_one": "z"}


def test_the_longest_matching_name_wins() -> None:
    document: dict[str, Any] = {"policies": {"pay": {}, "pay_attempts": {}, "pay_hints": {}, "gates_db": {}}}
    document["gates"] = {"db": {"type": "bulkhead", "limit": 1}}
    config: Any = read(
        document,
        REDOUBLE_PAY_ATTEMPTS_TIMEOUT="1",
        REDOUBLE_PAY_ATTEMPTS="7",
        REDOUBLE_PAY_HINTS_LONGEST="5",
        REDOUBLE_GATES_DB_LIMIT="9",
        REDOUBLE_GATES_DB_WRAP="true",
    )
    assert config.policies["pay_attempts"].timeout == 1
    assert config.policies["pay"].attempts == 7
    assert config.policies["pay"].hints == Hints(longest=5)  # `pay_hints` has no option `longest`
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
        ("PAYMENTS_ATEMPTS", "5", "policies.payments has no option ATEMPTS; did you mean 'ATTEMPTS'"),
        ("PAYMENTS_HINTS_LONGST", "5", "has no option HINTS_LONGST"),
        ("PAYMENTS_UNTIL", "5", "has no option UNTIL"),
        ("GATES_DB_LIMITS", "5", "gates.db has no option LIMITS; did you mean 'LIMIT'"),
        ("DEFAULTS_NAME", "x", "defaults has no option NAME"),
        ("PAYMNTS_ATTEMPTS", "5", "the configuration has nothing named PAYMNTS; did you mean 'PAYMENTS'"),
        ("PAYMNTS_BACKOFF_MAXIMUM", "5", "the configuration has nothing named PAYMNTS"),
        ("PAYMNTS_LABELS_TEAM", "5", "the configuration has nothing named PAYMNTS"),
        ("GATES_BD_LIMIT", "5", "nothing named GATES_BD; did you mean 'GATES_DB'"),
        ("BUDGETS_SHARD_RATIO", "5", "did you mean 'BUDGETS_SHARED'"),
        ("POLICIES_PAYMENTS_ATTEMPTS", "5", "no prefix POLICIES_: write REDOUBLE_PAYMENTS_ATTEMPTS"),
        ("ATTEMPTS", "5", "name the owner of the option: REDOUBLE_DEFAULTS_ATTEMPTS sets it for all"),
        ("HINTS_LONGEST", "5", "REDOUBLE_DEFAULTS_HINTS_LONGEST"),
        ("PAYMENTS_ATTEMPTS", "0", "0: write a whole number, 1 for no retries"),
        ("PAYMENTS_ATTEMPTS", "5.0", "'5.0': write a whole number"),
        ("PAYMENTS_ATTEMPTS", "true", "'true': write a whole number"),
        ("PAYMENTS_TIMEOUT", "0", "0: with a limit of 0 seconds nothing could run"),
        ("PAYMENTS_TIMEOUT", "nan", "'nan' is no duration"),
        ("PAYMENTS_TIMEOUT", "", "'' is no duration"),
        ("PAYMENTS_WRAP", "1", "'1': write true or false"),
        ("PAYMENTS_NESTED", "x", "write one of allow, stop, warn"),
        ("PAYMENTS_ON", "OsError", "did you mean 'OSError'"),
        ("PAYMENTS_HINTS", "at_least", "'at_least' is not a table"),
        ("PAYMENTS_BACKOFF", "1,x", "'x' is no duration"),
        ("PAYMENTS_BACKOFF_LOW", "1", "there is no such key"),
        ("PAYMENTS_BUDGET", "shard", "did you mean 'shared'"),
        ("OTHER_BACKOFF_MAXIMUM", "5", "has no type"),
        (
            "OTHER_BACKOFF_TYPE",
            "exponential",
            "missing: a backoff of type 'exponential' must",
        ),
        ("GATES_DB_LIMIT", "0", "0: write a whole number, 1 or more"),
        ("GATES_DB_TYPE", "x", "write one of"),
        ("GATES_BREAKER_WINDOW", "0", "write more seconds, such as 30"),
        ("PAYMENTS_ATTEMPT_TIMEOUT", "0s", "no attempt could succeed"),
    ],
)
def test_a_wrong_variable_raises_with_its_name(variable: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(**{f"REDOUBLE_{variable}": text})
    assert message in str(raised.value)
    assert raised.value.path == f"REDOUBLE_{variable}"


def test_a_value_without_keys_cannot_be_changed_by_key() -> None:
    document: dict[str, Any] = {**DOCUMENT, "policies": {"a": {"backoff": [1], "budget": "shared"}}}
    with pytest.raises(ConfigError, match=r"policies\.a\.backoff is \[1\], which has no keys"):
        read(document, REDOUBLE_A_BACKOFF_MAXIMUM="5")
    with pytest.raises(ConfigError, match=r"policies\.a\.budget is 'shared', which has no keys"):
        read(document, REDOUBLE_A_BUDGET_RATIO="5")


@pytest.mark.parametrize("environ", [5, [], {"REDOUBLE_A_WRAP": 5}, {5: "A"}])
def test_environ_must_be_a_mapping_of_texts(environ: Any) -> None:
    with pytest.raises(TypeError, match=r"^environ.*write a mapping of texts to texts, such as os\.environ"):
        from_mapping({}, environ=environ)


def test_an_ambiguous_variable_is_an_error() -> None:
    document: dict[str, Any] = {"policies": {"pay-ments": {}, "pay_ments": {}}}
    with pytest.raises(ConfigError, match=r"fits policies\.pay-ments and policies\.pay_ments") as raised:
        read(document, REDOUBLE_PAY_MENTS_ATTEMPTS="5")
    assert raised.value.path == "REDOUBLE_PAY_MENTS_ATTEMPTS"
    assert read(document).policies["pay-ments"].attempts == 4


DOCUMENTS: list[Any] = [
    ({"policies": {"a": 5}}, "A_ATTEMPTS", "policies.a"),
    ({"gates": {"a": {"limit": 5}}}, "GATES_A_LIMIT", "gates.a.type"),
    ({"gates": {"a": 5}}, "GATES_A_LIMIT", "gates.a"),
    ({"policies": 5}, "A_ATTEMPTS", "policies"),
    ({"policies": {"a": {"labels": {5: "x"}}}}, "A_ATTEMPTS", "policies.a.labels"),
]


@pytest.mark.parametrize(("document", "variable", "path"), DOCUMENTS)
def test_a_mistake_in_the_document_has_the_path_there(document: Any, variable: str, path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(document, **{f"REDOUBLE_{variable}": "5"})
    assert raised.value.path == path
