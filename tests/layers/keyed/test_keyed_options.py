"""The options of `Keyed`: keys, factories of layers, limits, and wrong options."""

from __future__ import annotations

import copy
import functools
import pickle
from datetime import timedelta
from math import nan
from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Keyed, Layer, Retry, errors
from tests.support.fakes import Boom, in_colour
from tests.support.layers.keyed_calls import afetch, aitems, fetch, first, items


def in_every_shape(colour: str, layer: Layer, *keys: Any) -> list[Any]:
    """Make a call and read a stream with each key; return the results."""

    async def waiting() -> list[Any]:
        ends: list[Any] = [await layer(afetch)(key) for key in keys]
        for key in keys:
            ends += [item async for item in layer(aitems)(key)]
        return ends

    def blocking() -> list[Any]:
        ends: list[Any] = [layer(fetch)(key) for key in keys]
        for key in keys:
            ends += layer(items)(key)
        return ends

    answers: list[Any] = in_colour(colour, blocking, waiting)
    return answers


# ------------------------------------------------------------------------------ of, make


def test_of_returns_the_layer_that_a_call_uses(colour: str) -> None:
    made: list[CircuitBreaker] = []

    def make() -> CircuitBreaker:
        made.append(CircuitBreaker())
        return made[-1]

    breakers = Keyed(first, make)
    before = breakers.of("a")
    for _ in range(3):
        in_every_shape(colour, breakers, "a", "b")
    assert breakers.of("a") is before
    assert {before, breakers.of("b")} <= {*made}
    assert len(made) <= 3, "one for each key, and one to see whether it can wrap the functions at all"
    before.isolate()
    with pytest.raises(errors.CircuitOpen):
        in_every_shape(colour, breakers, "a")
    assert in_every_shape(colour, breakers, "b") == ["b", "b"]
    assert breakers.snapshot() == {"keys": 2, "forgotten": 0}


class Maker:
    """A factory of layers, as every kind of callable."""

    def by_key(self, key: int) -> Bulkhead:
        return Bulkhead(key)

    def always(self) -> Bulkhead:
        return Bulkhead(7)

    def __call__(self, key: int) -> Bulkhead:
        return Bulkhead(key)


def optional(limit: int = 7) -> Bulkhead:
    return Bulkhead(limit)


def varied(*keys: int) -> Bulkhead:
    return Bulkhead(*keys or [7])


MAKES: list[tuple[Any, int]] = [
    (lambda: Bulkhead(7), 7),
    (functools.partial(Bulkhead, 7), 7),
    (functools.partial(Bulkhead, wait=0), 3),
    (Maker().by_key, 3),
    (Maker().always, 7),
    (Maker(), 3),
    (optional, 7),
    (varied, 7),
]


@pytest.mark.parametrize(("make", "limit"), MAKES)
def test_a_layer_is_made_with_the_key_if_it_takes_one(make: Any, limit: int) -> None:
    bulkheads: Keyed[Bulkhead] = Keyed(first, make)
    assert bulkheads.of(3).limit == limit
    assert bulkheads.of(3) is bulkheads.of(3)


@pytest.mark.parametrize("made", [None, 3, CircuitBreaker, "layer"])
def test_a_factory_that_returns_no_layer_is_reported(colour: str, made: Any) -> None:
    wrong: Keyed[Any] = Keyed(first, lambda: made)
    message = r"^Keyed make=.*<lambda> made .*, which is no layer(\nraised by Keyed.describe\(\), .*)?$"
    for use in (lambda: in_every_shape(colour, wrong, "a"), lambda: wrong.of("a"), (wrong | Retry()).explain):
        with pytest.raises(TypeError, match=message) as caught:
            use()
        assert repr(made) in str(caught.value)
    assert wrong.snapshot()["keys"] == 0


def test_a_factory_without_a_signature_is_called_without_a_key() -> None:
    wrong: Any = dict  # accepts anything, and has no signature
    with pytest.raises(TypeError, match=r"^Keyed make=dict made {}, which is no layer$"):
        Keyed(first, wrong).of("a")


def test_a_failed_factory_is_called_again(colour: str) -> None:
    errors_left = [Boom("1"), Boom("2")]

    def make() -> Bulkhead:
        if errors_left:
            raise errors_left.pop(0)
        return Bulkhead(1)

    bulkheads = Keyed(first, make)
    for text in "12":
        with pytest.raises(Boom, match=text):
            in_every_shape(colour, bulkheads, "a")
        assert bulkheads.snapshot() == {"keys": 0, "forgotten": 0}
    assert in_every_shape(colour, bulkheads, "a") == ["a", "a"]


