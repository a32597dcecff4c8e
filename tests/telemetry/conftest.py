"""Fixtures of the telemetry tests: nothing that a test observes or binds outlives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redouble._telemetry.bound_fields import BOUND, NOTHING
from redouble._telemetry.observers import watch


@pytest.fixture
def no_observers_left() -> Iterator[None]:
    """Check that a test removes its observers."""
    yield
    assert not watch.entries


@pytest.fixture
def no_fields_bound() -> Iterator[None]:
    """Check that a test leaves no field bound."""
    yield
    assert BOUND.get() is NOTHING
