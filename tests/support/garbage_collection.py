"""Tests without garbage collection, and an object that accepts weak references."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


class Thing:
    """An object that accepts weak references, and attributes that refer to itself."""


@pytest.fixture
def without_gc() -> Iterator[None]:
    """Disable garbage collection: an object is freed only because nothing refers to it."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
