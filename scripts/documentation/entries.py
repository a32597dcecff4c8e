"""What there is to say about a public name, read off the object: signatures, docstring, members.

This file reads objects; it knows neither Markdown nor the site.
"""

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
FOR_PYTEST = "pytest_plugin"  # loaded by pytest, and of no use to anybody else
SOURCE = Path(str(import_module(PACKAGE).__file__)).parent
INVISIBLE = (object, Generic, Protocol)


class Entry(NamedTuple):
    """One name; ``kind`` says what it is: class, exception, function, method, property, data, type, ...

    ``signatures`` has one text per overload; ``value`` is what a constant or an alias stands for.
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
    """Name the public modules, and what each of them offers."""
    return {module: sorted(import_module(module).__all__) for module in _modules(PACKAGE, SOURCE)}


def _modules(package: str, folder: Path) -> Iterator[str]:
    """Name a package, and the public modules in it."""
    yield package
    for _, name, is_package in sorted(iter_modules([str(folder)]), key=lambda found: found.name):
        if name.startswith("_") or name == FOR_PYTEST:
            continue
        inner = f"{package}.{name}"
        yield from _modules(inner, folder / name) if is_package else (inner,)


def entry(module: str, name: str) -> Entry:
    """Describe one public name of a module."""
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
    """Say whether the way to make one is written by us, and not inherited from Exception."""
    return _is_ours(next(kind for kind in cls.__mro__ if "__init__" in vars(kind) or "__new__" in vars(kind)))


def _bases(cls: type[object]) -> Iterator[str]:
    """Name the bases a reader can look up: a private one stands for its own bases."""
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
    """Describe what a class, or a private base of it, says of itself; without a docstring it says nothing."""
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
    """Name the attributes that the signature of a class shows already."""
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
    """Say whether a function is in our source: named tuples and dataclasses bring some of their own."""
    return Path(inspect.unwrap(fn).__code__.co_filename).is_relative_to(SOURCE)


def _constants(cls: type[object]) -> Iterator[Entry]:
    for member in cls if issubclass(cls, enum.Enum) else ():
        yield Entry("attribute", member.name, value=repr(member.value))


# ------------------------------------------------------------------------------------ names


def full_name(name: str) -> str | None:
    """Find where a public name, as one writes it in a sentence, is described."""
    path = name.removeprefix(f"{PACKAGE}.")
    for module, names in public().items():
        if path in names:
            return f"{module}.{path}"
        if name in (module, module.removeprefix(f"{PACKAGE}.")):
            return module
    return None


def _public_name(thing: object) -> str | None:
    """Find the public name of an object."""
    for module, names in public().items():
        for name in names:
            if getattr(sys.modules[module], name) is thing:
                return f"{module}.{name}"
    return None


def _public_type(cls: type[object]) -> str:
    return next((kind.__name__ for kind in cls.__mro__ if _public_name(kind)), "")


def _alias(module: str, name: str) -> str:
    """Find how a type alias is written, where it is written."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    for statement in ast.walk(tree):
        if isinstance(statement, ast.ImportFrom) and any(a.name == name for a in statement.names):
            return _alias(str(statement.module), name)
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        value: ast.expr | None = getattr(statement, "value", None)
        if value is not None and any(isinstance(t, ast.Name) and t.id == name for t in targets):
            return ast.unparse(value)
    raise LookupError(f"{module}.{name} is no alias")
