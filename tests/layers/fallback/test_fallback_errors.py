"""Mistakes with `Fallback`, reported when it is made or when it decorates; and its repr."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any

import pytest

from redouble import Fallback, Retry
from tests.support.fakes import SYNC, Boom
from tests.support.layers.fallbacks import AsyncCache, atext, called, deferred, text

THREADS = pytest.mark.parametrize("colour", SYNC)


def none(*, error: Exception) -> None:
    """Require a keyword argument, and take no positional one."""


@pytest.mark.parametrize(
    "fn", [atext, AsyncCache(), functools.partial(atext)], ids=["function", "object", "partial"]
)
def test_an_awaitable_cannot_replace_a_plain_call(fn: Callable[[Exception], Any]) -> None:
    def fetch() -> str:
        return "fetched"

    for use in (Fallback(fn), Retry() | Fallback(fn)):
        with pytest.raises(
            TypeError, match=r"^Fallback\(\w+\) has to be awaited, and .*fetch blocks: write a"
        ):
            use(fetch)
        with pytest.raises(TypeError, match="has to be awaited"):
            use.call(fetch)


@THREADS
def test_a_plain_fallback_that_returns_an_awaitable_raises_type_error(colour: str) -> None:
    """No coroutine is left unawaited."""
    wrong = Boom("x")
    with pytest.raises(TypeError, match=r"^Fallback\(deferred\) has to be awaited, and .* blocks") as caught:
        called(colour, Fallback(deferred), wrong)
    assert caught.value.__context__ is wrong


@pytest.mark.parametrize(
    ("args", "options", "kind", "message"),
    [
        ((), {}, TypeError, r"^write Fallback\(fn\), with a function of the exception, or Fallback\(value="),
        ((None,), {}, TypeError, r"^write Fallback\(fn\)"),
        ((text, None), {"value": 3}, TypeError, r"^write Fallback\(fn\)"),
        ((3,), {}, TypeError, r"^Fallback\(3\): write a function of the exception, or value=3$"),
        (("x",), {}, TypeError, r"^Fallback\('x'\): write a function"),
        ((OSError,), {}, TypeError, r"^Fallback\(OSError\): write on=OSError, and what to return instead$"),
        (
            (lambda: 3,),
            {},
            TypeError,
            r"^Fallback\(.*<lambda>\) takes no argument: write a function of the exception$",
        ),
        ((none,), {}, TypeError, r"^Fallback\(none\) takes no argument"),
        ((text, OSError), {}, TypeError, r"^Fallback\(OSError\): write on=OSError"),
        ((text, 3), {}, TypeError, r"^Fallback\(3\): write a function of the exception, or value=3$"),
        ((), {"value": 3, "on": ()}, ValueError, r"^Fallback on=\(\) is empty"),
        ((), {"value": 3, "on": []}, ValueError, r"^Fallback on=\[\] is empty"),
        ((), {"value": 3, "on": 3}, TypeError, r"on=3: write an exception type"),
        ((), {"value": 3, "on": "OSError"}, TypeError, r"^on='OSError': write an exception type"),
        ((), {"value": 3, "on": int}, TypeError, "is not an exception type"),
        ((), {"value": 3, "on": asyncio.CancelledError}, ValueError, "cancellation, Ctrl-C and exits"),
        ((), {"value": 3, "on": atext}, TypeError, "coroutine function"),
    ],
)
def test_wrong_arguments_are_reported(args: Any, options: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Fallback(*args, **options)


def test_its_repr() -> None:
    """The value is not shown, because it may be long or secret."""
    assert repr(Fallback(value="secret")) == "Fallback(value=...)"
    assert repr(Fallback(text, on=OSError)) == "Fallback(text)"
    assert repr(Fallback(value=None) | Retry(attempts=2)) == "Fallback(value=...) | Retry(attempts=2)"


def test_an_awaitable_cannot_replace_a_plain_generator() -> None:
    def items() -> Generator[int]:
        yield 1

    async def aitems(_: Exception) -> Any:
        yield 2

    for fn in (atext, aitems):
        with pytest.raises(TypeError, match=r"has to be awaited, and .*items blocks"):
            Fallback(fn)(items)


def test_its_signature() -> None:
    """The default of ``value`` is shown as three dots."""
    assert repr(inspect.signature(Fallback).parameters["value"].default) == "..."
