"""Printing: a Markdown table for each kind of client; what is not as it should be is in bold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from comparison.asked import Seen
from comparison.scenarios import SCENARIOS

FAMILIES = [
    ["redouble.httpx2", "redouble.httpx", "httpx-retries", "httpware", "stamina around httpx"],
    ["redouble.requests", "urllib3's Retry"],
    ["redouble.aiohttp", "aiohttp-retry"],
]
OURS = [name for family in FAMILIES for name in family if name.startswith("redouble")]


def table(names: Sequence[str], seen: Mapping[str, Mapping[str, Seen]]) -> Iterator[str]:
    """Show all rows for some of those who took part."""
    yield "| " + " | ".join(["", "right", *names]) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for scenario in SCENARIOS:
        found = [seen[scenario.name][name] for name in names]
        cells = [str(one) if scenario.right(one) else f"**{one}**" for one in found]
        yield f"| {scenario.name} | {scenario.wanted} | " + " | ".join(cells) + " |"
