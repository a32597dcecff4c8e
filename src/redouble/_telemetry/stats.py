"""The statistics of all named objects of this process: policies, budgets, breakers, bulkheads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redouble._internal.public import public
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.registry import SECTIONS, Section, counts_of, registered

LIMITS = ("attempts", "give_up_after", "timeout", "attempt_timeout", "work_timeout")


@public("redouble")
def stats() -> dict[str, dict[str, dict[str, Any]]]:
    """Take a snapshot of every named policy, budget and gate in this process: ready for ``json.dumps``.

    >>> import redouble
    >>> breaker = redouble.CircuitBreaker(name="billing api")
    >>> redouble.stats()["breakers"]["billing api"]["state"]
    'closed'

    ``policies`` contain their limits and counts (``failures`` of attempts, ``retries``, and calls
    ``given_up``), which last as long as a policy of that name exists. ``budgets``, ``breakers``,
    ``bulkheads``, ``limits`` (of rate and of concurrency) and other ``layers`` contain their ``snapshot()``
    and their ``type``. The second object of a name is called ``name#2``.
    """
    return {section: dict(_named(section)) for section in SECTIONS}


def _named(section: Section) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    for name, thing in registered(section):
        values = _policy(name, thing) if section == "policies" else _snapshot(thing, section)
        if section == "policies" and name in seen:
            continue  # policies are values, and may be copies of each other: their counts are shared by name
        unique, number = name, 1
        while unique in seen:
            number += 1
            unique = f"{name}#{number}"
        seen.add(unique)
        yield unique, values


def _policy(name: str, policy: Any) -> dict[str, Any]:
    counts = counts_of(name)
    return {
        **{option: getattr(policy, option) for option in LIMITS},
        "budget": getattr(policy.budget, "name", None),
        "failures": counts.failures,
        "retries": counts.retries,
        "given_up": counts.given_up,
    }


def _snapshot(thing: Any, section: Section) -> dict[str, Any]:
    kind = type(thing).__name__
    try:
        return {"type": kind, **snapshot_of(thing, section)}
    except Exception:  # raised by a user's layer: the others are listed nevertheless
        return {"type": kind, "snapshot": "failed"}


def snapshot_of(thing: Any, section: Section) -> Mapping[str, Any]:
    """Return the snapshot of an object; that of a budget as of now, not as of its last use."""
    snapshot: Mapping[str, Any] = thing.snapshot(SYSTEM.now()) if section == "budgets" else thing.snapshot()
    return snapshot
