"""Attempts side by side, in the async library that is running: `_race_asyncio` or `_race_trio`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from sys import modules
from typing import Any, Protocol, TypeAlias

from redouble._contest import Contest
from redouble._runtime.backend import under_trio

__all__ = ["Rules", "race"]

Operation: TypeAlias = Callable[..., Awaitable[Any]]


class Rules(Protocol):
    """What the drivers of a race ask the one who called it."""

    hedges: int
    different: Operation | None

    def may(self) -> bool:
        """Say whether another attempt may be made now; if so, it is."""
        ...

    def delay(self) -> float:
        """Tell the seconds from one attempt to the next."""
        ...

    def contest(self) -> Contest:
        """Begin to compare them."""
        ...

    def outcome(self, contest: Contest, /) -> Any:
        """Return what comes out of it, or raise it."""
        ...


_on_asyncio: Callable[..., Coroutine[Any, Any, Any]] | None = None


def race(
    rules: Rules, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Make a call, and others beside it when it is late."""
    global _on_asyncio  # noqa: PLW0603  asking for a module again and again takes its time
    if "trio" in modules and under_trio():
        from redouble import _race_trio  # noqa: PLC0415  it is running

        return _race_trio.race(rules, delay, fn, args, kwargs)
    if _on_asyncio is None:
        from redouble import _race_asyncio  # noqa: PLC0415  only once async code runs

        _on_asyncio = _race_asyncio.race
    return _on_asyncio(rules, delay, fn, args, kwargs)
