"""Every test of this folder begins without a configuration."""

from __future__ import annotations

import pytest

from redouble.config import _reload


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and leave none behind."""
    monkeypatch.setattr(_reload, "LIVE", _reload.ConfigStore())
