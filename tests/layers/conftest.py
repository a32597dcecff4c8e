"""Both ways in which gates count: without a lock, which the GIL makes exact, and under a lock.

The tests of shared state run twice, the second time as on a build of Python without a GIL.
"""

from __future__ import annotations

import pytest

from redouble._internal.locks import gil

BOTH_WAYS = {
    "test_adaptive_concurrency",
    "test_adaptive_concurrency_stress",
    "test_adaptive_rate_sync_async",
    "test_breaker_stress",
    "test_breaker_sync_async",
    "test_bulkhead_interrupted",
    "test_bulkhead_stress",
    "test_bulkhead_sync_async",
    "test_coalesce",
    "test_coalesce_interrupted",
    "test_coalesce_stress",
    "test_hedge",
    "test_hedge_races",
    "test_keyed",
    "test_keyed_stress",
    "test_rate_limit_stress",
    "test_rate_limit_sync_async",
    "test_reconfigure_interrupted",
    "test_slots",
    "test_slots_interrupted",
    "test_throttle_stress",
    "test_throttle_sync_async",
}

# On a free-threaded build counting without a lock loses counts, as it must.
WAYS = {"gil": True, "no gil": False} if gil.enabled else {"no gil": False}


@pytest.fixture(autouse=True)  # a fixture that a test does not name is set up only if it is autouse
def gil_enabled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Count without a lock, or under one; return True if without."""
    enabled: bool = getattr(request, "param", gil.enabled)
    monkeypatch.setattr(gil, "enabled", enabled)
    return enabled


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of the modules above twice."""
    if metafunc.definition.path.stem in BOTH_WAYS:
        metafunc.parametrize(gil_enabled.__name__, WAYS.values(), ids=WAYS.keys(), indirect=True)
