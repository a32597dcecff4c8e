"""Calls over time: placing them at given moments, and counting them per slice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable


def per_second(moments: Iterable[float], end: float, slice_of: float = 1.0) -> list[tuple[float, float]]:
    """Count moments per slice of time; return (start of the slice, calls a second), up to the end."""
    counts = [0] * round(end / slice_of)
    for moment in moments:
        place = int(moment / slice_of + 1e-6)
        if place < len(counts):
            counts[place] += 1
    rates = [(place * slice_of, count / slice_of) for place, count in enumerate(counts)]
    return [*rates, (end, rates[-1][1])]


async def at(moments: Iterable[float], call: Callable[[float], Awaitable[object]]) -> None:
    """Make a call at each moment, concurrently, and wait for all."""

    async def later(moment: float) -> None:
        await asyncio.sleep(moment)
        await call(moment)

    await asyncio.gather(*(later(moment) for moment in moments))
