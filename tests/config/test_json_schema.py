"""The JSON schema for editors rejects what the loader rejects, as far as a schema can express it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from redouble.config import from_mapping, schema
from redouble.config._options.catalogue import BUDGETS, LAYERS
from redouble.errors import ConfigError
from tests.support.config.documents import is_list, is_table, is_valid

SCHEMA = schema()

ALL: dict[str, Any] = {
    "defaults": {"give_up_after": "20s", "on": ["transient"], "backoff": {"others": [1]}},
    "budgets": {"shared": {"ratio": 0.2}, "tokens": {"type": "token_bucket", "costs": {"throttled": 9}}},
    "gates": {"db": {"type": "bulkhead", "limit": 10, "wait": 0}},
    "policies": {
        "payments": {
            "on": ["transient", "ConnectionError"],
            "attempts": "unlimited",
            "timeout": "10s",
            "work_timeout": 0.5,
            "backoff": {"type": "exponential", "initial": "200ms", "maximum": 2, "jitter": "full"},
            "hints": {"mode": "at_least", "longest": "60s"},
            "budget": "shared",
            "worker": {"kind": "thread", "grace": "100ms"},
            "labels": {"team": "payments"},
        }
    },
    "pipelines": {
        "checkout": {"layers": [{"type": "timeout", "seconds": 30}, "gates.db", "policies.payments"]}
    },
}


def test_a_document_with_every_section_is_valid() -> None:
    from_mapping(ALL)
    assert is_valid(ALL)
    assert is_valid({})


REFUSED: list[Any] = [
    {"policie": {}},
    {"policies": 5},
    {"policies": {"": {}}},
    {"budgets": {"unlimited": {}}},
    {"policies": {"a": {"atempts": 5}}},
    {"policies": {"a": {"attempts": 0}}},
    {"policies": {"a": {"attempts": 5.5}}},
    {"policies": {"a": {"attempts": "5"}}},
    {"policies": {"a": {"attempts": True}}},
    {"policies": {"a": {"timeout": 0}}},
    {"policies": {"a": {"timeout": -1}}},
    {"policies": {"a": {"timeout": "5 parsecs"}}},
    {"policies": {"a": {"nested": "ignore"}}},
    {"policies": {"a": {"wrap": 1}}},
    {"policies": {"a": {"on": []}}},
    {"policies": {"a": {"on": 5}}},
    {"policies": {"a": {"until": 5}}},
    {"policies": {"a": {"labels": {"a": 5}}}},
    {"policies": {"a": {"hints": {"mod": 5}}}},
    {"policies": {"a": {"hints": {"spread": 2}}}},
    {"policies": {"a": {"backoff": {}}}},
    {"policies": {"a": {"backoff": {"type": "exponential"}}}},
    {"policies": {"a": {"backoff": {"type": "constant", "delay": 1, "then": [], "take": 1}}}},
    {"policies": {"a": {"backoff": {"type": "constant", "delay": 1, "then": [{}]}}}},
    {"policies": {"a": {"backoff": {"throttled": {"others": [1]}}}}},
    {"policies": {"a": {"backoff": "exponential"}}},
    {"defaults": {"name": "a"}},
    {"gates": {"a": {"limit": 5}}},
    {"gates": {"a": {"type": "bulkhead"}}},
    {"gates": {"a": {"type": "bulkheads", "limit": 1}}},
    {"gates": {"a": {"type": "bulkhead", "limit": 0}}},
    {"gates": {"a": {"type": "bulkhead", "limit": 1, "rate": 1}}},
    {"gates": {"a": {"type": "timeout", "seconds": 1}}},
    {"budgets": {"a": {"type": "bucket"}}},
    {"budgets": {"a": {"capacity": 5}}},
    {"budgets": {"a": {"type": "token_bucket", "costs": {"others": -1}}}},
    {"budgets": {"a": {"type": "token_bucket", "costs": {"all": 1}}}},
    {"pipelines": {"a": {}}},
    {"pipelines": {"a": {"layers": ["db"]}}},
    {"pipelines": {"a": {"layers": [{"seconds": 5}]}}},
    {"pipelines": {"a": {"layers": [{"type": "fallback"}]}}},
]


@pytest.mark.parametrize("document", REFUSED)
def test_the_loader_and_the_schema_reject_the_same_documents(document: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        from_mapping(document)
    assert not is_valid(document)


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield all schemas inside a schema."""
    if is_table(schema):
        yield schema
        for word, inner in schema.items():
            if word in ("properties", "$defs", "dependentSchemas"):
                inner = list(inner.values())  # noqa: PLW2901
            yield from subschemas(inner)
    elif is_list(schema):
        for item in schema:
            yield from subschemas(item)


def test_the_schema_is_valid_and_complete() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    referred = {part["$ref"] for part in subschemas(SCHEMA) if "$ref" in part}
    defined: Any = SCHEMA["$defs"]
    assert referred == {f"#/$defs/{name}" for name in defined}


def test_only_labels_arguments_and_sections_accept_any_key() -> None:
    tables = [part for part in subschemas(SCHEMA) if part.get("type") == "object"]
    closed = [table for table in tables if table["additionalProperties"] is False]
    free = sum(key in table["properties"] for table in closed for key in ("labels", "shares"))
    free += 2 * sum("different" in table["properties"] for table in closed)  # a table, or a list of them
    assert len(tables) - len(closed) == 4 + free
    assert len(closed) > 20


def test_every_option_has_a_description() -> None:
    abouts = {table.about for table in (*LAYERS.tables.values(), *BUDGETS.tables.values())}
    tables = [part["properties"] for part in subschemas(SCHEMA) if part.get("description") in abouts]
    for table in tables:
        assert all("description" in option for key, option in table.items() if key != "type")
    assert len(tables) > len(abouts)


def test_the_caller_owns_the_schema() -> None:
    """A caller may change the schema, such as to add its own names: the next one is not affected."""

    def containers(part: object) -> Iterator[int]:
        if is_table(part) or is_list(part):
            yield id(part)
            for inner in part.values() if is_table(part) else part:
                yield from containers(inner)

    one, other = schema(), schema()
    assert set(containers(one)).isdisjoint(containers(other))
