"""The layers of a `Keyed`, by key: a table in the order of last use, bounded by size and idle time.

Rule 1: a lookup takes no lock. An entry that is used moves to the end of the table, so the first entry is the
        least recently used one.
Rule 2: forgetting a key only removes it from the table. A call in flight keeps its entry alive, and until the
        call ends, a lookup of the key returns the same entry. So no limit is ever doubled.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from redouble._drivers.async_generator import async_items
from redouble._drivers.opened_stream import StreamOwner, aopen_first
from redouble._internal.callables import display_name
from redouble._internal.locks import ForkSafe
from redouble._layers.layer import Layer
from redouble._runtime.clock import SYSTEM

KeyOf: TypeAlias = Callable[..., Hashable]  # computes the key of a call from its arguments


class KeyedEntry:
    """The layer of one key, and the time of its last use."""

    __slots__ = ("__weakref__", "layer", "used")

    def __init__(self, layer: Layer, used: float) -> None:
        self.layer, self.used = layer, used


class WrapperCache(dict[KeyedEntry, Callable[..., Any]]):
    """One function's wrappers: maps the entry of each key in use to the function wrapped by its layer."""

    __slots__ = ("__weakref__", "wrap")

    def __init__(self, wrap: Callable[[Layer], Callable[..., Any]]) -> None:
        super().__init__()
        self.wrap = wrap

    # By identity: the table keeps them in a WeakSet.
    __hash__ = object.__hash__  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]


class KeyedTable(ForkSafe):
    """At most ``max_keys`` entries, forgotten when they were not used for ``idle`` seconds."""

    def __init__(self, key_of: KeyOf, make: Callable[[Hashable], Layer], max_keys: int, idle: float) -> None:
        super().__init__()
        self._key_of, self._make, self.max_keys, self.idle = key_of, make, max_keys, idle
        self.entries: OrderedDict[Hashable, KeyedEntry] = OrderedDict()
        self._alive: WeakValueDictionary[Hashable, KeyedEntry] = WeakValueDictionary()  # also forgotten ones
        self._caches: WeakSet[WrapperCache] = WeakSet()
        self.forgotten = 0

    def new_cache(self, wrap: Callable[[Layer], Callable[..., Any]]) -> WrapperCache:
        """Return the wrapper cache of another function."""
        cache = WrapperCache(wrap)
        with self._lock:
            self._caches.add(cache)
        return cache

    def find(self, key: Hashable, now: float, cache: WrapperCache) -> tuple[KeyedEntry, Callable[..., Any]]:
        """Return the entry of a key, and the wrapper that its layer makes for the function of ``cache``."""
        entry = self.entry(key, now)
        wrapper = cache.get(entry) or cache.wrap(entry.layer)
        with self._lock:
            if self.entries.get(key) is entry:  # a forgotten entry must not be kept alive by the cache
                cache[entry] = wrapper
        return entry, wrapper

    def entry(self, key: Hashable, now: float | None = None) -> KeyedEntry:
        """Return the entry of a key; make a new one if there is none, or it was idle for too long."""
        now = SYSTEM.now() if now is None else now
        self._check_hashable(key)
        entry = self._lookup(key, now)
        if entry is not None:
            return entry
        layer = self._make(key)
        with self._lock:
            return self._lookup(key, now) or self._store(key, KeyedEntry(layer, now), now)

    def _lookup(self, key: Hashable, now: float) -> KeyedEntry | None:
        """Return the entry of a key from the table, or one that a call in flight uses, or None."""
        with self._lock:
            entry = self.entries.get(key)
            if entry is not None and now - entry.used > self.idle:
                self._forget(key)
                entry = None
            entry = self._alive.get(key) if entry is None else entry
            return None if entry is None else self._store(key, entry, now)

    def _store(self, key: Hashable, entry: KeyedEntry, now: float) -> KeyedEntry:
        """Put an entry into the table, and forget entries that are idle or too many."""
        entry.used = now
        table = self.entries
        table[key] = self._alive[key] = entry
        table.move_to_end(key)
        while len(table) > self.max_keys or (len(table) > 1 and now - self.oldest()[1].used > self.idle):
            self._forget(self.oldest()[0])
        return entry

    def _check_hashable(self, key: object) -> None:
        """Raise TypeError if a key is not hashable; the message does not show it: keys may be private."""
        try:
            hash(key)
        except TypeError:
            given = f"Keyed key={display_name(self._key_of)} returned a {type(key).__name__}"
            raise TypeError(f"{given}: keys must be hashable") from None

    def any(self) -> KeyedEntry | None:
        """Return an entry, or None if the table is empty."""
        with self._lock:
            return self.oldest()[1] if self.entries else None

    def oldest(self) -> tuple[Hashable, KeyedEntry]:
        """Return the key and the entry that were least recently used."""
        while True:
            with suppress(RuntimeError):  # a call moved its entry meanwhile, without the lock
                return next(iter(self.entries.items()))

    def _forget(self, key: Hashable) -> None:
        entry = self.entries.pop(key)
        for cache in tuple(self._caches):  # a copy: a finalizer may decorate another function
            cache.pop(entry, None)
        self.forgotten += 1


class KeyedStreamOwner(StreamOwner):
    """The owner of an async generator; it keeps the entry of its key alive."""

    def __init__(self, entry: KeyedEntry, stream: AsyncGenerator[Any, Any]) -> None:
        super().__init__(partial(aopen_first, lambda: stream))
        self._entry: KeyedEntry | None = entry

    def cut(self, error: BaseException | None) -> None:  # noqa: ARG002  the layer records it
        """Record the time of last use and release the entry, because this owner may live longer."""
        if self._entry is not None:
            self._entry.used = SYSTEM.now()
            self._entry = None


def open_keyed_stream(entry: KeyedEntry, stream: AsyncGenerator[Any, Any]) -> AsyncGenerator[Any, Any]:
    """Return an async generator that keeps the entry of its key alive."""
    return async_items(KeyedStreamOwner(entry, stream))
