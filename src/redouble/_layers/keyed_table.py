"""The layers of a `Keyed`, by key: which are remembered, and which are forgotten.

Rule 1: what is in the table is found without a lock. What is used moves to its end, so that its beginning is
        what was not used for longest.
Rule 2: forgetting a key only takes it out of the table. A call in flight holds what it uses; as long as it
        does, the same is found again under the same key. So no limit is ever doubled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import suppress
from typing import Any
from weakref import WeakSet, WeakValueDictionary

from redouble._internal.locks import ForkSafe
from redouble._layers.layer import Layer
from redouble._runtime.clock import SYSTEM

__all__ = ["KeyedEntry", "KeyedStreamOwner", "KeyedTable", "WrapperCache"]


class KeyedEntry:
    """The layer of one key, and when it was last used."""

    __slots__ = ("__weakref__", "layer", "used")

    def __init__(self, layer: Layer, used: float) -> None:
        self.layer, self.used = layer, used


class WrapperCache(dict[KeyedEntry, Callable[..., Any]]):
    """One function, wrapped by the layer of each key that it was called with."""

    __slots__ = ("__weakref__", "wrap")

    def __init__(self, wrap: Callable[[Layer], Callable[..., Any]]) -> None:
        super().__init__()
        self.wrap = wrap

    # By identity: they are kept weakly.
    __hash__ = object.__hash__  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class KeyedTable(ForkSafe):
    """At most so many entries, none idle for longer than that."""

    def __init__(self, make: Callable[[Hashable], Layer], most: int, idle: float) -> None:
        super().__init__()
        self._make, self._most, self.idle = make, most, idle
        self.entries: OrderedDict[Hashable, KeyedEntry] = OrderedDict()
        self._alive: WeakValueDictionary[Hashable, KeyedEntry] = WeakValueDictionary()  # also those forgotten
        self._wrapped: WeakSet[WrapperCache] = WeakSet()
        self.forgotten = 0

    def wrapped(self, wrap: Callable[[Layer], Callable[..., Any]]) -> WrapperCache:
        """Return the ways of another function."""
        ways = WrapperCache(wrap)
        with self._lock:
            self._wrapped.add(ways)
        return ways

    def find(self, key: Hashable, now: float, ways: WrapperCache) -> tuple[KeyedEntry, Callable[..., Any]]:
        """Return the entry of a key, and the way of a function through its layer."""
        entry = self.entry(key, now)
        way = ways.get(entry) or ways.wrap(entry.layer)
        with self._lock:
            if self.entries.get(key) is entry:  # else it has been forgotten, and must not be held
                ways[entry] = way
        return entry, way

    def entry(self, key: Hashable, now: float) -> KeyedEntry:
        """Return the entry of a key; it is made if there is none, or it was idle for too long."""
        entry = self._known(key, now)
        if entry is not None:
            return entry
        layer = self._make(key)
        with self._lock:
            return self._known(key, now) or self._keep(key, KeyedEntry(layer, now), now)

    def _known(self, key: Hashable, now: float) -> KeyedEntry | None:
        """Find a key in the table, or else in use."""
        with self._lock:
            entry = self.entries.get(key)
            if entry is not None and now - entry.used > self.idle:
                self._forget(key)
                entry = None
            entry = self._alive.get(key) if entry is None else entry
            return None if entry is None else self._keep(key, entry, now)

    def _keep(self, key: Hashable, entry: KeyedEntry, now: float) -> KeyedEntry:
        """Put an entry into the table, and forget those that were idle, or are too many."""
        entry.used = now
        table = self.entries
        table[key] = self._alive[key] = entry
        table.move_to_end(key)
        while len(table) > self._most or (len(table) > 1 and now - self.first()[1].used > self.idle):
            self._forget(self.first()[0])
        return entry

    def any(self) -> KeyedEntry | None:
        """Return one of the entries, if there are any."""
        with self._lock:
            return self.first()[1] if self.entries else None

    def first(self) -> tuple[Hashable, KeyedEntry]:
        """Return what was not used for longest."""
        while True:
            with suppress(RuntimeError):  # a call has moved to the end meanwhile, which needs no lock
                return next(iter(self.entries.items()))

    def _forget(self, key: Hashable) -> None:
        entry = self.entries.pop(key)
        for ways in tuple(self._wrapped):  # whose end may bring others
            ways.pop(entry, None)
        self.forgotten += 1


class KeyedStreamOwner:
    """An async generator on its way through the layer of its key, which it holds: the owner of its items."""

    def __init__(self, entry: KeyedEntry, stream: AsyncGenerator[Any, Any]) -> None:
        self._entry: KeyedEntry | None = entry
        self._stream = stream

    async def aopen(self) -> tuple[Any, Any]:
        """Open it and take its first item."""
        from redouble._drivers.stream_source import aopen_first  # noqa: PLC0415  for those who stream

        is_open = False
        try:
            opening = await aopen_first(lambda: self._stream)
            is_open = True
        finally:
            if not is_open:
                self.ended()
        return opening

    def failed(self, error: Exception, *, final: bool = False) -> bool:  # noqa: ARG002  it always is
        """Open no other one."""
        self.ended()
        return False

    def cut(self, error: BaseException | None) -> None:  # noqa: ARG002  that is the layer's business
        """Note that it was used until now."""
        self.ended()

    returned = cut

    def ended(self) -> None:
        """Note that it was used until now; and hold it no longer, for something may hold this."""
        if self._entry is not None:
            self._entry.used = SYSTEM.now()
            self._entry = None
