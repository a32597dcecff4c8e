"""The time to load a configuration, beside only parsing its file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from time import perf_counter_ns

from benchmarks.table_row import Row
from benchmarks.timing import Effort, Timing
from redouble import config

PARSING = "`tomllib`"
POLICIES = 1000


def config_loading(effort: Effort) -> Row:
    """Measure the loading of a thousand policies."""
    text = "".join(policy_table(number) for number in range(POLICIES))

    def taken(load: Callable[[str], object]) -> float:
        started = perf_counter_ns()
        load(text)
        return float(perf_counter_ns() - started)

    def loaded(document: str) -> object:
        return config.from_mapping(tomllib.loads(document))

    rounds = max(3, effort.rounds // 10)
    both = {PARSING: [taken(tomllib.loads) for _ in range(rounds)]}
    both["redouble"] = [taken(loaded) for _ in range(rounds)]
    timings = {name: Timing(min(times), sorted(times)[len(times) // 2]) for name, times in both.items()}
    return Row(f"loading {POLICIES:,} policies from TOML", timings, 10.0, base=PARSING, about="observability")


def policy_table(number: int) -> str:
    """Return the TOML of one policy."""
    return f"""
[policies.service-{number}]
on = ["transient", "ConnectionError"]
attempts = {number % 5 + 1}
timeout = "{number % 30 + 1}s"
backoff = {{ type = "exponential", initial = "{number % 300 + 50}ms", maximum = "2s", jitter = "full" }}
labels = {{ team = "team-{number % 7}" }}
"""
