"""The entries of `stats()` under one name."""

from __future__ import annotations

from typing import Any

from redouble import stats


def listed(name: str) -> dict[str, dict[str, Any]]:
    """Return the entries under a name, by section."""
    return {section: named[name] for section, named in stats().items() if name in named}
