"""What a program binds to the work it is at: who it is for, which run it belongs to.

It lives in the context, so tasks and worker threads inherit it, and worker processes are sent it. It goes
into events, and from there into logs and spans; never into metrics, where a value for every tenant is a bill.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from weakref import ReferenceType, ref

from redouble._internal.handle import Handle
from redouble._internal.public import public

__all__ = ["BOUND", "Binding", "Value", "bind", "inherit"]


Value: TypeAlias = str | int | float | bool

NOTHING: Mapping[str, Value] = MappingProxyType({})
BOUND: ContextVar[Mapping[str, Value]] = ContextVar("redouble_bound", default=NOTHING)


@public("redouble.types")
class Binding(Handle):
    """The handle of what was bound: call it, `remove()` it, or use it in a ``with`` to end it."""

    __slots__ = ("__weakref__",)

    def __init__(self, fields: Mapping[str, Value | None]) -> None:
        _become((*_bindings.get(), BoundFields(fields, ref(self))))

    def remove(self) -> None:
        """Bind it no longer; a second time does nothing. What was bound since then stays."""
        _become(tuple(bound for bound in _bindings.get() if bound.handle() is not self))


class BoundFields(NamedTuple):
    """What was bound at a time, and the handle by which it can be removed, as long as somebody has that."""

    fields: Mapping[str, Value | None]
    handle: ReferenceType[Binding]


# In the order in which they were bound; which one is removed first is nobody's business.
_bindings: ContextVar[tuple[BoundFields, ...]] = ContextVar("redouble_bindings", default=())


@public("redouble")
def bind(**fields: Value | None) -> Binding:
    """Bind fields to all that happens from here on in this context: they are in every event, log and span.

    >>> import redouble
    >>> with redouble.bind(run_id="r-17", tenant="acme"):
    ...     pass  # events of policies in here have them as ``event.bound``

    A task, and a worker, inherits what is bound where it is started. None takes a field out again. Without a
    ``with``, it stays for as long as the task, or the thread, does.
    """
    if not fields:
        raise TypeError("bind() binds nothing: write bind(run_id=..., tenant=...)")
    for key, value in fields.items():
        if not isinstance(value, str | int | float | None):
            raise TypeError(
                f"bind({key}={value!r}): write a text, a number, True or False; of other things their str()"
            )
    return Binding(fields)


def inherit(fields: Mapping[str, Value]) -> None:
    """Bind what another process has bound, and nothing else."""
    _become(())
    if fields:
        Binding(fields)


def _become(all_of_it: tuple[BoundFields, ...]) -> None:
    kept: list[BoundFields] = []
    merged: dict[str, Value | None] = {}
    for bound in all_of_it:
        merged.update(bound.fields)
        before: Mapping[str, Value | None] = {}
        if kept and kept[-1].handle() is bound.handle() is None:  # or a thread that binds at each turn grows
            before = kept.pop().fields
        kept.append(BoundFields({**before, **bound.fields}, bound.handle))
    said = {key: value for key, value in merged.items() if value is not None}
    _bindings.set(tuple(kept))
    BOUND.set(MappingProxyType(said) if said else NOTHING)
