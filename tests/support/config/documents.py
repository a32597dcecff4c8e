"""Hypothesis strategies for configuration documents: any parsed document, and valid ones.

The valid ones are drawn from the tables of the loader itself, so that a new option is drawn too.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from jsonschema import Draft202012Validator

from redouble import Kind
from redouble.config import schema
from redouble.config._options.backoff import (
    BACKOFFS,
    JITTERS,
    OTHERS,
    SHORT,
    STAGES,
    BackoffValue,
    Jitter,
    StageValue,
)
from redouble.config._options.catalogue import (
    BUDGETS,
    DEFAULTS,
    DELAYS,
    GATES,
    LAYERS,
    OTHER_ARGUMENTS,
    PIPELINE_LAYERS,
    RETRY,
    BudgetValue,
    ClassName,
    LayerValue,
)
from redouble.config._options.error_names import ErrorNames, ResultRuleName
from redouble.config._options.option_table import Table, Tagged
from redouble.config._options.values import (
    AnyValue,
    Choice,
    DurationValue,
    Flag,
    Listed,
    Number,
    TableOf,
    Text,
    Unlimited,
    Value,
    Whole,
)

# -------------------------------------------------------------------- any parsed document

OURS = """
    x a.b unlimited full 5s 0s 1e400s gates.a policies.a a transient type layers on attempts backoff then
    throttled bulkhead retry others exponential initial limit costs labels hints worker budget name seconds
    defaults policies gates budgets pipelines timeout maximum jitter take hedge delays of rate_limit rate
    throttle adaptive_rate adaptive_concurrency circuit_breaker token_bucket
