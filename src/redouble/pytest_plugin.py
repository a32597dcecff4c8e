"""The pytest plugin: `redouble.testing` as fixtures. pytest loads it through its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redouble.testing import VirtualClock
    from redouble.types import Event

__all__ = ["redouble_events", "redouble_time"]


@pytest.fixture
def redouble_time() -> Iterator[VirtualClock]:
    """Virtual time for the whole test: a clock with ``delays``, ``now()`` and ``advance(seconds)``."""
    from redouble.testing import virtual_time  # noqa: PLC0415  imported only by tests that use it

    with virtual_time() as clock:
        yield clock


@pytest.fixture
def redouble_events() -> Iterator[list[Event]]:
    """Every event of every policy during the test, in a list; for `redouble.testing.assert_retried`."""
    from redouble.testing import recorded  # noqa: PLC0415  imported only by tests that use it

    with recorded() as events:
        yield events
