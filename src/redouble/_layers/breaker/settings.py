"""The settings of a circuit breaker: when it opens, for how long, and how it closes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ulp
from typing import Literal, TypeAlias, cast

from redouble._failures.verdict import On, Until
from redouble._internal.validation import integer, number
from redouble._layers.breaker.cooldown import CheckedCooldown
from redouble._runtime.clock import Chance, Clock
from redouble._telemetry.events import Observer

ManualState: TypeAlias = Literal["closed", "isolated", "disabled", "metrics_only"]

MOST_CALLS = 1_000_000  # of a window: one byte each


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreakerSettings:
    """The validated options of a `CircuitBreaker`, which describes them."""

    on: On
    until: Until | None
    failures: int
    ratio: float | None
    window: float
    calls: int | None
    minimum: int
    slow: float | None
    slow_ratio: float | None
    cooldown: CheckedCooldown
    probes: int
    probe_ratio: float | None
    reopening: tuple[float, ...] | None
    state: ManualState
    name: str | None
    on_change: Observer | None
    clock: Clock
    random: Chance


def share(value: float, option: str) -> float:
    """Validate a share of the calls, above 0."""
    wanted = "a share above 0 and up to 1, such as 0.5"
    return number(value, f"CircuitBreaker {option}", ulp(0.0), 1, wanted)


def window_calls(value: object, ratio: object, slow_ratio: object) -> int:
    """Validate the length of a window of calls, which needs a share."""
    calls = integer(value, "CircuitBreaker calls", 1, "how many calls, 1 or more, such as 100")
    if calls > MOST_CALLS:
        raise ValueError(f"CircuitBreaker calls={value!r}: write at most {MOST_CALLS}")
    if ratio is None and slow_ratio is None:
        raise ValueError(
            f"CircuitBreaker calls={value!r}: write ratio= or slow_ratio= too, the share of these calls; "
            "without one the breaker counts failures in a row"
        )
    return calls


def share_of_slow_calls(value: float, slow: object) -> float:
    """Validate ``slow_ratio``, which needs ``slow``."""
    if slow is None:
        raise ValueError(
            f"CircuitBreaker slow_ratio={value!r}: write slow= too, the seconds after which a call is slow"
        )
    return share(value, "slow_ratio")


def shares(reopening: object) -> tuple[float, ...]:
    """Validate the shares of ``reopening``."""
    message = f"CircuitBreaker reopening={reopening!r}: write shares that rise, such as (0.1, 0.5)"
    if not isinstance(reopening, list | tuple) or not reopening:
        raise TypeError(message)
    checked = tuple(share(value, "reopening") for value in cast("Sequence[float]", reopening))
    if any(before >= after for before, after in pairwise(checked)):
        raise ValueError(message)
    return checked
