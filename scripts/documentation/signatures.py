"""Formats signatures as in the source: annotations as written, defaults as code."""

from __future__ import annotations

import contextlib
import enum
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from types import FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, ForwardRef, get_overloads

GENERATOR = re.compile(r"-> (?P<aio>(?:Async)?)(?:Iterator|Generator)\[(?P<item>.*?)(?:, None)*\]$")


def of_function(fn: FunctionType, *, bound: bool = False) -> tuple[str, ...]:
    """Format the signature of a function, or of each overload; ``bound`` omits the first parameter."""
    return tuple(_of_one(overload, bound) for overload in get_overloads(fn) or [fn])


def _of_one(fn: Callable[..., object], bound: bool) -> str:
    signature = inspect.signature(fn)
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    text = _spelled(signature.replace(parameters=parameters), _constants(fn, parameters))
    # The options of `Retry` are documented there; in full they would hide the other parameters.
    text = text.replace("*args: P.args, **options: P.kwargs", "**options")
    if hasattr(fn, "__wrapped__") and inspect.getfile(fn.__code__) == contextlib.__file__:
        # Written as a generator, which `contextmanager` turns into a context manager.
        text = GENERATOR.sub(r"-> Abstract\g<aio>ContextManager[\g<item>]", text)
    return text


def _constants(fn: Callable[..., object], parameters: list[inspect.Parameter]) -> dict[str, str]:
    """Return the names of module constants that are defaults: objects without a readable repr, and tuples."""
    names = {id(value): name for name, value in inspect.unwrap(fn).__globals__.items() if name.isupper()}
    found = {p.name: p.default for p in parameters if type(p.default) is tuple or " at 0x" in repr(p.default)}
    return {name: names[id(value)] for name, value in found.items() if id(value) in names}


def of_class(cls: type[object]) -> tuple[str, list[str]]:
    """Format the signature of the constructor, and list its parameters; empty if there are none."""
    signature = inspect.signature(cls).replace(return_annotation=inspect.Signature.empty)
    names = list(signature.parameters)
    return (_spelled(signature, _factories(cls)) if names else "", names)


def annotation(written: object) -> str:
    """Format an annotation without module names."""
    if isinstance(written, ForwardRef):
        written = written.__forward_arg__
    text = written if isinstance(written, str) else inspect.formatannotation(written)
    return re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", text)  # typing.Any, redouble._engine.report.Report


def code(value: object) -> str:
    """Format a value as source code."""
    if isinstance(value, FunctionType | ModuleType):
        return value.__name__
    if isinstance(value, MethodType):
        return value.__qualname__
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is os.environ:
        return "os.environ"  # not its contents on this machine
    text = repr(value)
    if type(value) is type:
        return value.__name__
    if type(value) is MappingProxyType:
        return text.removeprefix("mappingproxy(").removesuffix(")")
    return f"{type(value).__name__}()" if _is_all_default(value) else text


def _is_all_default(value: Any) -> bool:
    return is_dataclass(value) and all(getattr(value, f.name) == f.default for f in fields(value) if f.init)


def _factories(cls: Any) -> dict[str, str]:
    """Format the defaults of a dataclass that come from a factory."""
    found = fields(cls) if is_dataclass(cls) else ()
    return {f.name: repr(f.default_factory()) for f in found if callable(f.default_factory)}


def _spelled(signature: inspect.Signature, defaults: Mapping[str, str]) -> str:
    parts: list[str] = []
    before: inspect.Parameter | None = None
    for parameter in signature.parameters.values():
        if before is not None and before.kind is before.POSITIONAL_ONLY is not parameter.kind:
            parts.append("/")
        if parameter.kind is parameter.KEYWORD_ONLY and (
            before is None or before.kind not in (before.VAR_POSITIONAL, before.KEYWORD_ONLY)
        ):
            parts.append("*")
        parts.append(_parameter(parameter, defaults))
        before = parameter
    if before is not None and before.kind is before.POSITIONAL_ONLY:
        parts.append("/")
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty else f" -> {annotation(returned)}"
    return f"({', '.join(parts)}){arrow}"


def _parameter(parameter: inspect.Parameter, defaults: Mapping[str, str]) -> str:
    text = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        text = f"*{text}" if parameter.kind is parameter.VAR_POSITIONAL else f"**{text}"
    equals = "="
    if parameter.annotation is not parameter.empty:
        text += f": {annotation(parameter.annotation)}"
        equals = " = "
    if parameter.default is not parameter.empty:
        text += equals + (defaults.get(parameter.name) or code(parameter.default))
    return text
