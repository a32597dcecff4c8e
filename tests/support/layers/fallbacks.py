"""Fallback functions, blocking and async, and a call with a fallback."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from redouble import SYSTEM, Layer
from redouble.testing import Script
from tests.support.fakes import in_colour


def called(colour: str, layer: Layer, *steps: Any) -> Any:
    """Call an operation that plays the steps."""
    script = Script(*steps)
    return in_colour(colour, lambda: layer.call(script), lambda: layer.call(script.aio))


def text(error: Exception) -> str:
    """Return a text that contains the error."""
    return f"instead of {error}"


async def atext(error: Exception) -> str:
    """Return the same text in async code."""
    await SYSTEM.asleep(0)
    return f"instead of {error}"


def deferred(error: Exception) -> Awaitable[str]:
    """Return an awaitable, though this is not a coroutine function."""
    return atext(error)


class AsyncCache:
    """An object whose call is async."""

    async def __call__(self, error: Exception) -> str:
        return await atext(error)
