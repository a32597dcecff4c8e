"""Prints a Markdown table for each kind of client; wrong outcomes are in bold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from comparison.request import Outcome
from comparison.scenarios import SCENARIOS

FAMILIES = [
    ["redouble.httpx2", "redouble.httpx", "httpx-retries", "httpware", "stamina around httpx"],
    ["redouble.requests", "urllib3's Retry"],
    ["redouble.aiohttp", "aiohttp-retry"],
]
OURS = [name for family in FAMILIES for name in family if name.startswith("redouble")]


def table(names: Sequence[str], outcomes: Mapping[str, Mapping[str, Outcome]]) -> Iterator[str]:
    """Yield the table of some libraries."""
    yield "| " + " | ".join(["", "right", *names]) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for scenario in SCENARIOS:
        found = [outcomes[scenario.name].get(name) for name in names]
        cells = ["" if one is None else str(one) if scenario.right(one) else f"**{one}**" for one in found]
        yield f"| {scenario.name} | {scenario.wanted} | " + " | ".join(cells) + " |"
