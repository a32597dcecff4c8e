"""The observables of the facts about a call, and which of them the tests assert.

A fact states several things about a call, such as its attempts, its delays and its reason: its observables.
`observables.txt` lists them, in the words of the fact. A row of a table asserts an observable if it has one
of the words in `ROW_WORDS`; a test without a table says by `asserts` what it asserts. The page about
conformance lists the rest, and test_page.py compares the two.
"""

from __future__ import annotations

import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from tests.conformance.flows import Flow

PARAM = type(pytest.param())
NONE = frozenset[str]()
F = TypeVar("F", bound=Callable[..., object])

HERE = Path(__file__).parent
FACT = re.compile(r"Q-[A-Z]\d\d|[NS]-\d\d|(?:KT|HW)-[A-Z0-9]+-\d\d")

OBSERVABLES: dict[str, frozenset[str]] = {
    fact: frozenset(names.split())
    for fact, _, names in (
        line.partition(": ") for line in (HERE / "observables.txt").read_text(encoding="utf-8").splitlines()
    )
}

_ERROR = "raises type last cause same"

# The words of a row, each of which asserts the observable.
ROW_WORDS: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "attempt_elapsed": "work_elapsed elapsed",  # in rows of one attempt
        "attempt_timeout": "cuts",
        "attempts": "attempts calls",
        "backoff_calls": "retried",
        "budget_deposits": "credits",
        "budget_withdrawn": "granted",
        "calls": "calls attempts",
        "cancel_token_set": "stopped",
        "cause": "cause",
        "default_decision": "reason",
        "context_note": "reason",
        "current_attempt": "attempts",
        "durations_drawn": "retried",
        "error": _ERROR,
        "escapes": "type",
        "events": "events",
        "fields": "last reason",
        "last_attempt_elapsed": "took",
        "last_failure": _ERROR,
        "last_response_status": "cause",
        "mentions": "raises",
        "next_delay": "next_delay",
        "ok": "ok",
        "operation_elapsed": "work_elapsed",
        "quota": "quota",
        "raised": _ERROR,
        "raises": _ERROR,
        "reason": "reason",
        "retry_after_hint": "hints",
        "returned": "ok",
        "same_object": "same",
        "sleep_bounds": "sleeps",
        "sleeps": "sleeps waits",
        "status": "ok",
        "strategy_calls": "retried events",
        "terminal": "reason type",
        "timeout_source": "limit cuts",
        "token_trail": "trail",
        "total_elapsed": "elapsed now",
        "unreaped": "workers_left",
    }.items()
}

_declared: dict[str, set[str]] = defaultdict(set)


def asserts(fact: str, *observables: str) -> Callable[[F], F]:
    """Declare the observables of a fact that a test asserts."""
    unknown = set(observables) - OBSERVABLES[fact]
    if unknown:
        raise ValueError(f"{fact} has no {sorted(unknown)}")
    _declared[fact].update(observables)
    return lambda test: test


def asserted() -> dict[str, set[str]]:
    """Return the observables of each fact that the rows and the other tests assert."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(f"tests.conformance.{path.stem}")
        for row in _rows(vars(module)):
            if (match := FACT.match(row.fact)) and match[0] in OBSERVABLES:
                words = row.expected.keys()
                found[match[0]] |= {
                    name for name in OBSERVABLES[match[0]] if ROW_WORDS.get(name, NONE) & words
                }
    for fact, declared in _declared.items():
        found[fact] |= declared
    return found


def _rows(names: dict[str, Any]) -> Iterator[Flow]:
    """Yield the rows in the tables of a module, and in the parameters of its tests."""
    for value in names.values():
        tables: list[Any] = [cast("Any", value)] if isinstance(value, list) else []
        marks: Any = getattr(cast("object", value), "pytestmark", ())
        for mark in marks:
            if mark.name == "parametrize":
                tables += [_values(each) for each in mark.args[1]]
        for table in tables:
            yield from (row for row in table if isinstance(row, Flow))


def _values(each: Any) -> tuple[object, ...]:
    """Return the arguments of one parametrized test: of a `pytest.param`, a tuple, or a single value."""
    values: Any = each.values if isinstance(each, PARAM) else each
    return cast("tuple[object, ...]", values) if isinstance(values, tuple) else (values,)
