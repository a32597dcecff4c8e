"""A wrapper with the exact signature of what it wraps.

``def retrying(url, *, chunk)`` is called about three times as fast as ``def retrying(*args, **kwargs)``:
no tuple and no dict are built on the way in, and none are unpacked on the way out. So what every call goes
through is compiled once per signature from a few lines, for both colours from the same lines. What those
are is the layer's business.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from keyword import iskeyword
from textwrap import indent
from types import CodeType, CoroutineType, FunctionType
from typing import Any, NamedTuple

from redouble._internal.callables import reject_awaitable

__all__ = ["Template", "compile_wrapper", "is_compiled"]


FILENAME = "<redouble "  # how the file names of compiled wrappers begin, in tracebacks
PREFIX = "redouble_"  # keeps the names of a template's lines apart from the parameters of what is wrapped


class Template(NamedTuple):
    """The lines of a wrapper, and what tracebacks call them."""

    title: str
    source: str

    def derive(self, title: str, *replacements: tuple[str, str]) -> Template:
        """Return a template with another title and some text replaced; each text must occur exactly once."""
        source = self.source
        for old, new in replacements:
            if source.count(old) != 1:
                raise ValueError(f"template {self.title!r} has {old!r} {source.count(old)} times, not once")
            source = source.replace(old, new)
        return Template(title, source)


# A plain function that returns a coroutine has done nothing yet: there was nothing to retry.
CHECK = """\
    if redouble_type(redouble_result) is redouble_Coroutine:
        redouble_done(redouble_fn, redouble_result)
"""


# What most of them need.
OF_ALL = {
    "done": reject_awaitable,
    "Exception": Exception,
    "Coroutine": CoroutineType,
    "type": type,
}


def compile_wrapper(
    fn: Callable[..., Any], template: Template, *, is_async: bool, **names: Any
) -> Callable[..., Any]:
    """Return a function with the signature of ``fn``, made from a template.

    ``names`` are what its lines need, without their prefix.
    """
    code = _compiled(template, is_async, *_signature(fn))
    scope = {PREFIX + name: value for name, value in names.items()}
    scope |= {PREFIX + name: value for name, value in OF_ALL.items()}
    wrapper = FunctionType(code, {**scope, "redouble_fn": fn})
    if isinstance(fn, FunctionType):
        wrapper.__defaults__ = fn.__defaults__
        wrapper.__kwdefaults__ = fn.__kwdefaults__
    return wrapper


def is_compiled(code: CodeType) -> bool:
    """Return True if the code is that of a wrapper compiled by `compile_wrapper`."""
    return code.co_filename.startswith(FILENAME)


def _signature(fn: Callable[..., Any]) -> tuple[str, str, str, str]:
    """Spell the parameters, the arguments to pass on, and the same as a tuple's and a dict's insides."""
    code = fn.__code__ if isinstance(fn, FunctionType) else None
    if code is None:
        return "*args, **kwargs", "*args, **kwargs", "*args,", "**kwargs"
    count, only = code.co_argcount, code.co_kwonlyargcount
    star_count = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
    names = list(code.co_varnames[: count + only + star_count])  # without locals, which collide with nothing
    positional, keyword = names[:count], names[count : count + only]
    rest = names[count + only :]
    if not all(name.isidentifier() and not iskeyword(name) and not name.startswith(PREFIX) for name in names):
        return "*args, **kwargs", "*args, **kwargs", "*args,", "**kwargs"
    stars = [f"*{rest.pop(0)}"] if code.co_flags & CO_VARARGS else []
    double = [f"**{rest.pop(0)}"] if code.co_flags & CO_VARKEYWORDS else []
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


@lru_cache(maxsize=1024)
def _compiled(
    template: Template, is_async: bool, parameters: str, arguments: str, positional: str, keywords: str
) -> CodeType:
    words = {
        "async_": "async " if is_async else "",
        "await_": "await " if is_async else "",
        "check": "" if is_async else CHECK,
        "inner_check": "" if is_async else indent(CHECK, "    "),
    }
    source = template.source.format(
        **words, parameters=parameters, arguments=arguments, positional=positional, keywords=keywords
    )
    filename = f"{FILENAME}{'async ' * is_async}{template.title}>"
    # So that a traceback through the wrapper shows its lines; the same lines for every signature.
    blanks = dict.fromkeys(("parameters", "arguments", "positional", "keywords"), "...")
    shown = template.source.format(**words, **blanks)
    linecache.cache[filename] = (len(shown), None, shown.splitlines(keepends=True), filename)
    module = compile(source, filename, "exec")
    return next(const for const in module.co_consts if isinstance(const, CodeType))
