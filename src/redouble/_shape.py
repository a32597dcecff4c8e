"""A wrapper with the exact signature of what it wraps.

``def retrying(url, *, chunk)`` is called about three times as fast as ``def retrying(*args, **kwargs)``:
no tuple and no dict are built on the way in, and none are unpacked on the way out. So the first
attempt, which is nearly always the only one, is compiled once per signature from the few lines below,
for both colours from the same lines. All that follows a failure is ordinary code in `_drive`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import lru_cache
from inspect import CO_VARARGS, CO_VARKEYWORDS
from keyword import iskeyword
from types import CodeType, CoroutineType, FunctionType
from typing import Any

from redouble._ambient import ambient
from redouble._callable import done
from redouble._drive import concerned

__all__ = ["EVERY_ATTEMPT", "FIRST_ATTEMPT", "FIRST_LIMITED", "FIRST_WORKED", "STREAM", "shaped"]

PREFIX = "redouble_"  # keeps the names of the lines below apart from the parameters of what is wrapped

FIRST_ATTEMPT = """\
{async_}def retrying({parameters}):
    if redouble_ambient.active and redouble_concerned():
        return {await_}redouble_call(
            redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}}
        )
    redouble_started = redouble_now()
    try:
        redouble_result = {await_}redouble_fn({arguments})
    except redouble_Exception as redouble_error:
        redouble_run = redouble_Run(
            redouble_policy, redouble_started, redouble_name, redouble_now, redouble_cancelling, redouble_tell
        )
        redouble_delay = redouble_run.failed(redouble_error, redouble_now())
        if redouble_delay is None:
            if redouble_run.instead:
                raise redouble_error_of(redouble_run, redouble_error)
            raise
    else:
        redouble_run = None
    if redouble_run is not None:
        redouble_result = {await_}redouble_drive(
            redouble_run, redouble_delay, redouble_fn, ({positional}), {{{keywords}}}
        )
{check}    return redouble_result
"""

# Where there may be a run already, because the attempt has gone on for too long.
FAILED = """\
    except redouble_Exception as redouble_error:
        redouble_run = redouble_run or redouble_begun(redouble_started)
        redouble_delay = redouble_run.failed(redouble_error, redouble_now())
        if redouble_delay is None:
            if redouble_run.instead:
                raise redouble_error_of(redouble_run, redouble_error)
            raise
"""

# The same where async attempts are cut: after the `with` comes only who was.
FIRST_LIMITED = """\
async def retrying({parameters}):
    if redouble_ambient.active and redouble_concerned():
        return await redouble_call(
            redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}}
        )
    redouble_started = redouble_now()
    redouble_run = None
    try:
        with redouble_cut_after(redouble_seconds):
            return await redouble_fn({arguments})
        redouble_run = redouble_begun(redouble_started)
        redouble_run.room()
        raise redouble_run.expired()
{failed}    return await redouble_drive(
        redouble_run,
        redouble_delay,
        redouble_bound(redouble_run, redouble_fn),
        ({positional}),
        {{{keywords}}},
    )
"""

# The same for blocking code on a thread of its own.
FIRST_WORKED = """\
def retrying({parameters}):
    if redouble_ambient.active and redouble_concerned():
        return redouble_call(redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}})
    redouble_started = redouble_now()
    redouble_run = None
    redouble_job = redouble_Job(redouble_now, redouble_fn, ({positional}), {{{keywords}}})
    try:
        if redouble_job.within(redouble_seconds):
            redouble_result = redouble_job.result()
        else:
            redouble_run = redouble_begun(redouble_started)
            redouble_run.room()
            raise redouble_overdue(redouble_run, redouble_policy.worker, redouble_job)
{failed}        redouble_result = None
    if redouble_run is not None:
        redouble_result = redouble_drive(
            redouble_run,
            redouble_delay,
            redouble_bound(redouble_run, redouble_fn),
            ({positional}),
            {{{keywords}}},
        )
{check}    return redouble_result
"""

# Where something must be done before the first attempt, or after a success.
EVERY_ATTEMPT = """\
{async_}def retrying({parameters}):
    return {await_}redouble_call(redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}})
"""

# A generator function: what happens until its first item is ordinary code too.
STREAM = """\
def retrying({parameters}):
    with redouble_Streaming(
        redouble_policy, redouble_name, redouble_fn, ({positional}), {{{keywords}}}
    ) as redouble_streaming:
        return (yield from (yield from redouble_streaming.first()))
"""

# A plain function that returns a coroutine has done nothing yet: there was nothing to retry.
CHECK = """\
    if redouble_type(redouble_result) is redouble_Coroutine:
        redouble_done(redouble_fn, redouble_result)
"""


TITLES = {
    FIRST_ATTEMPT: "first attempt",
    FIRST_LIMITED: "first attempt, limited",
    FIRST_WORKED: "first attempt, on a worker",
    EVERY_ATTEMPT: "every attempt",
    STREAM: "stream",
}


# What all of them need.
OF_ALL = {
    "ambient": ambient,
    "concerned": concerned,
    "done": done,
    "Exception": Exception,
    "Coroutine": CoroutineType,
    "type": type,
}


def shaped(fn: Callable[..., Any], template: str, *, is_async: bool, **names: Any) -> Callable[..., Any]:
    """Return a function with the signature of ``fn``, made from a template above.

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


def _signature(fn: Callable[..., Any]) -> tuple[str, str, str, str]:
    """Spell the parameters, the arguments to pass on, and the same as a tuple's and a dict's insides."""
    code = fn.__code__ if isinstance(fn, FunctionType) else None
    if code is None:
        return "*args, **kwargs", "*args, **kwargs", "*args,", "**kwargs"
    names = list(code.co_varnames)
    count, only = code.co_argcount, code.co_kwonlyargcount
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
    template: str, is_async: bool, parameters: str, arguments: str, positional: str, keywords: str
) -> CodeType:
    words = {
        "async_": "async " if is_async else "",
        "await_": "await " if is_async else "",
        "check": "" if is_async else CHECK,
        "failed": FAILED,
    }
    source = template.format(
        **words, parameters=parameters, arguments=arguments, positional=positional, keywords=keywords
    )
    filename = f"<redouble {'async ' * is_async}{TITLES[template]}>"
    # So that a traceback through the wrapper shows its lines; the same lines for every signature.
    blanks = dict.fromkeys(("parameters", "arguments", "positional", "keywords"), "...")
    shown = template.format(**words, **blanks)
    linecache.cache[filename] = (len(shown), None, shown.splitlines(keepends=True), filename)
    module = compile(source, filename, "exec")
    return next(const for const in module.co_consts if isinstance(const, CodeType))
