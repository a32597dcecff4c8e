"""The fields that are bound in this context."""

from __future__ import annotations

from redouble._telemetry.bound_fields import BOUND


def bound() -> dict[str, object]:
    """Return the bound fields."""
    return dict(BOUND.get())
