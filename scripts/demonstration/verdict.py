"""Who recovered, and when: computed from when calls were placed and answered, and from nothing else."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from demonstration.weather import Weather

ENOUGH = 0.8  # of the successes before the brownout: from then on it counts as recovered
STEP = 0.05  # seconds


@dataclass
class Placed:
    """One call: when it was placed, and when it succeeded, if it did."""

    began: float
    answered: float | None = None


class Verdict(NamedTuple):
    """How a way to call got over the brownout.

    ``before`` is the share of calls answered before it, ``after`` is how long after its end all was well
    again, None for never, and ``left`` compares the successes at the end with those before.
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


def judge(calls: Sequence[Placed], weather: Weather) -> Verdict:
    """Look for the moment from which on it went well, for as long as we watched.

    Well means: enough successes in every stretch of time. A stretch is a second, or as much of one as a
    short watch has room for.
    """
    moments = sorted(answered_at(calls))
    stretch = min(1.0, weather.watched / 2)

    def rate(since: float, until: float) -> float:
        return (bisect_left(moments, until) - bisect_left(moments, since)) / (until - since)

    normal = rate(0, weather.calm)
    after: float | None = None
    # Backwards from the end, for as long as all is well.
    for step in range(round((weather.watched - stretch) / STEP), -1, -1):
        since = weather.over + step * STEP
        if not normal or rate(since, since + stretch) < ENOUGH * normal:
            break
        after = step * STEP
    left = rate(weather.end - stretch, weather.end) / normal if normal else 0.0
    return Verdict(_share_before(calls, weather), after, left)


def answered_at(calls: Sequence[Placed]) -> list[float]:
    """Return when calls were answered."""
    return [call.answered for call in calls if call.answered is not None]


def percent(share: float) -> str:
    """Spell a share."""
    return f"{100 * share:.0f} %"


def _share_before(calls: Sequence[Placed], weather: Weather) -> float:
    """Return the share of calls answered, of those placed early enough to have had their chance."""
    early = [call for call in calls if call.began < weather.calm - weather.patience]
    return len(answered_at(early)) / len(early) if early else 0.0
