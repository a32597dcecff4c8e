"""A call in flight, which identical calls wait for, and copies of its error for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar
from types import MemberDescriptorType
from typing import Any, TypeVar, cast

from redouble._internal.validation import UNSET

E = TypeVar("E", bound=Exception)

HEAP_TYPE = 1 << 9  # a flag of classes that are defined in Python


class Lead:
    """The record of a flight in the context of its call.

    It is an object of its own: tasks and timers that the call starts keep the context, and so the record,
    for longer than its outcome may live.

    ended: True once the flight has ended.
    outer: the record of the flight around it in the same context.
    """

    __slots__ = ("ended", "outer")

    def __init__(self) -> None:
        self.ended = False
        self.outer: Lead | None = None


LEADING: ContextVar[Lead | None] = ContextVar("redouble_leading_flight", default=None)


class Flight:
    """A call in flight; what it ends with is only for calls that began to wait before.

    ended: True once the call has ended; set first, so that no call waits for one that has.
    landed: True if it has an outcome to share: a ``value``, or an ``error``. An interrupted or cancelled call
        has none: then the calls that wait start again, and the first of them is the next in flight.
    waiters: how to wake each call that waits.
    lead: its record in the context of its call.
    """

    __slots__ = ("ended", "error", "landed", "lead", "value", "waiters")

    def __init__(self) -> None:
        self.ended = self.landed = False
        self.value: Any = None
        self.error: Exception | None = None
        self.waiters: dict[object, Callable[[], object]] = {}
        self.lead = Lead()

    def enter(self) -> None:
        """Record in this context that what is called from now on is part of the call."""
        outer = LEADING.get()
        while outer is not None and outer.ended:  # so that tasks which start one another make no long chain
            outer = outer.outer
        self.lead.outer = outer
        LEADING.set(self.lead)

    def leave(self) -> None:
        """Remove the record; in another context, where a collected coroutine may end, there is none."""
        lead = self.lead
        lead.ended = True
        if LEADING.get() is lead:
            LEADING.set(lead.outer)

    def is_around(self) -> bool:
        """Return True if the current code is part of the call, and would wait for itself."""
        lead = LEADING.get()
        while lead is not None and lead is not self.lead:
            lead = lead.outer
        return lead is self.lead


class FlightTable(dict[Hashable, Flight]):
    """The flights of one function, by key; a dict that can be referred to weakly."""


def duplicate(error: E) -> E:
    """Return a copy of an error, or the error itself if it cannot be copied.

    Each caller raises its own: layers outside add notes and a report to an error, and every ``raise`` extends
    its traceback. `copy.copy` calls the class with the ``args``, which many classes do not accept.
    """
    kind: Any = type(error)
    try:
        builtin: Any = next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)
        made: Any = builtin.__new__(kind, *error.args)
        for base in kind.__mro__[:-1]:
            for name, member in cast("dict[str, object]", vars(base)).items():
                if isinstance(member, MemberDescriptorType):  # a slot, or a field of a class written in C
                    with suppress(AttributeError, TypeError):  # not set, or read-only
                        value: object = member.__get__(error)
                        if getattr(made, name, UNSET) is not value:  # in C an unset field is None too
                            member.__set__(made, value)
        made.__dict__.update(vars(error))
        if "__notes__" in vars(error):
            made.__notes__ = [*error.__notes__]
        made.args, made.__cause__, made.__context__ = error.args, error.__cause__, error.__context__
        made.__suppress_context__ = error.__suppress_context__
        return cast("E", made.with_traceback(error.__traceback__))
    except Exception:  # a class may do anything
        return error
