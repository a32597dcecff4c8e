"""Functions to call through `Chaos`, and a call that it always hits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from redouble import Chaos
from redouble.testing import virtual_time


def fetch() -> str:
    """Return a value."""
    return "fetched"


async def afetch() -> str:
    """Return the value of `fetch` in async code."""
    return "fetched"


def items() -> Iterator[str]:
    """Yield the value of `fetch`."""
    yield "fetched"


def call_with_chaos(**options: Any) -> Any:
    """Make one call that `Chaos` hits, and return its result and its duration."""
    with virtual_time() as clock:
        try:
            result: Any = Chaos(**options, rate=1).call(fetch)
        except Exception as error:
            result = error
        return result, clock.now()