"""
WORD = st.sampled_from(["", "\u00e9\n", *OURS.split()])
LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 10),
    st.just(10**400),
    st.floats(),
    WORD,
    st.text(max_size=3),
)
ANYTHING: SearchStrategy[Any] = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=4), max_leaves=12
)

# ------------------------------------------------------------------------ valid documents

SPANS = st.sampled_from(["250ms", "30s", " 1.5 h ", "2m", 0.25, 3, 60, "1d", "10us"])


def value_of(kind: Value) -> SearchStrategy[Any]:
    """Draw a value of a type, as it is written in a document."""
    match kind:
        case Unlimited(of=inner):
            return st.just("unlimited") | value_of(inner)
        case DurationValue():
            return SPANS | st.just("0s")
        case Whole(low=low):
            return st.integers(low, low + 50)
        case Jitter():
            return st.sampled_from(["full", "equal", 0.25, 1, 0])
        case Number(low=low, high=high):
            return st.floats(max(low, 0.001), min(high, 1.0)) if high == 1 else st.integers(1, 9)
        case Choice(words=words):
            return st.sampled_from(words)
        case Listed(of=Number(high=1)):
            shares = st.lists(value_of(kind.of), min_size=1, max_size=3, unique=True)
            return shares.map(sorted)  # they rise
        case Listed(of=inner, least=least):
            return st.lists(value_of(inner), min_size=least, max_size=3)
        case TableOf(of=Number(high=1)):
            return st.dictionaries(st.just("other"), st.floats(0, 0.5), max_size=1).map({"batch": 0.5}.__or__)
        case ClassName():
            return st.just("batch")
        case TableOf(of=Text()):
            return st.dictionaries(st.sampled_from(["team", "a b", ""]), st.text(max_size=3), max_size=2)
        case ErrorNames():
            names = st.sampled_from(["transient", "OSError", "ConnectionError", "Rejected", "ValueError"])
            return names | st.lists(names, min_size=1, max_size=3)
        case ResultRuleName():
            return st.just("http")
        case TableOf():
            return st.dictionaries(st.sampled_from([*Kind, OTHERS]), st.integers(0, 9), max_size=3)
        case Table():
            return table_of(kind)
        case BudgetValue():
            return st.just("one") | tagged_of(BUDGETS)
        case LayerValue():
            return st.sampled_from(["gates.one", "policies.one"]) | tagged_of(LAYERS)
        case BackoffValue():
            return backoffs(by_kind=kind.by_kind)
        case StageValue():
            return st.sampled_from([*JITTERS]) | st.one_of([stage_of(key) for key in STAGES])
        case _ if kind is DELAYS:
            return SPANS | st.lists(SPANS, min_size=1, max_size=1)
        case _ if kind is OTHER_ARGUMENTS:
            tables = st.dictionaries(st.just("region"), st.text(max_size=3), min_size=1)
            return tables | st.lists(tables, min_size=1, max_size=1)
        case AnyValue():
            return st.text(max_size=3) | st.integers(-3, 3) | st.lists(st.booleans(), max_size=2)
        case Flag():
            return st.booleans()
        case _:
            assert isinstance(kind, Text), kind
            return st.text(max_size=3)


def stage_of(key: str) -> SearchStrategy[Any]:
    """Draw a stage of a backoff."""
    return st.fixed_dictionaries({key: value_of(STAGES[key])})


def backoffs(*, by_kind: bool = True) -> SearchStrategy[Any]:
    """Draw a backoff."""
    tables = BACKOFFS.tables.items()
    short = [table_of(table.without("then"), type=st.just(tag)) for tag, table in tables]
    chained = [table_of(table.without(*SHORT), type=st.just(tag)) for tag, table in tables]
    one = st.one_of(st.lists(SPANS, max_size=3), *short, *chained)
    if not by_kind:
        return one
    kinds = st.dictionaries(st.sampled_from(list(Kind)).map(str), one, max_size=2)
    return one | st.tuples(kinds, one).map(lambda drawn: {**drawn[0], OTHERS: drawn[1]})


def table_of(table: Table, **more: Any) -> SearchStrategy[Any]:
    """Draw a table."""
    kinds = {key: value_of(option.kind) for key, option in table.options.items()}
    if "shortest" in kinds:  # the bounds of a measured delay, which a given one excludes
        for key in ("minimum", "shortest", "longest"):
            del kinds[key]
    needed = {key: kinds.pop(key) for key in table.needed}
    drawn = st.fixed_dictionaries({**more, **needed}, optional=kinds)
    return drawn.map(with_shares) if "priority" in kinds else drawn


def with_shares(drawn: dict[str, Any]) -> dict[str, Any]:
    """Add the shares that a class needs."""
    return {"shares": {"batch": 0.5}, **drawn} if "priority" in drawn else drawn


def tagged_of(tables: Tagged) -> SearchStrategy[Any]:
    """Draw a table with a type."""
    return st.one_of([table_of(table, type=st.just(tag)) for tag, table in tables.tables.items()])


def documents() -> SearchStrategy[dict[str, Any]]:
    """Draw a whole document; all its references are defined."""
    names = st.sampled_from(["two", "a-b", "x y"])
    one = {"type": "bulkhead", "limit": 1}
    return st.fixed_dictionaries(
        {
            "budgets": st.dictionaries(names, tagged_of(BUDGETS), max_size=2).map(lambda d: {**d, "one": {}}),
            "gates": st.dictionaries(names, tagged_of(GATES), max_size=2).map(lambda d: {**d, "one": one}),
            "policies": st.dictionaries(names, table_of(RETRY), max_size=2).map(lambda d: {**d, "one": {}}),
        },
        optional={
            "defaults": table_of(DEFAULTS),
            "pipelines": st.dictionaries(
                st.just("pipe"), st.fixed_dictionaries({"layers": value_of(PIPELINE_LAYERS)}), max_size=1
            ),
        },
    )


# -------------------------------------------------------------------------- validation

VALIDATOR: Any = Draft202012Validator(schema())


def is_valid(document: object) -> bool:
    """Return True if a document is valid according to the schema."""
    return bool(VALIDATOR.is_valid(document))


def is_table(value: object) -> TypeGuard[dict[str, Any]]:
    """Return True if the value is a table."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Return True if the value is a list."""
    return isinstance(value, list)
