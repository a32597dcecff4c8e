"""`Fallback` functions that take the arguments of the call behind the exception."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

from redouble import SYSTEM, Fallback, Keyed
from tests.support.fakes import ASYNC, SYNC, Boom, in_colour, nothing

BOOM = Boom("x")


def fetch(url: str, *, tries: int = 3) -> object:
    raise BOOM


async def afetch(url: str, *, tries: int = 3) -> object:
    raise BOOM


def called(colour: str, fallback: Fallback) -> Any:
    fn, afn = fallback(fetch), fallback(afetch)
    return in_colour(colour, lambda: fn("a", tries=1), lambda: afn("a", tries=1))


def two(error: Exception, url: str, tries: int) -> object:
    return error, url, tries


def named(error: Exception, url: str, *, tries: int) -> object:
    return error, url, tries


def variadic(error: Exception, *args: Any, **kwargs: Any) -> object:
    return error, *args, *kwargs.values()


def only_named(*args: Any, tries: int) -> object:
    return *args, tries


class Cache:
    def method(self, error: Exception, url: str, tries: int) -> object:
        return error, url, tries

    def __call__(self, error: Exception, url: str, tries: int) -> object:
        return error, url, tries


@pytest.mark.parametrize(
    "fn",
    [two, named, variadic, only_named, Cache().method, Cache()],
    ids=["two", "named", "variadic", "only_named", "method", "object"],
)
def test_a_function_that_needs_more_than_the_error_gets_the_arguments(
    colour: str, fn: Callable[..., object]
) -> None:
    assert called(colour, Fallback(fn)) == (BOOM, "a", 1)


def optional(error: Exception, url: str = "default") -> object:
    return error, url


def keywords(error: Exception, **kwargs: Any) -> object:
    return error, *kwargs


def stars(*args: Any, **kwargs: Any) -> object:
    return *args, *kwargs


@pytest.mark.parametrize(
    ("fn", "expected"),
    [(optional, (BOOM, "default")), (keywords, (BOOM,)), (stars, (BOOM,)), (repr, repr(BOOM))],
)
def test_a_function_that_can_be_called_with_the_error_gets_only_that(
    colour: str, fn: Callable[..., object], expected: object
) -> None:
    assert called(colour, Fallback(fn)) == expected


@pytest.mark.parametrize("colour", ASYNC)
def test_an_async_function_gets_the_arguments(colour: str) -> None:
    async def atwo(error: Exception, url: str, tries: int) -> object:
        await SYSTEM.asleep(0)
        return error, url, tries

    afn = Fallback(atwo)(afetch)
    assert in_colour(colour, lambda: None, lambda: afn("a", tries=1)) == (BOOM, "a", 1)


def test_the_defaults_of_the_function_are_not_passed(colour: str) -> None:
    """The arguments are those of the call."""
    fn, afn = Fallback(variadic)(fetch), Fallback(variadic)(afetch)
    assert in_colour(colour, lambda: fn("a"), lambda: afn("a")) == (BOOM, "a")


def test_a_generator_is_replaced_by_a_function_of_its_arguments(colour: str) -> None:
    def items(most: int) -> Generator[int]:
        raise BOOM
        yield most

    async def aitems(most: int) -> AsyncGenerator[int]:
        raise BOOM
        yield most

    def instead(_: Exception, most: int) -> object:
        return range(most)

    async def waiting() -> list[object]:
        return [item async for item in Fallback(instead)(aitems)(3)]

    fn = Fallback(instead)(items)
    assert in_colour(colour, lambda: [*fn(3)], waiting) == [0, 1, 2]


def address(error: Exception, address: str) -> None:
    """Take one argument of two."""


def depth(error: Exception, url: str, tries: int, *, depth: int) -> None:
    """Take one argument that the call has not."""


@pytest.mark.parametrize("wrong", [address, depth])
def test_a_function_that_does_not_accept_the_arguments_is_refused_at_once(wrong: Callable[..., int]) -> None:
    message = (
        r"^Fallback\(\w+\) does not accept the arguments of \w+ after the exception: write a function "
        r"of \(error, url, \*, tries\), or of the exception alone$"
    )
    for work in (fetch, afetch):
        with pytest.raises(TypeError, match=message):
            Fallback(wrong)(work)


def test_the_arguments_of_a_function_without_a_signature_are_not_checked() -> None:
    assert Fallback(two).call(max, 1, 2) == 2

    def anything(*args: Any, **kwargs: Any) -> object:
        raise BOOM

    assert Fallback(two)(anything)("a", 1) == (BOOM, "a", 1)


def url_of(url: str, *, tries: int = 3) -> str:
    return url


@pytest.mark.parametrize("colour", SYNC)
def test_inside_a_keyed_layer(colour: str) -> None:
    keyed = Keyed(url_of, lambda: Fallback(two))
    assert in_colour(colour, lambda: keyed.call(fetch, "a", tries=1), nothing) == (BOOM, "a", 1)
