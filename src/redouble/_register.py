"""Everything in this process that has a name and a state: for `redouble.stats`, and for gauges.

Nothing is kept alive by it. What things are, and what they tell of themselves, is not known here.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias, cast
from weakref import WeakValueDictionary

from redouble._shared import Guard

__all__ = ["SECTIONS", "Counts", "Section", "counts_of", "enlist", "enlisted", "strike"]

Section: TypeAlias = Literal["policies", "budgets", "breakers", "bulkheads", "limits", "layers"]
SECTIONS: tuple[Section, ...] = ("policies", "budgets", "breakers", "bulkheads", "limits", "layers")


class Named(Protocol):
    """Something that may have a name."""

    @property
    def name(self) -> str | None:
        """Its name."""
        ...


class Counts:
    """What has gone wrong with policies of one name. Each line counts by itself: there is no call in it."""

    __slots__ = ("__weakref__", "failures", "given_up", "retries")

    def __init__(self) -> None:
        self.failures = self.retries = self.given_up = 0


_lists: dict[Section, WeakValueDictionary[int, Named]] = {name: WeakValueDictionary() for name in SECTIONS}
_counts: WeakValueDictionary[str, Counts] = WeakValueDictionary()
_lock = Guard()


def enlist(thing: Named, section: Section) -> None:
    """Remember something for as long as it lives, if it has a name."""
    if thing.name is not None:
        _lists[section][id(thing)] = thing


def strike(thing: object) -> None:
    """Forget something that was only made to be looked at."""
    for named in _lists.values():
        named.pop(id(thing), None)


def enlisted(section: Section) -> list[tuple[str, Named]]:
    """Return what there is, oldest first, by name."""
    alive = [thing for reference in _lists[section].valuerefs() if (thing := reference()) is not None]
    return [(cast("str", thing.name), thing) for thing in alive]


def counts_of(name: str) -> Counts:
    """Return the counts of all policies of this name."""
    with _lock:
        return _counts.setdefault(name, Counts())
