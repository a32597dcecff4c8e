"""A lazy dataclass is like one of `dataclasses`, which it does not import until its fields are read."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

import pytest

from redouble._internal import lazy_dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


UNHASHABLE: dict[str, str] = {}


class Body:
    size: int
    unit: str = "m"
    notes: Mapping[str, str] = UNHASHABLE

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(self.size)


def made(*, kw_only: bool = False, **methods: object) -> tuple[Any, Any]:
    """Return the class as a lazy dataclass, and as one of `dataclasses`."""
    body = {name: value for name, value in vars(Body).items() if name not in ("__dict__", "__weakref__")}
    body |= methods
    lazy: Any = lazy_dataclass
    usual = {**body, "notes": dataclasses.field(default_factory=dict[str, str])}
    return (
        lazy.dataclass(frozen=True, kw_only=kw_only)(type("Body", (), body)),
        dataclasses.dataclass(frozen=True, kw_only=kw_only)(type("Body", (), usual)),
    )


LAZY, USUAL = made()


def test_its_instances_are_values() -> None:
    one, other = LAZY(3), LAZY(size=3, unit="m")
    assert one == other
    assert one != LAZY(4)
    assert one != USUAL(3)
    assert repr(one) == "Body(size=3, unit='m', notes={})"
    assert hash(LAZY(1, "s", "")) == hash(USUAL(1, "s", "")) == hash(LAZY(1, "s", ""))
    with pytest.raises(ValueError, match="-1"):
        LAZY(-1)


@pytest.mark.parametrize("name", ["size", "other"])
def test_its_instances_never_change(name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{name}'"):
        setattr(LAZY(3), name, 4)
    with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot delete field '{name}'"):
        delattr(LAZY(3), name)


def test_dataclasses_reads_its_fields() -> None:
    described = ("name", "type", "default", "kw_only", "init")
    for lazy, usual in (made(), made(kw_only=True)):
        fields = [dataclasses.fields(kind) for kind in (lazy, usual)]
        first, second = ([[getattr(f, name) for name in described] for f in each] for each in fields)
        assert first == second
        notes: Any = fields[0][2]
        assert notes.default_factory() == {}
        assert lazy.__match_args__ == usual.__match_args__
        assert lazy.__dataclass_params__.frozen
        signatures = [str(inspect.signature(kind)) for kind in (lazy, usual)]
        assert signatures[0].replace("{}", "<factory>") == signatures[1]


def test_it_can_be_replaced_and_converted() -> None:
    assert dataclasses.replace(LAZY(3), unit="s") == LAZY(3, "s") == LAZY(3).__replace__(unit="s")
    assert dataclasses.asdict(LAZY(3, notes={"a": "b"})) == {"size": 3, "unit": "m", "notes": {"a": "b"}}
    assert copy.copy(LAZY(3)) == LAZY(3)
    assert dataclasses.is_dataclass(LAZY)


def test_it_can_be_a_base_of_dataclasses() -> None:
    base: type = LAZY
    more: Any = dataclasses.make_dataclass("More", [("colour", str, "red")], bases=(base,), frozen=True)
    assert repr(more(3)) == "More(size=3, unit='m', notes={}, colour='red')"


def test_its_own_methods_are_kept() -> None:
    def shown(_: object) -> str:
        return "shown"

    lazy, _ = made(__repr__=shown)
    assert repr(lazy(3)) == "shown"


def test_a_subclass_may_have_other_attributes() -> None:
    """As with a frozen dataclass, whose fields alone a subclass cannot change."""
    for kind in made():
        extended = type("Extended", (kind,), {})(3)
        extended.colour = "red"
        assert extended.colour == "red"
        del extended.colour
        with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot assign to field 'size'$"):
            extended.size = 4
        with pytest.raises(dataclasses.FrozenInstanceError, match=r"^cannot delete field 'size'$"):
            del extended.size


def test_the_fields_are_made_once() -> None:
    lazy, _ = made()
    assert lazy.__dataclass_fields__ is lazy.__dataclass_fields__
    assert lazy.__dataclass_params__ is lazy.__dataclass_params__
