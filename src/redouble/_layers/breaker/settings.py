"""The settings of a circuit breaker: when it opens, for how long, and how it closes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ulp
from typing import cast

from redouble._failures.verdict import On, Until
from redouble._internal.validation import number
from redouble._runtime.clock import Chance, Clock
from redouble._telemetry.events import Observer


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreakerSettings:
    """The validated options of a `CircuitBreaker`, which describes them."""

    on: On
    until: Until | None
    failures: int
    ratio: float | None
    window: float
    minimum: int
    slow: float | None
    cooldown: float
    probes: int
    reopening: tuple[float, ...] | None
    name: str | None
    on_change: Observer | None
    clock: Clock
    random: Chance


def share(value: float, option: str) -> float:
    """Validate a share of the calls, above 0."""
    wanted = "a share above 0 and up to 1, such as 0.5"
    return number(value, f"CircuitBreaker {option}", ulp(0.0), 1, wanted)


def shares(reopening: object) -> tuple[float, ...]:
    """Validate the shares of ``reopening``."""
    message = f"CircuitBreaker reopening={reopening!r}: write shares that rise, such as (0.1, 0.5)"
    if not isinstance(reopening, list | tuple) or not reopening:
        raise TypeError(message)
    checked = tuple(share(value, "reopening") for value in cast("Sequence[float]", reopening))
    if any(before >= after for before, after in pairwise(checked)):
        raise ValueError(message)
    return checked
