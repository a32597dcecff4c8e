"""The cooldown of a breaker in documents: a duration, a list of durations, or a backoff."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Backoff, CircuitBreaker, Pipeline
from redouble.config import from_mapping, to_mapping
from redouble.errors import ConfigError


def document(cooldown: Any) -> dict[str, Any]:
    return {"gates": {"db": {"type": "circuit_breaker", "cooldown": cooldown}}}


def breaker(cooldown: Any, **environ: str) -> CircuitBreaker:
    gate: Any = from_mapping(document(cooldown), environ=environ).gates["db"]
    assert isinstance(gate, CircuitBreaker)
    return gate


@pytest.mark.parametrize(
    ("cooldown", "expected"),
    [
        (5, 5.0),
        ("250ms", 0.25),
        (["1s", 2.5, "1m"], (1.0, 2.5, 60.0)),
        (
            {"type": "exponential", "initial": "5s", "maximum": "5m"},
            Backoff.exponential(5).maximum(300),
        ),
    ],
)
def test_it_is_read(cooldown: Any, expected: Any) -> None:
    assert breaker(cooldown).settings.cooldown == expected


@pytest.mark.parametrize(("text", "expected"), [("7", 7.0), ("2m", 120.0), ("1, 5s", (1.0, 5.0))])
def test_a_variable_sets_it(text: str, expected: Any) -> None:
    assert breaker(1, REDOUBLE_GATES__DB__COOLDOWN=text).settings.cooldown == expected


@pytest.mark.parametrize(
    ("cooldown", "message"),
    [
        ("soon", "is no duration"),
        (True, "is no duration"),
        ([], "has no delay: write at least one"),
        ({"type": "exponental"}, "did you mean 'exponential'"),
    ],
)
def test_mistakes(cooldown: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        breaker(cooldown)
    assert caught.value.path.startswith("gates.db")


def growing(reopened: int) -> float:
    return 1.0 + reopened


def test_a_function_can_only_be_set_in_code() -> None:
    pipeline = Pipeline(CircuitBreaker(cooldown=growing))
    with pytest.raises(ConfigError, match="is a function of your own: set it in code"):
        to_mapping(pipeline)
