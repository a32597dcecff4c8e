"""The functions that `Keyed` decorates: keys are computed from their parameters, methods stay methods."""

from __future__ import annotations

import functools
import re
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redouble import Bulkhead, Hedge, Keyed, Timeout, errors, policy_of
from tests.support.fakes import Boom, in_colour
from tests.support.layers.keyed_calls import fetch, first, second


def test_the_key_is_computed_from_the_parameters() -> None:
    """As the function receives them: with its defaults, and by their names."""
    seen: list[Any] = []

    def key_of(host: str, /, path: str, *more: str, size: int, **rest: int) -> str:
        seen.append((host, path, more, size, rest))
        return host

    @Keyed(key_of, lambda: Bulkhead(1))
    def get(host: str, path: str = "/", *more: str, size: int = 1, **rest: int) -> tuple[Any, ...]:
        return host, path, more, size, rest

    answers = [get("a"), get(host="b", size=2), get("c", "/x", "y", z=3), get("d", path="/y")]
    assert answers == seen
    assert seen[1:3] == [("b", "/", (), 2, {}), ("c", "/x", ("y",), 1, {"z": 3})]


def strict(key: str) -> str:
    return key


def test_wrong_arguments_are_reported() -> None:
    wrong: Any = Keyed(first, lambda: Bulkhead(1))(strict)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'key'"):
        wrong()


def name_of(client: Client, _: str) -> str:
    return client.name


class Client:
    """Methods of every kind, with a bulkhead for each host or client."""

    by_host = Keyed(second, lambda: Bulkhead(1, 0))
    by_self = Keyed(name_of, lambda: Bulkhead(1, 0))
    plain = Keyed(first, lambda: Bulkhead(1, 0))

    def __init__(self, name: str) -> None:
        self.name = name

    @by_host
    def get(self, host: str) -> str:
        return host

    @by_self
    async def aget(self, host: str) -> str:
        return host

    @by_self
    def lines(self, host: str) -> Iterator[str]:
        yield host

    @by_self
    async def alines(self, host: str) -> AsyncIterator[str]:
        yield host

    @classmethod
    @by_host
    def of_class(cls, host: str) -> str:
        return cls.__name__ + host

    @plain
    @staticmethod
    def static(host: str) -> str:
        return host


def test_methods(colour: str) -> None:
    client, other = Client("one"), Client("two")

    def blocking() -> list[str]:
        return [*client.lines("a"), *other.lines("b")]

    async def waiting() -> list[str]:
        return [await client.aget("a"), *[line async for line in other.alines("b")]]

    assert in_colour(colour, blocking, waiting) == ["a", "b"]
    assert [client.get("a"), other.get("b"), Client.of_class("c"), client.of_class("a")] == [
        "a",
        "b",
        "Clientc",
        "Clienta",
    ]
    assert [Client.static("x"), client.static("y")] == ["x", "y"]
    assert [Client.by_host.snapshot()["keys"], Client.plain.snapshot()["keys"]] == [3, 2]
    assert Client.by_self.of("one") is not Client.by_self.of("two")
    assert policy_of(client.get) is Client.by_host


def both(host: str, path: str) -> tuple[str, str]:
    return host, path


def by_name(host: str, *, size: int = 1) -> tuple[str, int]:
    return host, size


def pages(host: str, path: str) -> Iterator[str]:
    yield host + path


async def apages(host: str, path: str) -> AsyncIterator[str]:
    yield host + path


def anything(*args: object, **options: object) -> str:
    return f"{args} {options}"


FITTING_KEYS: list[tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = [
    (first, both, ("a", "/")),
    (both, both, ("a", "/")),
    (by_name, by_name, ("a",)),
    (anything, by_name, ("a",)),
    (both, anything, ("a", "/")),
    (strict, functools.partial(anything), ("a",)),
    (strict, max, ("ab",)),  # max has no signature
    (max, strict, ("ab",)),
]


@pytest.mark.parametrize(("key", "fn", "args"), FITTING_KEYS)
def test_key_functions_whose_parameters_fit(
    key: Callable[..., Any], fn: Callable[..., Any], args: tuple[str, ...]
) -> None:
    assert Keyed(key, lambda: Bulkhead(1)).call(fn, *args) == fn(*args)


@pytest.mark.parametrize(
    ("key", "fn", "wanted"),
    [
        (both, strict, "(key)"),
        (strict, both, "(host, path)"),
        (both, by_name, "(host, *, size)"),
        (strict, pages, "(host, path)"),
        (strict, apages, "(host, path)"),
    ],
)
def test_key_functions_whose_parameters_do_not_fit_are_reported(
    key: Callable[..., Any], fn: Callable[..., Any], wanted: str
) -> None:
    problem = f"Keyed key={key.__name__} does not accept the arguments of {fn.__name__}"
    message = f"{problem}: write a function of {wanted}"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        Keyed(key, lambda: Bulkhead(1))(fn)


def test_a_layer_that_cannot_wrap_a_function_raises_at_once() -> None:
    """A layer that depends on the key raises at the first call."""
    message = r"^Timeout cannot stop .*strict, which blocks"
    with pytest.raises(TypeError, match=message):
        Keyed(first, lambda: Timeout(2))(strict)
    decorated = Keyed(strict, limited)(strict)
    with pytest.raises(TypeError, match=message):
        decorated("a")


def limited(key: str) -> Timeout:
    return Timeout(2)


class Fetcher:
    def __call__(self, key: str) -> str:
        return key


@pytest.mark.parametrize(
    "fn", [functools.partial(fetch), Fetcher(), str, Client("x").get, functools.partial(max, "a")]
)
def test_any_callable_can_be_called(fn: Callable[..., str]) -> None:
    bulkheads = Keyed(first, lambda: Bulkhead(1, 0))
    assert bulkheads.call(fn, "b") == "b"
    assert bulkheads.of("b").snapshot()["in_use"] == 0
    assert bulkheads.snapshot()["keys"] == 1


def test_a_traceback_shows_the_lines_of_the_right_wrapper() -> None:
    bulkheads = Keyed(first, lambda: Bulkhead(1, 0))

    @bulkheads
    def failing(key: str) -> str:
        raise Boom

    @bulkheads
    def lines(key: str) -> Iterator[str]:
        yield failing(key)

    @bulkheads
    async def alines(key: str) -> AsyncIterator[str]:
        yield key

    try:
        next(lines("a"))
    except errors.BulkheadFull as error:
        shown = [frame.line for frame in traceback.extract_tb(error.__traceback__) if frame.name == "keyed"]
    else:
        raise AssertionError
    assert shown == [
        "return (yield from redouble_wrapper(...))",
        "return redouble_wrapper(...)",
    ]


def test_a_generator_that_the_layers_cannot_wrap_is_reported_when_it_is_decorated() -> None:
    def lines(key: str) -> Iterator[str]:
        yield key

    with pytest.raises(TypeError, match=r"^Hedge runs attempts side by side, .*lines is a generator "):
        Keyed(first, Hedge)(lines)
