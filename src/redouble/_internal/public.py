"""Public names: ``__module__`` is the module that users import a class or function from.

A repr, a pickle and the reference show that module, so that none of them depends on the private file in which
the class or function is written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType
from typing import ForwardRef, TypeVar, get_overloads, overload

T = TypeVar("T")


def public(module: str) -> Callable[[T], T]:
    """Return a decorator that sets ``__module__``. Apply it outermost, above ``@dataclass`` too.

    `typing.get_type_hints` evaluates the annotations of a class, which are strings, among the names of its
    ``__module__``. So they are replaced by forward references to the module in which they are written; those
    of private attributes are removed.
    """

    def decorate(thing: T) -> T:
        if isinstance(thing, type) and (annotations := thing.__annotations__):
            written_in = thing.__module__
            thing.__annotations__ = {
                name: _bound(text, written_in)
                for name, text in annotations.items()
                if not name.startswith("_")  # private attributes: for type checkers only
            }
        elif isinstance(thing, FunctionType):
            for stub in get_overloads(thing):  # `typing` finds them by module and name
                stub.__module__ = module
                overload(stub)
        thing.__module__ = module
        return thing

    return decorate


def _bound(annotation: object, module: str) -> object:
    if isinstance(annotation, ForwardRef):  # of a `NamedTuple`; a new one would compile the text again
        annotation.__forward_module__ = module
        return annotation
    if not isinstance(annotation, str):
        return annotation
    try:
        # Faster than the first ForwardRef, whose compile() makes the classes of `ast`.
        return eval(annotation, vars(sys.modules[module]))  # noqa: S307  our own
    except Exception:  # a name is defined later, or for type checkers only
        return ForwardRef(annotation, is_argument=False, module=module, is_class=True)
