"""Both ways in which shared objects count: without a lock, which the GIL makes exact, and under a lock."""

from __future__ import annotations

import pytest

from redouble._internal.gil import gil


@pytest.fixture(params=[True, False], ids=["gil", "no gil"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test twice, the second time as on a build without a GIL; return True if there is one."""
    enabled: bool = request.param
    monkeypatch.setattr(gil, "enabled", enabled)
    return enabled
