"""The settings of a hedge: when extra calls start, how many, and which outcome wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from redouble._engine.budgets.budget_protocol import Budget
from redouble._engine.worker import Worker
from redouble._failures.verdict import On, Until
from redouble._internal.callables import callable_kind, display_name
from redouble._internal.validation import Duration, integer, seconds, signature_mismatch
from redouble._layers.hedge.latency import SHORTEST


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeSettings:
    """The validated options of a `Hedge`."""

    delay: object
    max_extra_load: float | None
    hedges: int
    failover: bool
    on: On
    until: Until | None
    different: object
    minimum: int | None
    shortest: float
    longest: float | None
    worker: Worker | None
    budget: Budget | None
    name: str | None

    @property
    def is_planned(self) -> bool:
        """True if each extra attempt has a delay of its own."""
        return self.delays is not None or callable(self.delay)

    @property
    def delays(self) -> tuple[float, ...] | None:
        """The delay of each extra attempt, if ``delay`` is a list."""
        delay: Any = self.delay
        return delay if isinstance(delay, tuple) else None  # pyright: ignore[reportUnknownVariableType]

    @property
    def first_delay(self) -> float | None:
        """The delay of the first extra attempt; None if it is measured, or if a function computes it."""
        if isinstance(self.delay, float):
            return self.delay
        return None if self.delays is None else self.delays[0]


def checked_delay(delay: Any, hedges: int) -> Any:
    """Validate the option ``delay``: seconds, a tuple of them for all extra calls, a function, or None."""
    if isinstance(delay, list | tuple):
        delays = [seconds(each, "Hedge delay") for each in cast("Sequence[object]", delay)]
        if not 1 <= len(delays) <= hedges:
            raise ValueError(
                f"Hedge delay={delay!r} has {len(delays)} entries: write from 1 to hedges={hedges} of them "
                "(the last one is repeated), or more hedges"
            )
        return (*delays, *delays[-1:] * (hedges - len(delays)))
    if callable(delay):
        if callable_kind(delay) != "plain":
            raise TypeError("write @Hedge(), with brackets: it is no decorator without them")
        if (signature := signature_mismatch(delay, 1)) is not None:
            raise TypeError(
                f"Hedge delay={display_name(delay)} takes {signature}: write a function of the number of the "
                "extra call. If this was meant as a decorator, write @Hedge(), with brackets"
            )
        return delay
    return None if delay is None else seconds(delay, "Hedge delay")


def checked_bounds(
    minimum: int | None, shortest: Duration, longest: Duration | None, *, is_measured: bool
) -> tuple[int | None, float, float | None]:
    """Validate the options of a measured delay, which a given one excludes."""
    if minimum is not None:
        integer(minimum, "Hedge minimum", 1, "from how many calls on the measured delay is used, 1 or more")
    least = seconds(shortest, "Hedge shortest")
    most = None if longest is None else seconds(longest, "Hedge longest")
    if most is not None and most < least:
        raise ValueError(f"Hedge longest={longest!r} is less than shortest={shortest!r}")
    if not is_measured and (minimum, least, most) != (None, SHORTEST, None):
        raise ValueError("Hedge minimum, shortest and longest are for a measured delay: leave out delay=")
    return minimum, least, most
