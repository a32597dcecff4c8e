"""A look at everything that has a name: policies, budgets, breakers, bulkheads, as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redouble._internal.public import public
from redouble._runtime.clock import SYSTEM
from redouble._telemetry.registry import SECTIONS, Section, counts_of, registered

__all__ = ["snapshot_of", "stats"]


LIMITS = ("attempts", "give_up_after", "timeout", "attempt_timeout", "work_timeout")


@public("redouble")
def stats() -> dict[str, dict[str, dict[str, Any]]]:
    """Take a snapshot of every named policy, budget and gate in this process: ready for ``json.dumps``.

    >>> import redouble
    >>> breaker = redouble.CircuitBreaker(name="ledger")
    >>> redouble.stats()["breakers"]["ledger"]["state"]
    'closed'

    ``policies`` tell their limits, and what has gone wrong for as long as there has been one of that name:
    ``failures`` of attempts, ``retries``, and calls ``given_up``. ``budgets``, ``breakers``, ``bulkheads``,
    ``limits`` (of rate and of concurrency) and other ``layers`` tell what their ``snapshot()`` does, and
    their ``type``. The second one of a name is called ``name#2``.
    """
    return {section: dict(_named(section)) for section in SECTIONS}


def _named(section: Section) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    for name, thing in registered(section):
        told = _policy(name, thing) if section == "policies" else _snapshot(thing, section)
        if section == "policies" and name in seen:
            continue  # policies are values, and one of them may be a copy of another: what counts is by name
        called, nth = name, 1
        while called in seen:
            nth += 1
            called = f"{name}#{nth}"
        seen.add(called)
        yield called, told


def _policy(name: str, policy: Any) -> dict[str, Any]:
    counts = counts_of(name)
    return {
        **{option: getattr(policy, option) for option in LIMITS},
        "budget": getattr(policy.budget, "name", None),
        "failures": counts.failures,
        "retries": counts.retries,
        "given_up": counts.given_up,
    }


def _snapshot(thing: object, section: Section) -> dict[str, Any]:
    kind = type(thing).__name__
    try:
        return {"type": kind, **snapshot_of(thing, section)}
    except Exception:  # of a layer written by a user: the others are listed all the same
        return {"type": kind, "snapshot": "failed"}


def snapshot_of(thing: object, section: Section) -> Mapping[str, Any]:
    """Take a snapshot; of a budget as it is now, and not as it was when somebody last used it."""
    told: Any = thing
    snapshot: Mapping[str, Any] = told.snapshot(SYSTEM.now()) if section == "budgets" else told.snapshot()
    return snapshot
