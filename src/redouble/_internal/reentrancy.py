"""One thing at a time, even if the same thread comes twice.

A lock that its own thread may take again keeps other threads out and cannot deadlock; but the collector, or
a signal, may come in the middle of a change and want another one. It is done after that.

One at a time, in whatever thread; and who comes in the middle leaves a note, which is heeded after that.

A signal handler may come in the middle of anything, and has to be let go on: what it has interrupted may have
the very lock that another thread wants, which is at it. So nobody waits for long. What is done in a turn is
not known here.
"""

from __future__ import annotations

from _thread import get_ident
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Generic, TypeVar

from redouble._internal.locks import ForkSafe

__all__ = ["ReloadLock", "SerialExecutor"]


T = TypeVar("T")


class PendingCall(Generic[T]):
    """Something to do, and what came of it."""

    __slots__ = ("args", "call", "result")

    def __init__(self, call: Callable[..., T], args: tuple[Any, ...]) -> None:
        self.call, self.args = call, args
        self.result: T | None = None


class SerialExecutor:
    """Where deeds are done in turn: used under a lock. ``busy``: in the middle of one."""

    def __init__(self, after: Callable[[], None]) -> None:
        self._after = after  # each round
        self._deeds: deque[PendingCall[Any]] = deque()
        self.busy = False

    def run(self, call: Callable[..., T], *args: Any) -> T | None:
        """Do it and return what it returns; or, in the middle of another one, leave it to who is at that."""
        mine = PendingCall(call, args)
        self._deeds.append(mine)
        while self._deeds and not self.busy:
            self.busy = True
            try:
                while self._deeds:
                    deed = self._deeds.popleft()
                    deed.result = deed.call(*deed.args)
            finally:
                try:
                    self._after()
                finally:
                    self.busy = False
        return mine.result


FOR_EVER = -1.0


class ReloadLock(ForkSafe, Generic[T]):
    """Takes turns. A note says what to do; None is the same once more."""

    def __init__(self) -> None:
        super().__init__()
        self._here: set[int] = set()  # threads that are at it, or wait for their turn
        self._busy = False
        self._notes: deque[T | None] = deque(maxlen=1)

    @contextmanager
    def _turn(self, patience: float = FOR_EVER) -> Generator[bool]:
        """Wait for our turn, and say whether it has come: not if this very thread is in the middle of one."""
        me, lock, mine = get_ident(), self._lock, False
        if me in self._here:
            yield False
            return
        try:
            self._here.add(me)
            mine = lock.acquire(timeout=patience)
            self._busy = mine or self._busy
            yield mine
        finally:
            self._here.discard(me)
            if mine or self._owned_by_this_thread():  # interrupted just when it was
                self._busy = False
                lock.release()

    def _joined(self) -> None:
        """Do it once more if somebody has come in the middle, under the lock, and would be left out."""
        if self._busy:
            self._leave_note(None)

    def _leave_note(self, note: T | None) -> None:
        # One is enough: the last that says something.
        if note is not None or not self._notes:
            self._notes.append(note)

    def _heed_notes(self, do: Callable[[T | None], object]) -> None:
        """Do what a note says, unless there is somebody who will."""
        while self._notes and not self._busy and get_ident() not in self._here:
            with suppress(IndexError):  # somebody else has
                do(self._notes.pop())

    def _after_fork(self) -> None:
        super()._after_fork()
        self._here.clear()  # none of those threads is here
        self._busy = False
        self._notes.clear()
