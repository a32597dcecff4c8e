"""Compilation of wrappers that have the exact signature of the wrapped function.

``def retrying(url, *, chunk)`` is called about three times as fast as ``def retrying(*args, **kwargs)``:
the call builds no tuple and no dict, and unpacks none. So the wrapper of a layer is compiled once per
signature from a template of a few lines, the same template for sync and async functions. The templates
stand beside their layers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from keyword import iskeyword
from types import CodeType, FunctionType, NoneType
from typing import Any

from redouble._internal.callables import check_result_type, plain_types

CO_VARARGS, CO_VARKEYWORDS = 4, 8  # those of `inspect`, which takes long to import
FILENAME_PREFIX = "<redouble> "  # of compiled wrappers, in tracebacks
NAME_PREFIX = "redouble_"  # of a template's names, so that no parameter of the wrapped function hides one


class Template:
    """The source of a wrapper, and its title in tracebacks. Two templates are never equal."""

    __slots__ = ("source", "title")

    def __init__(self, title: str, source: str) -> None:
        self.title, self.source = title, source

    def derive(self, title: str, *replacements: tuple[str, str]) -> Template:
        """Return a template with another title and some text replaced; each text must occur exactly once."""
        source = self.source
        for old, new in replacements:
            if source.count(old) != 1:
                raise ValueError(f"template {self.title!r} has {old!r} {source.count(old)} times, not once")
            source = source.replace(old, new)
        return Template(title, source)


def gil_variants(title: str, source: str, *statements: str) -> dict[bool, Template]:
    """Return a template by `locks.gil.enabled`: without one, these statements run under the owner's lock."""
    template = Template(title, source)

    def locked(lines: str) -> tuple[str, str]:
        margin = lines[: -len(lines.lstrip())]
        indented = "".join(f"    {line}" for line in lines.splitlines(keepends=True))
        return lines, f"{margin}with redouble_owner._lock:\n{indented}"

    return {True: template, False: template.derive(title, *map(locked, statements))}


# A plain function that returns an awaitable has not run yet: there was nothing to retry. A wrapper remembers
# the type of its first result, and all wrappers the types that are known not to be awaitable.
CHECK = """\
if (
    redouble_type(redouble_result) is not redouble_result_type
    and (
        redouble_result_type is redouble_NoneType
        or redouble_id(redouble_type(redouble_result)) not in redouble_plain_types
    )
):
    redouble_globals()["redouble_result_type"] = redouble_check_result_type(
        redouble_fn, redouble_result
    )
"""
CHECK_LINE = "{check}\n"  # stands in a template where the check belongs; async code has none


class Sources(dict[str, str]):
    """The source of each compiled file, for tracebacks: `linecache` takes it for the loader of a module."""

    def get_source(self, name: str) -> str | None:
        """Return the source of a file."""
        return self.get(name)


SOURCES = Sources()

COMMON_NAMES: dict[str, Any] = {  # of most templates
    "check_result_type": check_result_type,
    "result_type": NoneType,  # the type of the first result: comparing it is faster than looking it up
    "NoneType": NoneType,
    "plain_types": plain_types,
    "id": id,
    "globals": globals,
    "Exception": Exception,
    "type": type,
    "no_keywords": {},  # shared by all calls without keyword arguments
}


def compile_wrapper(
    fn: Callable[..., Any], template: Template, *, is_async: bool, **names: Any
) -> Callable[..., Any]:
    """Return a function with the signature of ``fn``, compiled from a template.

    ``names`` are the global names of the template, without their prefix.
    """
    code = _compiled(template, is_async, *_signature(fn))
    scope = {NAME_PREFIX + name: value for name, value in names.items()}
    scope |= {NAME_PREFIX + name: value for name, value in COMMON_NAMES.items()}
    wrapper = FunctionType(code, {**scope, "redouble_fn": fn})
    wrapper.__globals__.update(__name__=code.co_filename, __loader__=SOURCES)
    if isinstance(fn, FunctionType):
        wrapper.__defaults__ = fn.__defaults__
        wrapper.__kwdefaults__ = fn.__kwdefaults__
    return wrapper


# The directory of this package, as in `co_filename`: two levels above this module.
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(compile_wrapper.__code__.co_filename)), "")


def is_own(code: CodeType) -> bool:
    """Return True for code of this package, and for compiled wrappers."""
    return code.co_filename.startswith((PACKAGE, FILENAME_PREFIX))


def _signature(fn: Callable[..., Any]) -> tuple[str, str, str, str]:
    """Return source text: parameters, arguments, the items of a tuple and of a dict of these arguments."""
    code = fn.__code__ if isinstance(fn, FunctionType) else None
    if code is None:
        return "*args, **kwargs", "*args, **kwargs", "*args,", "**kwargs"
    count, keyword_count = code.co_argcount, code.co_kwonlyargcount
    star_count = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    names = list(code.co_varnames[: count + keyword_count + star_count])  # the parameters, without the locals
    positional, keyword = names[:count], names[count : count + keyword_count]
    variadic = names[count + keyword_count :]
    if not all(
        name.isidentifier() and not iskeyword(name) and not name.startswith(NAME_PREFIX) for name in names
    ):
        return "*args, **kwargs", "*args, **kwargs", "*args,", "**kwargs"
    stars = [f"*{variadic.pop(0)}"] if code.co_flags & CO_VARARGS else []
    double = [f"**{variadic.pop(0)}"] if code.co_flags & CO_VARKEYWORDS else []
    slash = ["/"] if code.co_posonlyargcount else []
    bare = ["*"] if keyword else []
    parameters = [*positional[: code.co_posonlyargcount], *slash, *positional[code.co_posonlyargcount :]]
    named = [f"{name}={name}" for name in keyword]
    return (
        ", ".join([*parameters, *(stars or bare), *keyword, *double]),
        ", ".join([*positional, *stars, *named, *double]),
        "".join(f"{name}, " for name in [*positional, *stars]),
        ", ".join([*(f"{name!r}: {name}" for name in keyword), *double]),
    )


def _with_checks(check: str, source: str) -> str:
    """Return the source of a template with the check in the places for it."""
    lines: list[str] = []
    for line in source.splitlines(keepends=True):
        margin = line.removesuffix(CHECK_LINE)
        lines += [line] if margin == line else [margin + own for own in check.splitlines(keepends=True)]
    return "".join(lines)


@lru_cache(maxsize=1024)
def _compiled(
    template: Template, is_async: bool, parameters: str, arguments: str, positional: str, keywords: str
) -> CodeType:
    words = {
        "async_": "async " if is_async else "",
        "await_": "await " if is_async else "",
    }
    text = _with_checks("" if is_async else CHECK, template.source)
    source = text.format(
        **words,
        parameters=parameters,
        arguments=arguments,
        positional=positional,
        keywords=keywords,
        keyword_dict=f"{{{keywords}}}" if keywords else "redouble_no_keywords",
    )
    filename = f"{FILENAME_PREFIX}{'async ' * is_async}{template.title}"
    # A traceback through the wrapper shows these lines, which are the same for every signature.
    blanks = dict.fromkeys(("parameters", "arguments", "positional", "keywords"), "...")
    SOURCES[filename] = text.format(**words, **blanks, keyword_dict="{...}")
    functions: dict[str, FunctionType] = {}
    exec(source, {}, functions)  # noqa: S102  the first compile() would make the classes of `ast`
    (function,) = functions.values()
    return function.__code__.replace(co_filename=filename)
