"""The attributes of a class or function that `public` changes, and those it leaves alone."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, NamedTuple, get_overloads, get_type_hints, overload

import pytest

from redouble._internal.public import public


@public("elsewhere")
@dataclass
class Price:
    """A dataclass."""

    usual: ClassVar[Decimal] = Decimal(1)
    amount: Decimal = usual
    _scale: ClassVar[Decimal] = Decimal(2)


@public("elsewhere")
class Point(NamedTuple):
    """A named tuple."""

    x: Decimal
    y: int | None = None


@public("elsewhere")
class Node:
    """A class with annotations that cannot be evaluated yet."""

    next: Node | None = None
    last: Last | None = None


class Last:
    """A class that is defined later."""


@public("elsewhere")
class Bare:
    """A class without annotations."""


@overload
def doubled(value: int) -> int: ...
@overload
def doubled(value: Decimal) -> Decimal: ...
@public("elsewhere")
def doubled(value: int | Decimal) -> int | Decimal:
    return 2 * value


@pytest.mark.parametrize("thing", [Price, Point, Bare, doubled])
def test_public_sets_the_module(thing: type) -> None:
    assert thing.__module__ == "elsewhere"
    assert thing.__qualname__ in ("Price", "Point", "Bare", "doubled")


def test_annotations_are_evaluated_in_the_defining_module() -> None:
    """Also those that `dataclass` and `NamedTuple` have created before."""
    assert get_type_hints(Price) == {"usual": ClassVar[Decimal], "amount": Decimal}
    assert get_type_hints(Price.__init__) == {"amount": Decimal, "return": type(None)}
    assert get_type_hints(Point) == {"x": Decimal, "y": int | None}
    assert get_type_hints(Node) == {"next": Node | None, "last": Last | None}
    assert inspect.get_annotations(Bare) == {}
    assert get_type_hints(doubled)["return"] == int | Decimal


def test_annotations_that_are_not_strings_are_kept() -> None:
    kind = type("Kind", (), {"__annotations__": {"size": int, "price": "Decimal"}, "__module__": __name__})
    assert public("elsewhere")(kind).__annotations__["size"] is int
    assert get_type_hints(kind) == {"size": int, "price": Decimal}


def test_overloads_are_kept() -> None:
    assert [inspect.signature(stub).return_annotation for stub in get_overloads(doubled)] == [
        "int",
        "Decimal",
    ]
    assert (doubled(2), doubled(Decimal(2))) == (4, Decimal(4))
