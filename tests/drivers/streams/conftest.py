"""Fixtures of the stream tests."""

from __future__ import annotations

import pytest

from tests.support.drivers.stream_cleanup import LOG


@pytest.fixture
def empty_log() -> None:
    """Empty the log of the sources that clean up."""
    LOG.clear()
