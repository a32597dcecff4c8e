"""The registry of named policies, budgets and layers of this process, for `redouble.stats` and for gauges.

It holds weak references only.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar, get_args
from weakref import WeakValueDictionary

from redouble._internal.locks import ForkSafeLock, gil

LayerSection: TypeAlias = Literal["breakers", "bulkheads", "limits", "layers"]
Section: TypeAlias = Literal["policies", "budgets"] | LayerSection
LAYER_SECTIONS: tuple[LayerSection, ...] = get_args(LayerSection)
SECTIONS: tuple[Section, ...] = ("policies", "budgets", *LAYER_SECTIONS)
T = TypeVar("T")


class Counts:
    """The failure counts of all policies of one name. With a GIL an increment is atomic: it makes no call."""

    __slots__ = ("__weakref__", "failures", "given_up", "retries")

    def __init__(self) -> None:
        self.failures = self.retries = self.given_up = 0

    def add(self, failures: int = 0, retries: int = 0, given_up: int = 0) -> None:
        """Count failed attempts, retries, and calls that were given up."""
        self.failures += failures
        self.retries += retries
        self.given_up += given_up


class LockedCounts(Counts):
    """Failure counts without a GIL: the same increments, under the lock of the registry."""

    __slots__ = ()

    def add(self, failures: int = 0, retries: int = 0, given_up: int = 0) -> None:
        with _lock.rlock:
            super().add(failures, retries, given_up)


_lists: dict[Section, WeakValueDictionary[int, Any]] = {name: WeakValueDictionary() for name in SECTIONS}
_counts: WeakValueDictionary[str, Counts] = WeakValueDictionary()
_lock = ForkSafeLock()


def register(thing: Any, section: Section) -> None:
    """Add an object, if its ``name`` is not None; it is listed for as long as it lives."""
    if thing.name is not None:
        _lists[section][id(thing)] = thing


def unregister(thing: object) -> None:
    """Remove an object, such as one that was created for inspection only."""
    for named in _lists.values():
        named.pop(id(thing), None)


def registered(section: Section) -> list[tuple[str, Any]]:
    """Return the names and objects of a section, oldest first."""
    return [(name, thing) for thing in referenced(_lists[section]) if (name := thing.name) is not None]


def referenced(objects: WeakValueDictionary[Any, T]) -> list[T]:
    """Return the objects that still exist; another thread or a signal handler may add one meanwhile."""
    return [thing for reference in objects.valuerefs() if (thing := reference()) is not None]


def counts_of(name: str) -> Counts:
    """Return the counts of all policies of this name."""
    with _lock.rlock:
        return _counts.setdefault(name, Counts() if gil.enabled else LockedCounts())
