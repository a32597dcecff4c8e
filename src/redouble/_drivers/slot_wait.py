"""The wait for a slot, in blocking and async code: of a gate, and of an attempt on a worker with a limit.

`Slots` decides which call is admitted next. Here calls wait until they are, or until their time is up.
"""

from __future__ import annotations

from math import inf
from typing import NoReturn

from redouble._internal.validation import format_seconds
from redouble._runtime.backend import backend, cancel_after, in_event_loop
from redouble._runtime.clock import SYSTEM
from redouble._runtime.slots import Lease, Slots, Wake
from redouble._runtime.thread_waker import ThreadWaker
from redouble._telemetry.emit import emit_layer
from redouble._telemetry.observers import watch


class SlotWait:
    """The wait of calls for one of the slots, with the messages and the event of their owner."""

    _slots: Slots

    def _reject(self, why: str) -> NoReturn:
        """Raise the rejection of a call."""
        raise NotImplementedError

    def _kind_and_name(self) -> tuple[str, str | None]:
        """Return the kind and the name of the owner of the slots, for events."""
        raise NotImplementedError

    def _block(self, waker: ThreadWaker, seconds: float) -> None:
        """Block this thread until the waker is woken, for at most this time."""
        waker.wait_by_clock(seconds)

    def _wait_for_slot(self, lease: Lease, seconds: float, most_waiting: float = inf) -> None:
        """Wait for a slot after `Slots.try_acquire` failed, blocking this thread; or raise the rejection.

        most_waiting: how many calls wait at most; beyond that the call is rejected.
        """
        if not seconds:
            self._acquire_now(lease, "and it does not wait")
        elif in_event_loop():
            self._acquire_now(lease, "and a blocking call cannot wait on the thread of an event loop")
        else:
            waker, began = ThreadWaker(), SYSTEM.now()
            try:
                self._join_queue(lease, waker.wake, most_waiting)
                self._block(waker, seconds)
            finally:
                admitted = self._slots.stop_waiting(lease)
            self._waited(lease, began, seconds, admitted)

    async def _await_slot(self, lease: Lease, seconds: float, most_waiting: float = inf) -> None:
        """Do the same in async code."""
        if not seconds:
            self._acquire_now(lease, "and it does not wait")
        else:
            (wake, woken), began = backend().waker(), SYSTEM.now()
            try:
                self._join_queue(lease, wake, most_waiting)
                with cancel_after(seconds):
                    await woken()
            finally:
                admitted = self._slots.stop_waiting(lease)
            self._waited(lease, began, seconds, admitted)

    def _acquire_now(self, lease: Lease, why: str) -> None:
        """Acquire a slot without waiting, behind all waiters; or raise the rejection.

        `Slots.try_acquire` may have failed only because another failing call had added its lease just then.
        """
        try:
            if not self._slots.enqueue(lease, object, 0):
                self._reject(why)
        finally:
            self._slots.stop_waiting(lease)

    def _join_queue(self, lease: Lease, wake: Wake, most_waiting: float) -> None:
        if not self._slots.enqueue(lease, wake, most_waiting):
            waiting = "1 is" if most_waiting == 1 else f"{most_waiting} are"
            full = 0 < most_waiting < inf  # else a signal handler asks during an admission
            self._reject(f"and {waiting} waiting already" if full else "and no call may wait")

    def _waited(self, lease: Lease, began: float, seconds: float, admitted: bool) -> None:
        """Emit that a call has waited; reject it if it has no slot."""
        if not admitted:
            late = f"and no slot came free within {format_seconds(seconds)}"
            self._reject("and another call took its place in the queue" if lease.displaced else late)
        if watch.by_event["waited"]:
            emit_layer("waited", *self._kind_and_name(), delay=max(0.0, SYSTEM.now() - began))
