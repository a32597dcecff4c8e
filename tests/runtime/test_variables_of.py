"""Looking at the call stack keeps nothing alive that the functions on it have dropped."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from redouble import Bulkhead, Retry, current, errors, remaining
from redouble._runtime.call_stack import variables_of
from redouble.testing import virtual_time
from tests.support.garbage_collection import untraced


class Big:
    """Something that a function drops before it returns."""


pytestmark = pytest.mark.usefixtures(untraced.__name__)


def callers() -> Mapping[str, Any]:
    return variables_of(sys._getframe(1))


def wait_for_a_slot() -> None:
    with virtual_time(), FULL, suppress(errors.BulkheadFull):
        FULL.call(callers)


FULL = Bulkhead(1, wait=1)
ASKED: list[Callable[[], object]] = [callers, remaining, current, wait_for_a_slot]


@pytest.mark.parametrize("ask", ASKED)
def test_a_value_is_freed_when_its_function_drops_it(ask: Callable[[], object]) -> None:
    for attempt in Retry(timeout=60):
        with attempt:
            big = Big()
            ref = weakref.ref(big)
            ask()
            del big
            assert ref() is None


def test_variables_of_all_sorts_are_found() -> None:
    cell = 1

    def inner(argument: int) -> Mapping[str, Any]:
        local = cell
        seen = callers()
        return {**seen} if local else {}

    seen = inner(2)
    assert {name: seen[name] for name in ("cell", "argument", "local")} == {
        "cell": 1,
        "argument": 2,
        "local": 1,
    }


def test_the_dict_of_locals_is_left_to_its_owner() -> None:
    big = Big()
    own = locals()
    assert callers()["big"] is big
    assert own["big"] is big


def test_names_that_an_exec_has_added_stay() -> None:
    exec("added = 1")  # noqa: S102
    callers()
    if sys.version_info < (3, 13):
        assert locals()["added"] == 1


def test_a_module_and_a_class_keep_their_variables() -> None:
    namespace: dict[str, Any] = {"callers": callers}
    exec("x = 1\nclass C:\n    y = 2\n    seen = dict(callers())\nseen = dict(callers())", namespace)  # noqa: S102
    assert (namespace["x"], namespace["seen"]["x"], namespace["C"].seen["y"], namespace["C"].y) == (
        1,
        1,
        2,
        2,
    )


@contextmanager
def traced(tracer: Callable[..., Any]) -> Generator[None]:
    sys.settrace(tracer)
    try:
        yield
    finally:
        sys.settrace(None)


def test_a_debugger_that_asks_changes_no_variable() -> None:
    asked: list[Mapping[str, Any]] = []

    def debugger(frame: Any, event: str, arg: object) -> Any:
        if event == "line" and frame.f_code is program.__code__:
            asked.append(dict(variables_of(frame)))
        return debugger

    def program() -> int:
        value = 3
        value += 1
        return value

    with traced(debugger):
        result = program()
    assert result == 4
    assert [seen.get("value") for seen in asked] == [None, 3, 4]


def test_a_profiler_that_asks_changes_no_variable() -> None:
    asked: list[Mapping[str, Any]] = []

    def profiler(frame: Any, event: str, arg: object) -> None:
        if event == "c_call" and frame.f_code is program.__code__:
            asked.append(dict(variables_of(frame)))

    def program() -> int:
        value = 3
        len("")
        return value

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        result = program()
    finally:
        sys.setprofile(before)
    assert result == 3
    assert [seen["value"] for seen in asked] == [3]
