"""Policies to export: `native` makes one that gRPC can apply entirely, except for the given options."""

from __future__ import annotations

from typing import Any

from redouble import Backoff, Hints, Retry

__all__ = ["NATIVE", "native"]

NATIVE = Backoff.exponential(0.1).maximum(1).jitter(0.2)
QUIET: dict[str, Any] = {"backoff": NATIVE, "hints": Hints("instead", spread=0), "give_up_after": None}


def native(**options: Any) -> Retry:
    """Make a policy that loses nothing in an export, except for the given options."""
    return Retry(**QUIET | options)
