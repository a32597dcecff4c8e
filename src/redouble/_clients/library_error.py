"""Errors of ours that are errors of a client library too, for code that catches only those of the library."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

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
