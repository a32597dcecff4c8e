"""Fields that a program binds to the current context, such as a tenant or a run id.

They live in a context variable: tasks and worker threads inherit them, and worker processes receive them.
Events contain them, and so do logs and spans; metrics do not, because each new value would be a time series.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Self, TypeAlias
from weakref import ReferenceType, ref

from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start

Value: TypeAlias = str | int | float | bool

NOTHING: Mapping[str, Value] = MappingProxyType({})
BOUND: ContextVar[Mapping[str, Value]] = ContextVar("redouble_bound", default=NOTHING)


class Handle:
    """Ends something that the caller has started: by a call, by ``remove()`` or at the end of a ``with``."""

    __slots__ = ()

    def remove(self) -> None:
        """End what the handle stands for; a second call does nothing. Subclasses define it."""

    def __call__(self) -> None:
        self.remove()

    @try_from_start  # what the handle stands for has begun before
    def __enter__(self) -> Self:
        try:
            return self
        except BaseException:
            self.remove()
            raise

    @try_from_start
    def __exit__(self, *_: object) -> None:
        try:
            self.remove()
        except BaseException:
            self.remove()
            raise


@public("redouble.types")
class Binding(Handle):
    """The handle of bound fields: call it, `remove()` it, or use it in a ``with`` to unbind them."""

    __slots__ = ("__weakref__",)

    def add(self, fields: Mapping[str, Value | None]) -> None:
        """Bind the fields, for this handle to remove."""
        try:
            _set_bindings((*_bindings.get(), (fields, ref(self))))
        except BaseException:
            self.remove()  # the caller will have no handle
            raise

    def remove(self) -> None:
        """Unbind the fields; a second call does nothing. Fields that were bound later stay."""
        _set_bindings(tuple(bound for bound in _bindings.get() if bound[1]() is not self))


# The fields of one `bind`, and a weak reference to the handle that removes them.
BoundFields: TypeAlias = tuple[Mapping[str, Value | None], ReferenceType[Binding]]

# In the order of binding; they may be removed in any order.
_bindings: ContextVar[tuple[BoundFields, ...]] = ContextVar("redouble_bindings", default=())


@public("redouble")
def bind(**fields: Value | None) -> Binding:
    """Bind fields to the current context: every event, log and span from here on contains them.

    >>> import redouble
    >>> with redouble.bind(run_id="r-17", tenant="acme"):
    ...     pass  # events of policies in here have them as ``event.bound``

    A task or worker inherits the fields that are bound where it is started. None removes a field. Without a
    ``with``, the fields stay bound for as long as the task or thread lives.
    """
    if not fields:
        raise TypeError("bind() binds nothing: write bind(run_id=..., tenant=...)")
    for key, value in fields.items():
        if not isinstance(value, str | int | float | None):
            raise TypeError(
                f"bind({key}={value!r}): write a text, a number, True or False, or the str() of it"
            )
    binding = Binding()
    binding.add(fields)
    return binding


def inherit(fields: Mapping[str, Value]) -> None:
    """Replace all bindings by the fields that another process has bound."""
    _set_bindings(())
    if fields:
        Binding().add(fields)


def _set_bindings(bindings: tuple[BoundFields, ...]) -> None:
    """Set the bindings of this context and their merged fields.

    Neighbouring bindings whose handles are gone are merged. Otherwise a thread that binds for each request
    and never unbinds would collect bindings for ever.
    """
    compacted: list[BoundFields] = []
    merged: dict[str, Value | None] = {}
    for fields, handle in bindings:
        merged.update(fields)
        abandoned = compacted and compacted[-1][1]() is handle() is None
        before: Mapping[str, Value | None] = compacted.pop()[0] if abandoned else {}
        compacted.append(({**before, **fields}, handle))
    bound = {key: value for key, value in merged.items() if value is not None}
    _bindings.set(tuple(compacted))
    BOUND.set(MappingProxyType(bound) if bound else NOTHING)
