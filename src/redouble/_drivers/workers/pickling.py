"""What goes to a worker process and back, as bytes.

Functions go by name, as pickle has it. What decorators have hidden behind that name is found too: a function
that is retried on a worker process stands there under the name of its wrapper.
"""

from __future__ import annotations

import importlib
import io
import pickle
from functools import reduce
from types import FunctionType
from typing import Any

__all__ = ["pack", "unpack"]


def pack(thing: object) -> bytes:
    """Make bytes of it."""
    stream = io.BytesIO()
    _Pickler(stream, pickle.HIGHEST_PROTOCOL).dump(thing)
    return stream.getvalue()


def unpack(sent: bytes) -> Any:
    """Make it of the bytes."""
    return pickle.loads(sent)  # noqa: S301  they come from our own process, or its parent


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: object) -> Any:
        """Find a function behind its decorators; leave everything else as it is."""
        if not isinstance(obj, FunctionType):
            return NotImplemented
        try:
            depth = _layers(_look_up(obj.__module__, obj.__qualname__)).index(obj)
        except (ImportError, AttributeError, ValueError):
            return NotImplemented  # and pickle says what is wrong with it
        return (_find_wrapped, (obj.__module__, obj.__qualname__, depth)) if depth else NotImplemented


def _look_up(module: str, qualname: str) -> object:
    return reduce(getattr, qualname.split("."), importlib.import_module(module))


def _layers(found: object) -> list[object]:
    """List a function and what it wraps, outermost first."""
    layers: list[object] = []
    while found is not None and found not in layers:
        found = getattr(found, "__func__", found)  # a class method is bound already
        layers.append(found)
        found = getattr(found, "__wrapped__", None)
    return layers


def _find_wrapped(module: str, qualname: str, depth: int) -> object:
    return _layers(_look_up(module, qualname))[depth]
