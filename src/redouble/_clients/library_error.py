"""Errors of ours that are errors of a client library too, for code that catches only those of the library."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar, cast

E = TypeVar("E", bound=Exception)

UNPICKLED = ("_request", "request", "response")  # attributes that clients add to their errors


@cache
def library_error_class(bases: tuple[type[Exception], type[Exception]], module: str) -> type[Exception]:
    """Return the class of errors that are of both classes: one of ours, and one of the library."""
    kind = bases[0]

    def reduce(error: Exception) -> tuple[Any, ...]:
        # Pickled as our error alone: the library's constructor may require other arguments.
        plain = kind(*error.args)
        plain.__dict__.update({name: value for name, value in vars(error).items() if name not in UNPICKLED})
        return cast("tuple[Any, ...]", plain.__reduce__())

    own = {"__module__": module, "__reduce__": reduce, "__repr__": kind.__repr__, "__str__": kind.__str__}
    return type(kind.__name__, bases, own)


def join_library(error: Exception, base: type[Exception], module: str) -> bool:
    """Make an error of ours one of the library too, or return False: its layout differs."""
    try:
        error.__class__ = library_error_class((type(error), base), module)
    except TypeError:  # the errors of requests are OSErrors
        return False
    return True


def library_copy(error: Exception, base: type[E], module: str) -> E:
    """Return a copy of an error of ours that is one of the library too, with its traceback and history."""
    kind = cast("type[E]", library_error_class((type(error), base), module))
    copy = kind.__new__(kind)
    copy.args = error.args
    vars(copy).update(vars(error))
    return copy.with_traceback(error.__traceback__)
