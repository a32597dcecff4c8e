"""Bound fields in a worker process, which imports this file by name."""

from __future__ import annotations

from redouble import Retry, bind, observe
from redouble._telemetry.bound_fields import BOUND, NOTHING, inherit
from redouble.types import Event


def events_there() -> list[Event]:
    """Make a call, and return its events."""
    events: list[Event] = []

    @Retry()
    def work() -> None:
        bind(inside=True)

    with observe(events.append):
        work()
    return events


def test_what_is_inherited_is_all_there_is() -> None:
    with bind(a=1):
        inherit({"b": 2})
        assert dict(BOUND.get()) == {"b": 2}
        with bind(c=3):
            assert dict(BOUND.get()) == {"b": 2, "c": 3}
        assert dict(BOUND.get()) == {"b": 2}
        inherit({})
        assert BOUND.get() is NOTHING
