"""The bound fields that a worker process inherits."""

from __future__ import annotations

from redouble import bind
from redouble._telemetry.bound_fields import BOUND, NOTHING, inherit


def test_inherited_fields_replace_all_others() -> None:
    with bind(a=1):
        inherit({"b": 2})
        assert dict(BOUND.get()) == {"b": 2}
        with bind(c=3):
            assert dict(BOUND.get()) == {"b": 2, "c": 3}
        assert dict(BOUND.get()) == {"b": 2}
        inherit({})
        assert BOUND.get() is NOTHING
