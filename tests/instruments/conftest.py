"""No test of this folder may leave an observer behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redouble._telemetry.observers import watch


@pytest.fixture(autouse=True)
def no_observer_is_left() -> Iterator[None]:
    """Check at the end of a test that no observer is registered."""
    yield
    assert not watch.entries
