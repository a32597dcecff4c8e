"""The settings of a circuit breaker: when it opens, for how long, and how it closes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

from redouble._failures.verdict import On
from redouble._internal.validation import (
    Duration,
    format_seconds,
    hook,
    instance,
    integer,
    methods,
    number,
    positive_seconds,
)
from redouble._internal.validation import seconds as checked
from redouble._runtime.clock import Chance, Clock
from redouble._telemetry.events import Observer

__all__ = ["CircuitBreakerSettings", "validated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CircuitBreakerSettings:
    """The validated options of a `CircuitBreaker`, which describes them."""

    on: On
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

    def summary(self) -> str:
        """Return a few words: when the breaker opens, and for how long."""
        condition = f"{self.failures} failures in a row"
        if self.ratio is not None:
            share, window = f"{self.ratio * 100:g}%", format_seconds(self.window)
            condition = f"{share} failures of at least {self.minimum} calls in {window}"
        return f"opens after {condition}, for {format_seconds(self.cooldown)}"


def validated(
    on: On,
    failures: int,
    ratio: float | None,
    window: Duration,
    minimum: int,
    slow: Duration | None,
    cooldown: Duration,
    probes: int,
    reopening: Sequence[float] | None,
    name: str | None,
    on_change: Observer | None,
    clock: Clock,
    random: Chance,
) -> CircuitBreakerSettings:
    """Validate the options of a circuit breaker, except for ``on``, which `FailureFilter` validates."""
    settings = CircuitBreakerSettings(
        on=on,
        failures=integer(failures, "CircuitBreaker failures", 1, "a whole number, 1 or more, such as 5"),
        ratio=None if ratio is None else _share(ratio, "ratio"),
        window=positive_seconds(window, "CircuitBreaker window", "30"),
        minimum=integer(minimum, "CircuitBreaker minimum", 1, "a whole number, 1 or more, such as 20"),
        slow=None if slow is None else positive_seconds(slow, "CircuitBreaker slow", "30"),
        cooldown=checked(cooldown, "CircuitBreaker cooldown"),
        probes=integer(probes, "CircuitBreaker probes", 1, "a whole number, 1 or more, such as 1"),
        reopening=None if reopening is None else _shares(reopening),
        name=name,
        on_change=on_change,
        clock=clock,
        random=random,
    )
    instance(name, "CircuitBreaker name", str | None, "a text, or None")
    if on_change is not None:
        hook(on_change, "on_change")
    methods(clock, "clock", ("now",))
    methods(random, "random", ("random",))
    return settings


def _share(value: float, option: str) -> float:
    wanted = "a share above 0 and up to 1, such as 0.5"
    share = number(value, f"CircuitBreaker {option}", 0, 1, wanted)
    if not share:
        raise ValueError(f"CircuitBreaker {option}=0: write {wanted}")
    return share


def _shares(reopening: object) -> tuple[float, ...]:
    message = f"CircuitBreaker reopening={reopening!r}: write shares that rise, such as (0.1, 0.5)"
    if not isinstance(reopening, list | tuple) or not reopening:
        raise TypeError(message)
    shares = tuple(_share(share, "reopening") for share in cast("Sequence[float]", reopening))
    if any(before >= after for before, after in pairwise(shares)):
        raise ValueError(message)
    return shares
