"""Bulkhead: so many calls at once and no more, wherever they run.

Who may come in is decided in `_places`, and waited for in `_entry`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from redouble._internal.codegen import Template, compile_wrapper
from redouble._internal.locks import SharedByIdentity
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, instance, integer
from redouble._internal.validation import seconds as checked
from redouble._layers.gate import Admission, Gate
from redouble._layers.layer import Layer
from redouble._layers.limits.slots import Lease, WaitableSlots

if TYPE_CHECKING:
    from redouble._layers.analysis import WorstCase

__all__ = ["Bulkhead"]


P = ParamSpec("P")
T = TypeVar("T")

HELD = Template(
    "bulkhead",
    """\
{async_}def held({parameters}):
    redouble_ticket = redouble_Ticket()
    try:
        redouble_add(redouble_ticket)
        if redouble_queue or redouble_len(redouble_inside) > redouble_places.limit:
            {await_}redouble_wait(redouble_ticket)
        redouble_result = {await_}redouble_fn({arguments})
    finally:
        redouble_ticket.over = True
        try:
            redouble_drop(redouble_ticket)
        finally:
            if redouble_queue or redouble_called:
                redouble_serve()
{check}    return redouble_result
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkheadSettings:
    """The validated options of a `Bulkhead`."""

    limit: int
    wait: float | None
    queue: int | None
    name: str | None


@public("redouble")
class Bulkhead(SharedByIdentity, Gate):
    """Let at most ``limit`` calls in at once, in all threads and event loops together.

    Others wait for a place, first come first served, for up to ``wait`` seconds (None: for ever, 0: not at
    all); then they get `BulkheadFull`. No more than ``queue`` may wait at once. A blocking call on the
    thread of a running event loop never waits, or it would stop the loop. A deadline ends the waiting too.
    """

    def __init__(
        self,
        limit: int,
        wait: Duration | None = 1.0,
        queue: int | None = None,
        *,
        name: str | None = None,
    ) -> None:
        if callable(limit):
            raise TypeError("write @Bulkhead(10), with the limit: it is no decorator without it")
        integer(limit, "Bulkhead limit", 1, "a whole number, 1 or more, such as 10")
        wait = None if wait is None else checked(wait, "Bulkhead wait")
        if queue is not None:
            integer(queue, "Bulkhead queue", 0, "0 or more, or None")
        instance(name, "Bulkhead name", str | None, "a text, or None")
        self.settings = BulkheadSettings(limit=limit, wait=wait, queue=queue, name=name)
        self.name = name
        self.register("bulkheads")
        # A subclass that has its own is asked about every call, and never waits.
        self._as_is = type(self).admit is Bulkhead.admit and type(self).ended is Bulkhead.ended
        self._places = WaitableSlots(limit, wait, queue, name)

    @property
    def _kept_by_wrapper(self) -> bool:
        return True

    @property
    def limit(self) -> int:
        """How many calls may be inside at once."""
        return self.settings.limit

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a place; None for as long as it takes."""
        return self.settings.wait

    @property
    def queue(self) -> int | None:
        """How many calls may wait at once; None for any number."""
        return self.settings.queue

    def admit(self, now: float, /) -> Lease:  # noqa: ARG002  a place is free, or it is not
        """Take a place without waiting, or raise `BulkheadFull`."""
        ticket = Lease()
        if not self._places.try_acquire(ticket):
            self._places.try_acquire_now(ticket, "and it does not wait")
        return ticket

    def ended(self, ticket: Lease, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        """Leave."""
        self._places.release(ticket)

    def snapshot(self) -> Mapping[str, float]:
        """Tell how many places are ``in_use``, of how many (``limit``), and how many calls are ``queued``."""
        inside, queued = self._places.counts()
        return {"limit": self.limit, "in_use": inside, "queued": queued}

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` behind the bulkhead."""
        own = self._shaped(fn, self._places.enter, is_async=False)
        return own if self._as_is else super().around(fn)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` behind the bulkhead, for a coroutine function."""
        own = self._shaped(fn, self._places.aenter, is_async=True)
        return own if self._as_is else super().around_async(fn)

    def _shaped(
        self, fn: Callable[..., Any], wait: Callable[[Lease], object], *, is_async: bool
    ) -> Callable[..., Any]:
        places = self._places
        return compile_wrapper(  # what `Places.take` and `leave` do, without calling them
            fn,
            HELD,
            is_async=is_async,
            Ticket=Lease,
            len=len,
            places=places,
            inside=places.inside,
            add=places.inside.add,
            drop=places.inside.discard,
            queue=places.queue,
            called=places.called,
            serve=places.serve,
            wait=wait,
            bulkhead=self,  # for `policy_of`
        )

    def _admission(self, *, stream: bool = False) -> Admission:
        return SlotAdmission(self) if self._as_is else super()._admission(stream=stream)

    def can_reconfigure(self, other: Self, /) -> bool:  # noqa: ARG002
        """Return True: all settings can change."""
        return True

    def reconfigure(self, other: Self, /) -> None:
        """Take over the limits of another bulkhead; calls inside it and in its queue stay there."""
        self.settings = settings = replace(other.settings, name=self.name)
        self._places.reconfigure(settings.limit, settings.wait, settings.queue)

    def describe(self) -> str:
        waits = "wait" if self.wait is None else f"wait up to {format_seconds(self.wait)}"
        return f"{self.limit} at once, others " + (waits if self.wait != 0 else "are refused")

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait)

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del inner, worst
        if any(layer.traits().retries for layer in outer):
            yield (
                "Bulkhead inside Retry: a call gives its place away while it waits to retry, so that more "
                "calls than the limit are under way; put it outside"
            )

    def __repr__(self) -> str:
        more = "" if self.queue is None else f", queue={self.queue}"
        more += "" if self.name is None else f", name={self.name!r}"
        return f"Bulkhead({self.limit}, wait={self.wait}{more})"


class SlotAdmission(Admission):
    """One call inside, by ``with``."""

    __slots__ = ()

    gate: Bulkhead

    def enter(self) -> None:
        self.ticket, self.entered = Lease(), True  # leaving does no harm to who never came in
        inside = False
        try:
            if not self.gate._places.try_acquire(self.ticket):
                self.gate._places.enter(self.ticket)
            inside = True
        finally:
            if not inside:
                self.gate._places.release(self.ticket)

    async def aenter(self) -> None:
        self.ticket, self.entered = Lease(), True  # leaving does no harm to who never came in
        inside = False
        try:
            if not self.gate._places.try_acquire(self.ticket):
                await self.gate._places.aenter(self.ticket)
            inside = True
        finally:
            if not inside:
                self.gate._places.release(self.ticket)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.gate._places.release(self.ticket)
