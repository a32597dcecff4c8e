"""Property tests: any document is parsed or raises `ConfigError`, and a parsed one survives a round trip."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble.config import Config, from_mapping, from_qubit, policy, to_mapping
from redouble.config._options.catalogue import RETRY
from redouble.config._options.values import Value
from redouble.config._qubit_retry_compat import KEYS
from redouble.errors import ConfigError
from tests.support.config.documents import (
    ANYTHING,
    WORD,
    backoffs,
    documents,
    is_list,
    is_table,
    is_valid,
    table_of,
    value_of,
)

pytestmark = pytest.mark.one_python


def read(document: dict[str, Any], environ: dict[str, str] | None = None) -> Config | None:
    """Return the configuration, or None after checking the `ConfigError` that was raised."""
    raised: ConfigError | None = None
    try:
        return from_mapping(document, environ=environ)
    except ConfigError as error:
        raised = error
    assert str(raised).startswith(f"{raised.path}: ")
    assert "\n" not in str(raised)
    return None


def is_plain(value: Any) -> bool:
    if is_table(value):
        return {type(key) for key in value} <= {str} and all(map(is_plain, value.values()))
    if is_list(value):
        return all(map(is_plain, value))
    return isinstance(value, str | int | float | bool)


SECTIONS = st.sampled_from(["defaults", "policies", "gates", "budgets", "pipelines"])
NAMED = st.dictionaries(WORD, st.dictionaries(WORD, ANYTHING, max_size=5), max_size=3)


@settings(max_examples=50)
@given(st.dictionaries(SECTIONS, NAMED | ANYTHING, max_size=5))
def test_no_document_breaks_the_loader(document: dict[str, Any]) -> None:
    made = read(document)
    if made is not None:
        assert is_valid(document) or None in flat(document)
        assert read(made.to_mapping()) is not None


def flat(value: Any) -> list[Any]:
    inner = list(value.values()) if is_table(value) else value if is_list(value) else []
    return [leaf for one in inner for leaf in flat(one)] if inner else [value]


@settings(max_examples=50)
@given(st.data())
def test_no_value_of_an_option_breaks_the_loader(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(sorted(RETRY.options)))
    made = read({"policies": {"a": {key: data.draw(ANYTHING)}}})
    assert made is None or [*made.policies] == ["a"]


@settings(max_examples=50)
@given(documents())
def test_a_valid_document_matches_the_schema_and_survives_a_round_trip(document: dict[str, Any]) -> None:
    made = read(document)
    if made is not None:
        assert is_valid(document)
        written = made.to_mapping()
        assert is_plain(written)
        assert json.loads(json.dumps(written)) == written
        assert is_valid(written)
        again = from_mapping(written)
        assert again.to_mapping() == written
        for name, one in made.policies.items():
            if one.budget is None:
                assert again.policies[name] == one


@settings(max_examples=50)
@given(backoffs())
def test_a_backoff_survives_a_round_trip(backoff: Any) -> None:
    try:
        made = policy({"backoff": backoff})
    except ConfigError:
        return  # low above high
    assert policy(to_mapping(made)) == made
    assert is_plain(to_mapping(made))


@settings(max_examples=50)
@given(table_of(RETRY.without("budget")))
def test_a_policy_survives_a_round_trip(table: Any) -> None:
    try:
        made = policy(table)
    except ConfigError:
        return  # for example, without any limit
    assert policy(to_mapping(made)) == made


TEXTS = st.sampled_from(
    ["", "5", "5s", "-1", "nan", "1e999", "true", "x", "unlimited", "full", "a,b", "OSError"]
)
VARIABLES = st.lists(
    st.sampled_from(
        [
            *(
                "A",
                "B",
                "ONE",
                "ATTEMPTS",
                "BACKOFF",
                "TYPE",
                "INITIAL",
                "THROTTLED",
                "LABELS",
                "HINTS",
                "LONGEST",
            ),
            *(
                "GATES",
                "BUDGETS",
                "DEFAULTS",
                "POLICIES",
                "A_B",
                "LIMIT",
                "RATIO",
                "COSTS",
                "OTHERS",
                "BUDGET",
                "ON",
                "",
                "é",
            ),
        ]
    ),
    max_size=5,
).map(lambda words: "REDOUBLE_" + "__".join(words))


@settings(max_examples=50)
@given(documents() | st.just(dict[str, Any]()), st.dictionaries(VARIABLES, TEXTS, max_size=4))
def test_no_variable_breaks_the_loader(document: dict[str, Any], environ: dict[str, str]) -> None:
    policies: Any = {"a": {}, "one": {}, "a-b": {"labels": {"x": "y"}}}
    made = read({**document, "policies": policies}, environ)
    assert made is None or made.policies.keys() == policies.keys()
    assert (
        read({"policies": {"a": {"backoff": [1], "labels": {"x": "y"}}}, "gates": {"one": 5}}, environ)
        is None
    )


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from(sorted(KEYS)), ANYTHING, max_size=5))
def test_no_setting_breaks_from_qubit(values: dict[str, Any]) -> None:
    path = min(KEYS)
    try:
        from_qubit(values)
    except ConfigError as error:
        path = error.path
    assert path in KEYS


@pytest.mark.parametrize("depth", [10_000])
def test_a_deeply_nested_document_raises_a_config_error(depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    tables: Any = {}
    for _ in range(depth):
        tables = {"others": tables}
    for value in (deep, tables, {"type": deep}, {"type": "constant", "delay": 1, "then": deep}):
        for key in RETRY.options:
            assert read({"policies": {"a": {key: value}}}) is None
        assert read({"policies": {"a": value}}) is None
        assert read({"pipelines": {"a": {"layers": value}}}) is None
        assert read({"gates": {"a": {"type": value}}}) is None
    assert read({"policies": deep}) is None


@pytest.mark.parametrize(("key", "kind"), [(key, option.kind) for key, option in RETRY.options.items()])
@settings(max_examples=10)
@given(data=st.data())
def test_every_option_accepts_the_values_drawn_for_it(data: st.DataObject, key: str, kind: Value) -> None:
    """A limit of "0s" may be refused, and a backoff or a budget whose values contradict each other."""
    value = data.draw(value_of(kind).filter(lambda value: value != "one"))
    made = read({"budgets": {"one": {}}, "policies": {"a": {key: value}}})
    assert made is not None or value == "0s" or key in ("backoff", "budget")
