"""Bound fields are in every event, in the order of binding, until their handle is removed."""

from __future__ import annotations

import pickle
from contextlib import suppress
from contextvars import copy_context
from math import nan
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Retry, bind, observe, types
from redouble._telemetry.bound_fields import BOUND, NOTHING, Binding, _bindings
from redouble._telemetry.events import EVENT_NAMES
from redouble.types import Event
from tests.support.fakes import Boom
from tests.support.telemetry.bound_fields import bound
from tests.support.telemetry.events import every_event

pytestmark = pytest.mark.usefixtures("no_fields_bound")


def test_every_event_has_the_bound_fields() -> None:
    events: list[Event] = []
    with observe(events.append):
        with bind(run_id="r-17", tenant=3):
            every_event()
        assert {event.what for event in events} == set(EVENT_NAMES)
        assert all(event.bound == {"run_id": "r-17", "tenant": 3} for event in events)
        events.clear()
        every_event()
    assert {event.what for event in events} == set(EVENT_NAMES)
    assert all(event.bound == {} for event in events)


def test_an_event_has_the_fields_bound_at_its_time() -> None:
    """Also for a function that was called before, whose first event is created once and kept."""
    events: list[Event] = []

    @Retry()
    def work() -> None:
        inner.append(bind(inner=len(events)))

    inner: list[Binding] = []
    with observe(events.append):
        for turn in (1, 2, 3):
            with bind(turn=turn):
                work()
            inner.pop().remove()
    assert [dict(event.bound) for event in events] == [
        *({"turn": 1}, {"turn": 1, "inner": 1}),
        *({"turn": 2}, {"turn": 2, "inner": 3}),
        *({"turn": 3}, {"turn": 3, "inner": 5}),
    ]


def test_nested_bindings_are_merged() -> None:
    with bind(a=1, b=1):
        with bind(b=2, c=2):
            assert bound() == {"a": 1, "b": 2, "c": 2}
        assert bound() == {"a": 1, "b": 1}


def test_none_removes_a_field() -> None:
    with bind(a=1, b=2):
        with bind(a=None, c=None):
            assert bound() == {"b": 2}
            with bind(a=3):
                assert bound() == {"a": 3, "b": 2}
        assert bound() == {"a": 1, "b": 2}
    with bind(a=None):
        assert BOUND.get() is NOTHING


@pytest.mark.parametrize("values", [(1, 2), (1, 1), (1, True), (nan, 2), (None, 1), (1, None)])
def test_the_outer_binding_may_be_removed_first(values: tuple[Any, Any]) -> None:
    """Fields that were bound later stay."""
    outer, inner = bind(x=values[0], y="outer"), bind(x=values[1])
    outer.remove()
    assert [*bound().values()] == [value for value in values[1:] if value is not None]
    inner.remove()
    assert bound() == {}


def test_a_handle_can_be_called_removed_or_entered() -> None:
    """A second removal does nothing."""
    first, second = bind(a=1), bind(b=2)
    second()
    second()
    assert bound() == {"a": 1}
    first.remove()
    first.remove()
    assert bound() == {}
    with bind(c=3) as third:
        assert isinstance(third, types.Binding)
        third.remove()
        assert bound() == {}
    with suppress(Boom), bind(c=3):
        raise Boom


VALUES = st.none() | st.integers(0, 2) | st.booleans() | st.sampled_from(["x", nan, 1.0])
FIELDS = st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1)


@settings(max_examples=50)
@given(steps=st.lists(FIELDS | st.integers(0, 5), max_size=12), order=st.randoms(use_true_random=False))
def test_any_sequence_of_bindings_restores_the_initial_fields(steps: list[Any], order: Random) -> None:
    """A mapping is bound, a number is the index of the handle to remove; the later binding wins."""
    copy_context().run(_any_sequence, steps, order)


def _any_sequence(steps: list[dict[str, Any] | int], order: Random) -> None:
    with bind(a="before"):
        held: list[tuple[Binding, dict[str, Any]]] = []
        for step in steps:
            if isinstance(step, dict):
                held.append((bind(**step), step))
            elif step < len(held):
                held.pop(step)[0].remove()
            expected: dict[str, Any] = {"a": "before"}
            for _, fields in held:
                expected |= fields
            assert bound() == {key: value for key, value in expected.items() if value is not None}
        order.shuffle(held)
        for binding, _ in held:
            binding.remove()
        assert bound() == {"a": "before"}


def test_repeated_bindings_do_not_accumulate() -> None:
    """As in a thread that serves one request after the other, and never unbinds its fields."""

    def serve() -> None:
        with bind(server="one"):
            for number in range(100):
                bind(request=number)
            assert bound() == {"server": "one", "request": 99}
        for _ in range(2):
            assert bound() == {"request": 99}
            bind(more=None).remove()
        assert len(_bindings.get()) < 5

    copy_context().run(serve)


@pytest.mark.parametrize("wrong", [[1], {"a": 1}, object(), b"bytes", (1,), Retry])
def test_values_of_other_types_are_refused(wrong: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^bind\(tenant=.*\): write a text, a number, True or False, or the str"
    ):
        bind(run_id=1, tenant=wrong)


def test_bind_without_fields_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^bind\(\) binds nothing: write bind\(run_id=\.\.\., tenant="):
        bind()


def test_bound_fields_are_read_only() -> None:
    with bind(a=1), pytest.raises(TypeError):
        BOUND.get()["a"] = 2  # type: ignore[index]  # pyright: ignore[reportIndexIssue]


def test_an_event_with_bound_fields_has_a_pickle_and_a_repr() -> None:
    """Its repr shows the fields redacted."""
    events: list[Event] = []
    with observe(events.append), bind(run_id="r-17", source="https://me:hunter2@example.com/x"):
        Retry(labels={"team": "x"}).call(int)
    for event in events:
        sent = pickle.loads(pickle.dumps(event))
        assert sent == event
        assert sent.bound == event.bound
        assert "bound={'run_id': 'r-17', 'source': 'https://example.com/x'}" in repr(event)
        assert "bound" not in repr(event._replace(bound={}))
