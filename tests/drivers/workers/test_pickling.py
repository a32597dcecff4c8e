"""What goes to a worker process and back, functions also from behind their decorators."""

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


def test_what_pickle_can_send_is_sent() -> None:
    for thing in (1, "two", [3, {"four": (5,)}], plain, in_process.Shop, len, str.join):
        assert unpack(pack(thing)) == thing


def test_a_function_is_found_behind_its_decorators() -> None:
    inner = undecorated(twice)
    innermost = undecorated(inner)
    for layer, said in ((twice, "noted: noted: twice"), (inner, "noted: twice"), (innermost, "twice")):
        found = unpack(pack(layer))
        assert found is layer
        assert found() == said


@pytest.mark.parametrize("name", ["method", "static", "of_class"])
def test_so_is_a_method(name: str) -> None:
    wrapper = getattr(in_process.Shop, name)
    hidden = undecorated(getattr(wrapper, "__func__", wrapper))
    assert policy_of(wrapper) is in_process.retried
    assert unpack(pack(hidden)) is hidden


def test_a_function_without_a_name_to_find_it_by_is_refused() -> None:
    def local() -> None: ...

    stranger = noted(plain)
    astray = noted(plain)
    astray.__module__ = "no.such.module"
    for hidden in (local, lambda: None, stranger, astray):
        with pytest.raises((pickle.PicklingError, AttributeError)):
            pack(hidden)


def test_a_wrapper_that_wraps_itself_is_no_trouble() -> None:
    plain.__dict__["__wrapped__"] = plain
    try:
        with pytest.raises(pickle.PicklingError):
            pack(noted(plain))
    finally:
        del plain.__dict__["__wrapped__"]
