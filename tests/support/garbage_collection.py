"""Tests without garbage collection or tracing, and an object that accepts weak references."""

from __future__ import annotations

import gc
import sys
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


@pytest.fixture
def untraced() -> Iterator[None]:
    """Trace nothing: before Python 3.13 a frame that is traced, as for coverage, keeps its variables."""
    tracer = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(tracer)
