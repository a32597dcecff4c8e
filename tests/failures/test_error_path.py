"""The path of an error, and what the recognition of nested retries costs and keeps alive."""

from __future__ import annotations

import inspect
import opcode
import weakref
from typing import Any

import pytest

from redouble import Retry, report
from redouble._failures import error_path
from redouble._failures.error_path import ErrorPath
from tests.support.fakes import Boom
from tests.support.garbage_collection import Thing, without_gc

__all__ = ["without_gc"]


def test_the_operation_code_of_a_raise_statement() -> None:
    with pytest.raises(Boom) as caught:
        error_path._raise(Boom())
    *_, last = caught.traceback
    assert opcode.opname[error_path.RAISE] == "RAISE_VARARGS"
    assert last._rawentry.tb_frame.f_code.co_code[last._rawentry.tb_lasti] == error_path.RAISE


def test_the_flags_of_code_that_is_suspended() -> None:
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    assert flags == error_path.SUSPENDED


def test_an_error_without_a_traceback_tells_nothing() -> None:
    stamp = object()
    assert ErrorPath(Boom()).leads_to(stamp, Boom()) is None
    assert ErrorPath(Boom()).leads_to(stamp, error := Boom()) is None
    assert ErrorPath(error).leads_to(stamp, error) is None


class Unreadable:
    """A namespace whose values cannot be listed."""

    def __init__(self, **names: object) -> None:
        self._names = names

    def __getitem__(self, name: str) -> object:
        return self._names[name]


def test_code_in_an_odd_namespace() -> None:
    inner = Retry(on=Boom, attempts=2, backoff=[0])

    def fails() -> None:
        raise Boom

    def attempt() -> None:
        namespace: Any = Unreadable(call=lambda: inner.call(fails))
        exec("call()", {}, namespace)  # noqa: S102  a debugger or a notebook does this

    with pytest.raises(Boom) as caught:
        Retry(on=Boom, attempts=3, backoff=[0, 0], nested="stop").call(attempt)
    reported = report(caught.value)
    assert reported is not None
    assert reported.reason == "nested"


def test_a_nested_error_is_freed_with_its_last_reference(without_gc: None) -> None:
    """No cycle keeps the arguments of a call alive."""
    inner = Retry(on=Boom, attempts=2, backoff=[0])
    outer = Retry(on=Boom, attempts=2, backoff=[0], nested="stop")

    def fails(_: Thing) -> None:
        raise Boom

    def attempt(thing: Thing) -> None:
        inner.call(fails, thing)

    thing = Thing()
    freed = weakref.ref(thing)
    with pytest.raises(Boom):
        outer.call(attempt, thing)
    del thing
    assert freed() is None
