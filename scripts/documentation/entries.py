"""Entries of the reference: signatures, docstring and members of a public name, read from the object."""

from __future__ import annotations

import ast
import enum
import inspect
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any, Generic, NamedTuple, Protocol

from documentation.signatures import annotation, code, of_class, of_function

PACKAGE = "redouble"
FOR_PYTEST = "pytest_plugin"  # loaded by pytest only
SOURCE = Path(str(import_module(PACKAGE).__file__)).parent
INVISIBLE = (object, Generic, Protocol)


class Entry(NamedTuple):
    """One name; ``kind`` is class, exception, function, method, property, data, type, ...

    ``signatures`` has one text per overload; ``value`` is the value of a constant or the target of an alias.
    """

    kind: str
    name: str
    signatures: tuple[str, ...] = ("",)
    doc: str = ""
    value: str = ""
    type: str = ""
    bases: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    is_async: bool = False
    members: tuple[Entry, ...] = ()


@cache
def public() -> dict[str, list[str]]:
    """Return the public modules with the names that each exports."""
    return {module: sorted(import_module(module).__all__) for module in _modules(PACKAGE, SOURCE)}


def _modules(package: str, folder: Path) -> Iterator[str]:
    """Yield the names of a package and of its public modules."""
    yield package
    for _, name, is_package in sorted(iter_modules([str(folder)]), key=lambda found: found.name):
        if name.startswith("_") or name == FOR_PYTEST:
            continue
        inner = f"{package}.{name}"
        yield from _modules(inner, folder / name) if is_package else (inner,)


def entry(module: str, name: str) -> Entry:
    """Return the entry of a public name of a module."""
    thing: Any = getattr(import_module(module), name)
    kind = _type(thing)
    if issubclass(kind, ModuleType):
        return Entry("module", thing.__name__, doc=inspect.getdoc(thing) or "")
    if issubclass(kind, type):
        return _class(name, thing)
    if issubclass(kind, FunctionType):
        return _function("function", name, thing)
    if not _is_ours(kind):
        return Entry("type", name, value=_alias(module, name))
    doc = inspect.getdoc(kind) or ""
    if (call := vars(kind).get("__call__")) is not None:
        doc = doc.removeprefix(f"`{PACKAGE}.{name}`: ")
        return _function("function", name, call, bound=True)._replace(doc=doc[:1].upper() + doc[1:])
    return Entry("data", name, doc=doc, type=_public_type(kind))


def _function(kind: str, name: str, fn: FunctionType, *, bound: bool = False) -> Entry:
    doc, is_async = inspect.getdoc(fn) or "", inspect.iscoroutinefunction(fn)
    parameters = tuple(inspect.signature(fn).parameters)
    signatures = of_function(fn, bound=bound)
    return Entry(kind, name, signatures, doc, parameters=parameters, is_async=is_async)


def _type(thing: object) -> type[object]:
    return type(thing)


# --------------------------------------------------------------------------------- classes


def _class(name: str, cls: type[object]) -> Entry:
    kind = "exception" if issubclass(cls, BaseException) else "class"
    signature, parameters = "", list[str]()
    constants = tuple(_constants(cls))
    if not constants and not getattr(cls, "_is_protocol", False) and _is_made_here(cls):
        signature, parameters = of_class(cls)
    members = constants or tuple(_members(cls))
    bases = tuple(dict.fromkeys(_bases(cls)))
    described = Entry(kind, name, (signature,), inspect.getdoc(cls) or "")
    return described._replace(bases=bases, parameters=tuple(parameters), members=members)


def _is_ours(cls: type[object]) -> bool:
    return cls.__module__.partition(".")[0] == PACKAGE


def _is_made_here(cls: type[object]) -> bool:
    """Return True if the constructor is defined in this package, not inherited from Exception."""
    return _is_ours(next(kind for kind in cls.__mro__ if "__init__" in vars(kind) or "__new__" in vars(kind)))


def _bases(cls: type[object]) -> Iterator[str]:
    """Yield the names of the public bases; a private base is replaced by its own bases."""
    if hasattr(cls, "_fields"):
        yield "NamedTuple"
        return
    for base in cls.__bases__:
        if base in INVISIBLE:
            if base is Protocol:
                yield "Protocol"
        elif _public_name(base) or not _is_ours(base):
            yield base.__name__
        else:
            yield from _bases(base)


def _members(cls: type[object]) -> Iterator[Entry]:
    """Yield the entries of the members with a docstring, of the class and of its private bases."""
    seen = _shown(cls)
    for owner in cls.__mro__:
        if owner is not cls and (not _is_ours(owner) or _public_name(owner)):
            continue
        annotated = inspect.get_annotations(owner)
        for name in [*annotated, *vars(owner)]:
            if name in seen or (name.startswith("_") and not name.startswith("__")):
                continue
            seen.add(name)
            if name in annotated:
                value = code(vars(owner)[name]) if name in vars(owner) else ""
                yield Entry("attribute", name, value=value, type=annotation(annotated[name]))
            else:
                yield from _member(name, vars(owner)[name])


def _shown(cls: Any) -> set[str]:
    """Return the attributes that the signature of a class already shows."""
    return {field.name for field in fields(cls)} if is_dataclass(cls) else set(getattr(cls, "_fields", ()))


def _member(name: str, thing: Any) -> Iterator[Entry]:
    kind = "method"
    if type(thing) in (classmethod, staticmethod):
        kind, thing = type(thing).__name__, thing.__func__
    if isinstance(thing, property) and thing.__doc__:
        returned = inspect.signature(thing.fget).return_annotation if thing.fget else ""
        yield Entry("property", name, doc=inspect.getdoc(thing) or "", type=annotation(returned))
    elif isinstance(thing, FunctionType) and thing.__doc__ and _is_written_here(thing):
        yield _function(kind, name, thing, bound=kind != "staticmethod")


def _is_written_here(fn: FunctionType) -> bool:
    """Return True if a function is in our source; named tuples and dataclasses generate others."""
    return Path(inspect.unwrap(fn).__code__.co_filename).is_relative_to(SOURCE)


def _constants(cls: type[object]) -> Iterator[Entry]:
    for member in cls if issubclass(cls, enum.Enum) else ():
        yield Entry("attribute", member.name, value=repr(member.value))


# ------------------------------------------------------------------------------------ names


def full_name(name: str) -> str | None:
    """Return the qualified name of a public name as written in prose, or None."""
    path = name.removeprefix(f"{PACKAGE}.")
    for module, names in public().items():
        if path in names:
            return f"{module}.{path}"
        if name in (module, module.removeprefix(f"{PACKAGE}.")):
            return module
    return None


def _public_name(thing: object) -> str | None:
    """Return the qualified public name of an object, or None."""
    for module, names in public().items():
        for name in names:
            if getattr(sys.modules[module], name) is thing:
                return f"{module}.{name}"
    return None


def _public_type(cls: type[object]) -> str:
    return next((kind.__name__ for kind in cls.__mro__ if _public_name(kind)), "")


def _alias(module: str, name: str) -> str:
    """Return the source of a type alias, from the module that defines it."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and any(a.name == name for a in statement.names):
            return _alias(str(statement.module), name)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        value: ast.expr | None = getattr(statement, "value", None)
        if value is not None and any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return ast.unparse(value)
    raise LookupError(f"{module}.{name} is no alias")
