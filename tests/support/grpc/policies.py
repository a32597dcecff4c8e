"""A policy to export that gRPC can apply entirely, apart from the given options."""

from __future__ import annotations

from typing import Any

from redouble import Backoff, Hints, Retry

__all__ = ["NATIVE_BACKOFF", "native"]

NATIVE_BACKOFF = Backoff.exponential(0.1).maximum(1).jitter(0.2)
NATIVE_OPTIONS: dict[str, Any] = {
    "backoff": NATIVE_BACKOFF,
    "hints": Hints("instead", spread=0),
    "give_up_after": None,
}


def native(**options: Any) -> Retry:
    """Return a policy that loses nothing in an export, apart from the given options."""
    return Retry(**NATIVE_OPTIONS | options)
