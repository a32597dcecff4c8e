"""Pickling of calls and replies of worker processes.

Functions are pickled by name, as usual. A decorated function, whose name refers to its wrapper, is pickled as
that name and the number of ``__wrapped__`` steps. The function that a policy retries in a process is such
a function.
"""

from __future__ import annotations

import importlib
import io
import pickle
from functools import reduce
from types import FunctionType
from typing import Any


def pack(thing: object) -> bytes:
    """Pickle an object."""
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(thing)
    return stream.getvalue()


def unpack(sent: bytes) -> Any:
    """Unpickle an object."""
    return pickle.loads(sent)  # noqa: S301  sent by our own process, or its parent


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: object) -> Any:
        """Pickle a decorated function by its wrapper's name and its depth, everything else as usual."""
        if not isinstance(obj, FunctionType):
            return NotImplemented
        try:
            depth = _layers(_look_up(obj.__module__, obj.__qualname__)).index(obj)
        except (ImportError, AttributeError, ValueError):
            return NotImplemented  # pickle raises its own error
        return (_find_wrapped, (obj.__module__, obj.__qualname__, depth)) if depth else NotImplemented


def _look_up(module: str, qualname: str) -> object:
    return reduce(getattr, qualname.split("."), importlib.import_module(module))


def _layers(function: object) -> list[object]:
    """List a function and what it wraps, outermost first."""
    layers: list[object] = []
    while function is not None and function not in layers:
        function = getattr(function, "__func__", function)  # a class method is bound already
        layers.append(function)
        function = getattr(function, "__wrapped__", None)
    return layers


def _find_wrapped(module: str, qualname: str, depth: int) -> object:
    return _layers(_look_up(module, qualname))[depth]
