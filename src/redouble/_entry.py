"""Waiting for a place, blocking or not: what stands between a call and the places of a bulkhead.

Who may come in, and in what order, is decided in `_places`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NoReturn

from redouble._internal.validation import in_seconds
from redouble._places import Places, Ticket
from redouble._runtime.backend import backend, cut_after, in_event_loop
from redouble._runtime.clock import virtual
from redouble._runtime.deadline import patience
from redouble._runtime.thread_waker import Bell
from redouble._telemetry.emit import refused
from redouble.errors import BulkheadFull

__all__ = ["Entry"]


class Entry(Places):
    """Places that one may wait for: ``patience`` seconds, at most so many at once."""

    def __init__(
        self, limit: int, patience: float | None, most_waiting: int | None, name: str | None
    ) -> None:
        super().__init__(limit)
        self._wait, self._most_waiting, self._name = patience, most_waiting, name

    def retune(self, limit: int, patience: float | None, most_waiting: int | None) -> None:
        """Have so many places from now on; whoever is inside stays, and whoever waits goes on waiting."""
        with self._lock:
            self.limit, self._wait, self._most_waiting = limit, patience, most_waiting
        self.serve()

    def enter(self, ticket: Ticket) -> None:
        """Wait for a place, blocking this thread; or raise `BulkheadFull`."""
        seconds = patience(self._wait)
        if not seconds:
            self.squeeze(ticket, "and it does not wait")
        elif in_event_loop():
            self.squeeze(ticket, "and a blocking call cannot wait on the thread of an event loop")
        else:
            bell = Bell()
            try:
                self._line_up(ticket, bell.ring)
                clock = virtual()
                if clock is None or seconds == inf:
                    bell.wait(seconds)
                elif bell.silent:
                    clock._reach(clock.now() + seconds)
            finally:
                inside = self.quit(ticket)
            if not inside:
                self._refuse(f"and nobody left within {in_seconds(seconds)}")

    async def aenter(self, ticket: Ticket) -> None:
        """Wait for a place in async code; or raise `BulkheadFull`."""
        seconds = patience(self._wait)
        if not seconds:
            self.squeeze(ticket, "and it does not wait")
        else:
            ring, rung = backend().bell()
            try:
                self._line_up(ticket, ring)
                with cut_after(seconds):
                    await rung()
            finally:
                inside = self.quit(ticket)
            if not inside:
                self._refuse(f"and nobody left within {in_seconds(seconds)}")

    def squeeze(self, ticket: Ticket, why: str) -> None:
        """Take a place without waiting, after those who wait; having failed to before says little."""
        try:
            if not self.join(ticket, object, 0):
                self._refuse(why)
        finally:
            self.quit(ticket)

    def _line_up(self, ticket: Ticket, ring: Callable[[], object]) -> None:
        if not self.join(ticket, ring, inf if self._most_waiting is None else self._most_waiting):
            self._refuse(
                f"and {self._most_waiting} wait already" if self._most_waiting else "and nobody may wait"
            )

    def _refuse(self, why: str) -> NoReturn:
        whose = "the bulkhead" if self._name is None else f"the bulkhead {self._name}"
        calls = "1 call is" if self.limit == 1 else f"{self.limit} calls are"
        said = f"{whose} is full: {calls} inside, {why}"
        raise refused(BulkheadFull(said, limit=self.limit, wait=self._wait), "bulkhead", self._name)
