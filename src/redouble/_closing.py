"""Closing a result that nobody is going to use, whatever it is."""

from __future__ import annotations

from inspect import isawaitable
from typing import Any

from redouble._internal.logger import log

__all__ = ["close_all", "closes"]

FAILED = "the result of an attempt that lost could not be closed"


def closes(result: object) -> bool:
    """Say whether there is anything to close."""
    return any(callable(getattr(result, name, None)) for name in ("aclose", "close"))


async def close_all(results: list[Any]) -> None:
    """Close them one after the other."""
    for result in results:
        await _close(result)


async def _close(result: Any) -> None:
    """Close it by ``aclose()`` or ``close()``, if it has one; a failure is logged."""
    for name in ("aclose", "close"):
        method = getattr(result, name, None)
        if callable(method):
            try:
                closing = method()
                if isawaitable(closing):
                    await closing
            except Exception:
                log(FAILED, trouble=True)
            return