# --------------------------------------------------------------------------------- keys


@pytest.mark.parametrize("key", [None, 0, "", (1, "a"), frozenset("a"), 1.5, Boom, b"x"])
def test_keys_are_anything_hashable(colour: str, key: Any) -> None:
    bulkheads = Keyed(first, lambda: Bulkhead(1, 0))
    assert in_every_shape(colour, bulkheads, key) == [key, key]
    assert bulkheads.snapshot()["keys"] == 1


@pytest.mark.parametrize("key", [["secret"], {"secret": 1}, ([], "secret"), {"secret"}])
def test_unhashable_keys_are_reported(colour: str, key: Any) -> None:
    bulkheads = Keyed(first, lambda: Bulkhead(1))
    message = rf"^Keyed key=first returned a {type(key).__name__}: keys must be hashable$"
    with pytest.raises(TypeError, match=message):
        in_every_shape(colour, bulkheads, key)
    with pytest.raises(TypeError, match=message) as caught:
        bulkheads.of(key)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_error_of_the_key_function_is_raised(colour: str) -> None:
    def key_of(key: str) -> str:
        raise Boom

    bulkheads = Keyed(key_of, lambda: Bulkhead(1))
    with pytest.raises(Boom):
        in_every_shape(colour, bulkheads, "a")
    assert bulkheads.snapshot()["keys"] == 0


# ------------------------------------------------------------------------- wrong options


def one(key: object = None) -> Bulkhead:
    return Bulkhead(1)


MISTAKES: list[tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = [
    (("host", one), {}, TypeError, r"Keyed key='host': write a function, such as lambda host: host$"),
    (
        (first, Bulkhead(1)),
        {},
        TypeError,
        r"Keyed make=Bulkhead.*: write a function, such as lambda: Circuit",
    ),
    (
        (Bulkhead(1), one),
        {},
        TypeError,
        r"Keyed key=Bulkhead.*: write a function, such as lambda host: host$",
    ),
    ((first, 3), {}, TypeError, r"Keyed make=3: write a function, such as lambda: CircuitBreaker\(\)$"),
    ((afetch, one), {}, TypeError, r"Keyed key=afetch is a coroutine function: write a plain function$"),
    ((first, aitems), {}, TypeError, r"Keyed make=aitems is an async generator function: write a plain func"),
    (
        (first, Bulkhead),
        {},
        TypeError,
        r"Keyed make=Bulkhead needs options: write lambda: Bulkhead\(\.\.\.\)$",
    ),
    ((first, one, 0), {}, ValueError, r"Keyed most=0: write how many keys, 1 or more$"),
    ((first, one, 1.5), {}, TypeError, r"Keyed most=1.5: write how many keys, 1 or more$"),
    ((first, one, True), {}, TypeError, r"Keyed most=True: write how many keys"),
    ((first, one, None), {}, TypeError, r"Keyed most=None: write how many keys"),
    ((first, one, 9, -1), {}, ValueError, r"Keyed idle=-1: write a finite number of seconds, 0 or more$"),
    ((first, one), {"idle": nan}, ValueError, r"Keyed idle=nan: write a finite number"),
    (
        (first, one),
        {"idle": "10m"},
        TypeError,
        r"Keyed idle='10m': write seconds as a number, or a timedelta",
    ),
    ((first, one), {"name": 3}, TypeError, r"Keyed name=3: write a text, or None$"),
    ((first,), {}, TypeError, r".*missing 1 required positional argument: 'make'"),
]


@pytest.mark.parametrize(("args", "options", "kind", "message"), MISTAKES)
def test_wrong_options_are_reported(
    args: tuple[Any, ...], options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        Keyed(*args, **options)


def test_its_repr() -> None:
    assert repr(Keyed(first, one)) == "Keyed(first, one, most=1000)"
    named = Keyed(first, one, 5, timedelta(minutes=1), name="hosts")
    assert (repr(named), named.name) == ("Keyed(first, one, most=5, name='hosts')", "hosts")


def test_it_is_shared_and_never_copied() -> None:
    bulkheads = Keyed(first, one)
    assert copy.copy(bulkheads) is copy.deepcopy(bulkheads) is bulkheads
    with pytest.raises(TypeError, match="a Keyed is shared by the calls of one process"):
        pickle.dumps(bulkheads)
