"""Whether and when a strategy recovered, computed from the times at which calls were placed and answered."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from demonstration.scenario import Scenario

ENOUGH = 0.8  # share of the success rate before the brownout that counts as recovered
STEP = 0.05  # seconds


@dataclass
class PlacedCall:
    """One call: when it was placed, and when it was answered, or None."""

    began: float
    answered: float | None = None


class Recovery(NamedTuple):
    """How a strategy recovered from the brownout.

    ``before`` is the share of calls answered before it; ``after`` is the time from its end to the recovery,
    None for never; ``left`` is the success rate at the end as a share of the one before.
    """

    before: float
    after: float | None
    left: float

    def __str__(self) -> str:
        if self.after is None:
            return f"never recovered: {percent(self.left)} of normal when we stopped watching"
        if not self.after:
            return "recovered as soon as the brownout ended"
        return f"recovered {self.after:.1f} s after the brownout ended"


def measure_recovery(calls: Sequence[PlacedCall], scenario: Scenario) -> Recovery:
    """Return the recovery: from some moment on, every interval has enough successes.

    An interval is one second, or less in a short scenario.
    """
    moments = sorted(answered_at(calls))
    stretch = min(1.0, scenario.watched / 2)

    def rate(since: float, until: float) -> float:
        return (bisect_left(moments, until) - bisect_left(moments, since)) / (until - since)

    normal = rate(0, scenario.calm)
    after: float | None = None
    # Backwards from the end, as long as there are enough successes.
    for step in range(round((scenario.watched - stretch) / STEP), -1, -1):
        since = scenario.over + step * STEP
        if not normal or rate(since, since + stretch) < ENOUGH * normal:
            break
        after = step * STEP
    left = rate(scenario.end - stretch, scenario.end) / normal if normal else 0.0
    return Recovery(_share_before(calls, scenario), after, left)


def answered_at(calls: Sequence[PlacedCall]) -> list[float]:
    """Return the times at which calls were answered."""
    return [call.answered for call in calls if call.answered is not None]


def percent(share: float) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.0f} %"


def _share_before(calls: Sequence[PlacedCall], scenario: Scenario) -> float:
    """Return the share of calls answered, of those whose client timeout ended before the brownout."""
    early = [call for call in calls if call.began < scenario.calm - scenario.client_timeout]
    return len(answered_at(early)) / len(early) if early else 0.0
