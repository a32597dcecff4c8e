"""Threads that take turns as often as can be, for the tests of what they share."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager

SHORT = 1e-6  # seconds


@contextmanager
def often() -> Generator[None]:
    """Let threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORT)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
