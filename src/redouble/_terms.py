"""The terms of a circuit breaker: when it opens, for how long, and how it closes again. Checked when made."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import NamedTuple, cast

from redouble._check import Duration, in_seconds, number, whole
from redouble._check import seconds as checked

__all__ = ["Terms", "terms"]


SHORTEST = 0.001  # second: a window, or a call that is slow


class Terms(NamedTuple):
    """What a circuit goes by; `CircuitBreaker` says what each means."""

    failures: int
    ratio: float | None
    window: float
    minimum: int
    slow: float  # infinite if nothing is
    cooldown: float
    probes: int
    reopening: tuple[float, ...]

    def told(self) -> str:
        """Say them in a few words."""
        often = f"{self.failures} failures in a row"
        if self.ratio is not None:
            share, window = f"{self.ratio * 100:g}%", in_seconds(self.window)
            often = f"{share} failures of at least {self.minimum} calls in {window}"
        return f"opens after {often}, for {in_seconds(self.cooldown)}"


def terms(
    failures: int,
    ratio: float | None,
    window: Duration,
    minimum: int,
    slow: Duration | None,
    cooldown: Duration,
    probes: int,
    reopening: Sequence[float] | None,
) -> Terms:
    """Check the options of a circuit breaker."""
    return Terms(
        whole(failures, "CircuitBreaker failures", 1, "a whole number, 1 or more, such as 5"),
        None if ratio is None else _share(ratio, "ratio"),
        _positive(window, "window"),
        whole(minimum, "CircuitBreaker minimum", 1, "a whole number, 1 or more, such as 20"),
        inf if slow is None else _positive(slow, "slow"),
        checked(cooldown, "CircuitBreaker cooldown"),
        whole(probes, "CircuitBreaker probes", 1, "a whole number, 1 or more, such as 1"),
        _shares(reopening),
    )


def _positive(value: Duration, option: str) -> float:
    found = checked(value, f"CircuitBreaker {option}")
    if found < SHORTEST:
        raise ValueError(f"CircuitBreaker {option}={value!r}: write more seconds, such as 30")
    return found


def _share(value: float, option: str) -> float:
    wanted = "a share above 0 and up to 1, such as 0.5"
    share = number(value, f"CircuitBreaker {option}", 0, 1, wanted)
    if not share:
        raise ValueError(f"CircuitBreaker {option}=0: write {wanted}")
    return share


def _shares(reopening: object) -> tuple[float, ...]:
    if reopening is None:
        return ()
    wanted = f"CircuitBreaker reopening={reopening!r}: write shares that rise, such as (0.1, 0.5)"
    if not isinstance(reopening, list | tuple) or not reopening:
        raise TypeError(wanted)
    shares = tuple(_share(share, "reopening") for share in cast("Sequence[float]", reopening))
    if any(before >= after for before, after in pairwise(shares)):
        raise ValueError(wanted)
    return shares
