"""Frozen dataclasses that import `dataclasses` only when their fields are read.

A decorated function needs a policy, its hints and a few verdicts, all of them dataclasses. `dataclasses`
imports `inspect` and much else, which takes a quarter of the time in which the first function is decorated.
So the decorator here adds the same methods without it. `dataclasses.fields`, `dataclasses.replace` and the
like work as for any dataclass.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  for the importing modules
else:

    def dataclass(*, frozen: bool, kw_only: bool = False) -> Any:  # noqa: ARG001  it is always frozen
        """Return a decorator for frozen classes that have a ``__post_init__`` and use no `field`."""
        return lambda cls: _complete(cls, kw_only)


LAZY_ATTRIBUTES = ("__dataclass_fields__", "__dataclass_params__")

INIT = """\
def make(defaults, set_field):
    def __init__(self, {parameters}):
        {statements}
        self.__post_init__()
    return __init__
"""


class FrozenMethods:
    """The methods of frozen dataclasses that do not depend on the fields."""

    _field_names: tuple[str, ...]
    _field_values: Callable[[object], tuple[object, ...]]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return self._field_values(self) == self._field_values(other)

    def __hash__(self) -> int:
        return hash(self._field_values(self))

    def __repr__(self) -> str:
        shown = (f"{name}={getattr(self, name)!r}" for name in self._field_names)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> None:
        _check_frozen(self, name, "assign to")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _check_frozen(self, name, "delete")
        object.__delattr__(self, name)

    def __replace__(self: Any, /, **changes: Any) -> Any:
        from dataclasses import replace  # noqa: PLC0415  see above

        return replace(self, **changes)


def _check_frozen(instance: FrozenMethods, name: str, verb: str) -> None:
    """Raise an error unless this is an attribute that a subclass adds."""
    if name in instance._field_names or "_field_names" in vars(type(instance)):
        from dataclasses import FrozenInstanceError  # noqa: PLC0415  see above

        raise FrozenInstanceError(f"cannot {verb} field {name!r}")


class LazyAttribute:
    """``__dataclass_fields__`` or ``__dataclass_params__``, made when `dataclasses` reads one."""

    def __init__(self, name: str, make: Callable[[], type]) -> None:
        self._name, self._make = name, make

    def __get__(self, instance: object, owner: type) -> Any:
        return getattr(self._make(), self._name)


def _made_by_dataclasses(cls: type, defaults: dict[str, Any], kw_only: bool) -> type:
    """Return an equal dataclass, and let ``cls`` have its fields and parameters from now on."""
    from dataclasses import field, make_dataclass  # noqa: PLC0415  see above

    namespace = {
        name: value if isinstance(value, Hashable) else field(default_factory=value.copy)
        for name, value in defaults.items()
    }
    twin = make_dataclass("_", cls.__annotations__.items(), namespace=namespace, frozen=True, kw_only=kw_only)
    for name in LAZY_ATTRIBUTES:
        setattr(cls, name, getattr(twin, name))
    return twin


def _complete(cls: type, kw_only: bool) -> type:
    """Add the attributes of a frozen dataclass, apart from those that the class defines itself."""
    annotations: dict[str, Any] = dict(cls.__annotations__)
    own: dict[str, Any] = dict(vars(cls))
    defaults = {name: own[name] for name in annotations if name in own}
    names = tuple(annotations)
    attributes: dict[str, Any] = {
        "_field_names": names,
        "_field_values": attrgetter(*names),
        "__init__": _init(cls, annotations, defaults, kw_only),
        "__match_args__": () if kw_only else names,
    }
    make = partial(_made_by_dataclasses, cls, defaults, kw_only)
    attributes |= {name: LazyAttribute(name, make) for name in LAZY_ATTRIBUTES}
    for name in ("__eq__", "__hash__", "__repr__", "__setattr__", "__delattr__", "__replace__"):
        attributes[name] = own.get(name, vars(FrozenMethods)[name])
    for name, value in attributes.items():
        setattr(cls, name, value)
    return cls


def _init(cls: type, annotations: dict[str, Any], defaults: dict[str, Any], kw_only: bool) -> Any:
    parameters = [f"{name}=defaults[{name!r}]" if name in defaults else name for name in annotations]
    statements = [f"set_field(self, {name!r}, {name})" for name in annotations]
    source = INIT.format(
        parameters=", ".join(["*"] * kw_only + parameters), statements="\n        ".join(statements)
    )
    scope: dict[str, Any] = {}
    exec(source, vars(sys.modules[cls.__module__]), scope)  # noqa: S102  our own
    init = scope["make"](defaults, object.__setattr__)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = annotations | {"return": None}
    return init
