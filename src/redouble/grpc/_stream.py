"""A stream of responses in blocking code: an iterator with the face of a call.

Its first attempt begins at once, as with gRPC itself, unless a gate has to be asked before. What follows a
failure happens where somebody waits for the first message, and only until that has come.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import grpc

from redouble._bell import Bell
from redouble.grpc._answer import Answer
from redouble.grpc._attempt import END, Opened, begun, made
from redouble.grpc._errors import SYNC
from redouble.grpc._future import tell
from redouble.grpc._permit import Permit, cancel

__all__ = ["Stream"]


class Stream(grpc.Call):
    """A stream of responses."""

    def __init__(self, permit: Permit, *, eager: bool) -> None:
        self._permit = permit
        self._call: Any = None  # the one that its messages come by, or how it came out
        self._items: Iterator[Any] = iter(())
        self._opening = allocate_lock()  # held while somebody waits for it
        self._callbacks: list[Callable[[], None]] = []
        self._deciding = allocate_lock()
        permit.bell = Bell()
        if eager and permit.limit() > 0:
            permit.early = begun(permit, permit.rest())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._call is None:
            self._opened()
        try:
            return next(self._items)
        except StopIteration:
            raise
        except Exception as error:
            if not isinstance(self._call, Answer):
                self._permit.breaks(error)
            raise

    next = __next__

    # --------------------------------------------------------------------- as a call

    def initial_metadata(self) -> Any:
        """Wait for what the server sends first, and return it: there is no other attempt after that."""
        call = self._permit.current
        if self._call is None and call is not None:
            found = call.initial_metadata()
            if self._permit.commit(call) if found else call.is_active():
                return found
        return self._opened().initial_metadata()

    def trailing_metadata(self) -> Any:
        """Wait for the end, and return what the server sent last."""
        return self._opened().trailing_metadata()

    def code(self) -> Any:
        """Wait for the end, and return the code."""
        return self._opened().code()

    def details(self) -> Any:
        """Wait for the end, and return what the server said."""
        return self._opened().details()

    def cancel(self) -> bool:
        """Cancel the call, or the waiting for its next attempt; say whether it was not over yet."""
        if self._call is not None:
            return cancel(self._call)
        self._permit.cancel()
        return True

    def is_active(self) -> bool:
        """Say whether it is not over."""
        call = self._call
        return not self._permit.cancelled if call is None else bool(call.is_active())

    def time_remaining(self) -> Any:
        """Tell how long the call may take, or None."""
        return self._permit.remaining()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call a function when it is over; False if it is."""
        with self._deciding:
            if self._call is None:
                self._callbacks.append(callback)
                return True
        return bool(self._call.add_callback(callback))

    # ------------------------------------------------------------------------ opening

    def _opened(self) -> Any:
        """Wait for the first message, and return the call that it comes by, or how it came out."""
        with self._opening:
            if self._call is None:
                self._open()
        return self._call

    def _open(self) -> None:
        try:
            opened = made(self._permit)
        except Exception as error:
            self._permit.concludes(error, SYNC)
            answer = Answer(error=self._permit.withdrawn(error) or error)
            opened = Opened(answer, iter(answer.result, END), END)
        if not isinstance(opened, Opened):  # a fallback, for instance
            opened = Opened(Answer(), iter(opened), END)
        call, items, first = opened
        self._items = items if first is END else chain((first,), items)
        with self._deciding:
            self._call = call
        while self._callbacks:
            callback = self._callbacks.pop(0)
            if not call.add_callback(callback):
                tell([callback])
