"""Functions that `Keyed` decorates, functions that compute keys, and keyed bulkheads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

from redouble import SYSTEM, Bulkhead, Keyed
from tests.support.fakes import Boom


def first(key: Any, *_: object) -> Any:
    """Return the first parameter as the key."""
    return key


def fetch(key: Any, *fails: bool) -> Any:
    """Return the key, or fail."""
    if any(fails):
        raise Boom
    return key


async def afetch(key: Any, *fails: bool) -> Any:
    """Return the key in async code, or fail."""
    return fetch(key, *fails)


def items(key: Any, *fails: bool) -> Iterator[Any]:
    """Yield the key, or fail."""
    yield fetch(key, *fails)


async def aitems(key: Any, *fails: bool) -> AsyncIterator[Any]:
    """Yield the key in async code, or fail."""
    yield fetch(key, *fails)


def second(_: object, host: str) -> str:
    """Return the second parameter as the key."""
    return host


def nothing() -> None:
    """Do nothing."""


class KeyedBulkheads:
    """Bulkheads per key, with a record of the keys for which one was made, and calls in every colour."""

    def __init__(self, most: int = 1000, idle: float | timedelta | None = None) -> None:
        self.keys_made = ""
        self.layers = Keyed(first, self._make, most, idle)
        self.fetch, self.afetch = self.layers(self._fetch), self.layers(self._afetch)
        self.items, self.aitems = self.layers(self._items), self.layers(self._aitems)

    def _make(self, key: str) -> Bulkhead:
        self.keys_made += key
        return Bulkhead(1, 0)

    def _fetch(self, key: str, inside: Callable[[], object] = nothing) -> str:
        inside()
        return key

    async def _afetch(self, key: str, seconds: float = 0) -> str:
        await SYSTEM.asleep(seconds)
        return key

    def _items(self, key: str) -> Iterator[str]:
        yield key
        yield key

    async def _aitems(self, key: str) -> AsyncIterator[str]:
        yield key
        yield key

    def use(self, how: str, key: str) -> None:
        match how:
            case "decorated":
                assert self.fetch(key) == key
            case "called":
                assert self.layers.call(self._fetch, key) == key
            case "stream":
                assert [*self.items(key)] == [key, key]
            case _:
                self.layers.of(key)

    async def ause(self, how: str, key: str) -> None:
        match how:
            case "decorated":
                assert await self.afetch(key) == key
            case "called":
                assert await self.layers.call(self._afetch, key) == key
            case "stream":
                assert [item async for item in self.aitems(key)] == [key, key]
            case _:
                self.layers.of(key)
