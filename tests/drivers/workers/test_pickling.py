"""Pickling for worker processes, including functions that a decorator hides."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import wraps

import pytest

from redouble import policy_of
from redouble._drivers.workers.pickling import pack, unpack
from tests.support.workers import functions as in_process


def undecorated(fn: object) -> Callable[..., object]:
    found: Callable[..., object] = vars(fn)["__wrapped__"]
    return found


def noted(fn: Callable[[], str]) -> Callable[[], str]:
    @wraps(fn)
    def noting() -> str:
        return f"noted: {fn()}"

    return noting


def plain() -> str:
    return "plain"


@noted
@noted
def twice() -> str:
    return "twice"


def test_picklable_objects_are_unpacked_again() -> None:
    for thing in (1, "two", [3, {"four": (5,)}], plain, in_process.Shop, len, str.join):
        assert unpack(pack(thing)) == thing


def test_a_function_below_its_decorators_is_found() -> None:
    inner = undecorated(twice)
    innermost = undecorated(inner)
    for layer, result in ((twice, "noted: noted: twice"), (inner, "noted: twice"), (innermost, "twice")):
        found = unpack(pack(layer))
        assert found is layer
        assert found() == result


@pytest.mark.parametrize("name", ["method", "static", "of_class"])
def test_a_method_below_its_decorators_is_found(name: str) -> None:
    wrapper = getattr(in_process.Shop, name)
    hidden = undecorated(getattr(wrapper, "__func__", wrapper))
    assert policy_of(wrapper) is in_process.retried
    assert unpack(pack(hidden)) is hidden


def test_a_function_that_cannot_be_imported_by_name_is_refused() -> None:
    def local() -> None: ...

    stranger = noted(plain)
    astray = noted(plain)
    astray.__module__ = "no.such.module"
    for hidden in (local, lambda: None, stranger, astray):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pack(hidden)


def test_a_cycle_of_wrappers_is_refused() -> None:
    plain.__dict__["__wrapped__"] = plain
    try:
        with pytest.raises(pickle.PicklingError):
            pack(noted(plain))
    finally:
        del plain.__dict__["__wrapped__"]
