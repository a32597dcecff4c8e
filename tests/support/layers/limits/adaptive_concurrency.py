"""An adaptive concurrency limit in virtual time."""

from __future__ import annotations

from typing import Any

from redouble import AdaptiveConcurrency
from redouble.testing import virtual_time

LONG = 1e9  # seconds until relearning: longer than these tests


def learned_gate(relearn: float = LONG, **options: Any) -> AdaptiveConcurrency:
    """Return a gate made at virtual time 0, without the early first relearning."""
    with virtual_time():
        gate = AdaptiveConcurrency(relearn=relearn, **options)
    gate._window._schedule_relearning(0.0)
    return gate
