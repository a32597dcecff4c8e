"""One attempt of a race, whatever async library runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from redouble._contest import Contest
from redouble._runtime.clock import SYSTEM

__all__ = ["attempted"]


async def attempted(
    contest: Contest,
    number: int,
    fn: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    """Make it, and tell the contest how it ended. What is no `Exception`, such as a cancellation, goes on."""
    ended = False
    try:
        value = await fn(*args, **kwargs)
        ended = True
        contest.returned(number, value)
    except Exception as error:
        ended = True
        contest.raised(number, error, SYSTEM.now())
    finally:
        if not ended:
            contest.cut()
