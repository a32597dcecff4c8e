"""The option tables agree with the constructors: every option is there, with the same bounds."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, fields
from math import inf
from typing import Any, cast

import pytest

from redouble import Hints, Retry, Timeout, Worker, errors
from redouble.config import from_mapping, policy
from redouble.config._document_path import DocPath
from redouble.config._options.catalogue import BUDGETS, DEFAULTS, HINTS, LAYERS, RETRY, WORKER
from redouble.config._options.option_table import Table
from redouble.config._options.values import Choice, DurationValue, Number, Unlimited, Whole

TABLES = {**BUDGETS.tables, **LAYERS.tables, "hints": HINTS, "worker": WORKER}


@pytest.mark.parametrize(
    ("table", "kind"), [(RETRY, Retry), (HINTS, Hints), (WORKER, Worker), (LAYERS.tables["timeout"], Timeout)]
)
def test_every_field_is_in_the_table_or_only_for_code(table: Table, kind: Any) -> None:
    options = {field.name for field in fields(kind) if field.init}
    assert {*table.options, *table.in_code} == options


@pytest.mark.parametrize("name", sorted(TABLES))
def test_every_parameter_is_in_the_table_or_only_for_code(name: str) -> None:
    table = TABLES[name]
    assert {*table.options, *table.in_code} == set(inspect.signature(table.make).parameters)
    assert set(table.needed) <= set(table.options)


def test_the_options_that_only_code_can_set() -> None:
    assert set(RETRY.in_code) == {
        *("clock", "random"),
        *("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up"),
    }
    others = {name: set(table.in_code) for name, table in TABLES.items() if name != "retry"}
    assert {name: keys for name, keys in others.items() if keys} == {
        "adaptive_concurrency": {"random"},
        "circuit_breaker": {"on_change", "clock", "random"},
        "coalesce": {"key"},
        "fallback": {"fns"},
        "stale_fallback": {"key", "mark"},
        "throttle": {"random"},
    }
    assert set(DEFAULTS.options) == set(RETRY.options) - {"name"}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_default_values_are_not_written(name: str) -> None:
    """An object created with its required options alone is written with these alone."""
    table = TABLES[name]
    needed: dict[str, Any] = {
        "bulkhead": {"limit": 1},
        "fallback": {"value": 1},
        "rate_limit": {"rate": 1},
        "stale_fallback": {"max_age": 1},
        "timeout": {"seconds": 1},
    }
    assert table.write(table.make(**needed.get(name, {})), DocPath()) == needed.get(name, {})


BOUNDS = [
    (name, key, kind)
    for name, table in TABLES.items()
    for key, option in table.options.items()
    for kind in [option.kind.of if isinstance(option.kind, Unlimited) else option.kind]
    if isinstance(kind, Number | Whole | Choice | DurationValue)
]


@pytest.mark.parametrize(("name", "key", "kind"), BOUNDS)
def test_the_bounds_of_a_table_are_those_of_the_constructor(name: str, key: str, kind: object) -> None:
    """The constructor accepts a value at a bound and refuses one beyond it, the other options being valid."""
    table = TABLES[name]
    options: dict[str, dict[str, Any]] = {
        "bulkhead": {"limit": 1},
        "rate_limit": {"rate": 1, **({"burst": 10**6} if key == "cost" else {})},
        "stale_fallback": {"max_age": 1},
        "timeout": {"seconds": 100, **({"multiple": 2} if key != "seconds" else {})},
        "hedge": {"hedges": 10**6} if key == "max_extra_load" else {},
        "token_bucket": {"refill_per_second": 1},
        "retry_budget": {"max_in_flight": 0.5},
        "circuit_breaker": {"slow": 1, "ratio": 1} if key in ("slow_ratio", "calls") else {},
        "adaptive_concurrency": {"initial": 1, "least": 1, "most": 10**6},
    }
    more = options.get(name, {})
    good: list[Any]
    bad: list[Any]
    match kind:
        case DurationValue():
            good, bad = [1.0], [-1.0]
        case Number(low=low, high=high):
            high = 10**6 if high == inf else high  # max_extra_load of a hedge: at most `hedges`
            good, bad = [low, high], [low - 1e-6 if low else -1, high * 2]
            good = [value for value in good if value or name != "circuit_breaker"]  # its shares
        case Whole(low=low):
            good, bad = [low], [low - 1]
        case _:
            good, bad = list(cast("Choice", kind).words), ["x"]
    for value in good:
        table.make(**{**more, key: value})
    for value in bad:
        with pytest.raises((TypeError, ValueError)):
            table.make(**{**more, key: value})


def test_choices_of_a_policy_are_those_of_the_constructor() -> None:
    for key, table in {"nested": RETRY, "mode": HINTS, "kind": WORKER, "start": WORKER}.items():
        for word in cast("Choice", table.options[key].kind).words:
            assert getattr(table.make(**{key: word}), key) == word


@pytest.mark.parametrize("key", sorted(RETRY.in_code))
def test_an_option_for_code_alone_is_refused_in_a_document(key: str) -> None:
    with pytest.raises(errors.ConfigError, match="this can only be set in code") as raised:
        policy({key: 5})
    assert raised.value.path == key


@pytest.mark.parametrize(
    ("gate", "path"),
    [
        ({"type": "adaptive_concurrency", "initial": 5, "least": 9}, "gates.a"),
        ({"type": "circuit_breaker", "reopening": [0.5, 0.1]}, "gates.a.reopening"),
        ({"type": "circuit_breaker", "ratio": 0}, "gates.a.ratio"),
        ({"type": "circuit_breaker", "window": "0s"}, "gates.a.window"),
        ({"type": "throttle", "window": 0}, "gates.a.window"),
        ({"type": "rate_limit", "rate": 1, "per": 0}, "gates.a.per"),
        ({"type": "rate_limit", "rate": 1, "burst": 10**10}, "gates.a.burst"),
    ],
)
def test_an_error_of_a_constructor_has_a_path(gate: dict[str, Any], path: str) -> None:
    with pytest.raises(errors.ConfigError) as raised:
        from_mapping({"gates": {"a": gate}})
    assert raised.value.path == path
    assert isinstance(raised.value.__cause__, TypeError | ValueError | ArithmeticError)


@pytest.mark.parametrize("name", sorted({*TABLES} - {"hints", "retry", "timeout", "token_bucket", "worker"}))
def test_the_settings_have_the_fields_of_the_constructor(name: str) -> None:
    """The settings are a frozen dataclass named after the class."""
    table = TABLES[name]
    needed: dict[str, Any] = {
        "bulkhead": {"limit": 1},
        "fallback": {"value": 1},
        "rate_limit": {"rate": 1},
        "stale_fallback": {"max_age": 1},
    }
    settings = table.make(**needed.get(name, {})).settings
    assert {field.name for field in fields(settings)} == set(inspect.signature(table.make).parameters)
    assert type(settings).__name__ == f"{table.make.__name__}Settings"
    with pytest.raises(FrozenInstanceError):
        settings.name = "other"
