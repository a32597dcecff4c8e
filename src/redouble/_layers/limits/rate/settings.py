"""The settings of a rate limit, and the pacer that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal, TypeAlias

from redouble._internal.validation import format_seconds
from redouble._layers.limits.rate.cost import Cost
from redouble._layers.limits.rate.pacing import GcraPacer
from redouble._layers.limits.rate.window_pacers import FixedWindowPacer, SlidingWindowPacer
from redouble._layers.limits.shares import PriorityOption

Window: TypeAlias = Literal["sliding", "fixed"]
RatePacer: TypeAlias = GcraPacer | SlidingWindowPacer | FixedWindowPacer

WINDOWS: Mapping[Window, type[SlidingWindowPacer | FixedWindowPacer]] = {
    "sliding": SlidingWindowPacer,
    "fixed": FixedWindowPacer,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSettings:
    """The validated options of a `RateLimit`."""

    rate: float
    per: float
    burst: int
    wait: float | None
    window: Window | None
    cost: Cost
    following: bool
    shares: Mapping[str, float] | None
    priority: PriorityOption
    name: str | None

    @property
    def pace(self) -> str:
        """The rate, for messages."""
        which = {"sliding": "any ", "fixed": "each "}.get(self.window or "", "")
        if self.per == 1:
            return f"{self.rate:g} {'in ' + which if which else 'a '}second"
        return f"{self.rate:g} in {which}{format_seconds(self.per)}"

    @property
    def most(self) -> float:
        """The highest cost that a call may have."""
        return self.burst if self.window is None else self.rate

    def check_cost(self) -> None:
        """Raise ValueError if a call can never begin, because it costs more than begin at once."""
        if callable(self.cost) or self.cost <= self.most:
            return
        given = f"RateLimit({self.rate:g}, per={self.per:g}"
        if self.window is None:
            raise ValueError(
                f"{given}, burst={self.burst}, cost={self.cost:g}): at most {self.burst} may begin at once; "
                f"write burst={ceil(self.cost)} or more"
            )
        raise ValueError(
            f"{given}, window={self.window!r}, cost={self.cost:g}): no window has room for a call; "
            "write a higher rate, and a longer period for it"
        )

    def new_pacer(self) -> RatePacer:
        """Return the arithmetic of this rate."""
        if self.window is None:
            return GcraPacer(self.per / self.rate, self.burst, fast=self.cost == 1 and self.shares is None)
        return WINDOWS[self.window](self.rate, self.per)

    def apply(self, pacer: RatePacer, now: float) -> None:
        """Change the rate of a pacer for windows of the same kind."""
        if isinstance(pacer, GcraPacer):
            pacer.reconfigure(self.per / self.rate, self.burst, now)
        else:
            pacer.reconfigure(self.rate, self.per, now)
