"""Objects that many calls share by identity (a budget, a bulkhead, a breaker), and their fork-safe locks.

The locks are re-entrant, because the garbage collector or a signal handler may run while a thread holds one,
and may release something that belongs to the same object.

`gil` tells how shared objects count. With a global interpreter lock (GIL) an idle gate counts without a lock:
there is no call between reading a number and storing it, so no other thread can run in between. Without it
the same statements run under the lock of the gate.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock  # the class behind threading.RLock, without the import of threading
from typing import Any, NoReturn, Self
from weakref import WeakValueDictionary


class SharedByIdentity:
    """An object with mutable state: a copy is the object itself, and pickling raises."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object, /) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        subject = f"an {name}" if name[0] in "AEIOU" else f"a {name}"
        raise TypeError(
            f"{subject} is shared by the calls of one process and cannot be sent to another: create one there"
        )


class ForkSafe(SharedByIdentity):
    """A shared object with a re-entrant lock, which is replaced after a fork."""

    def __init__(self) -> None:
        self._lock = RLock()
        _alive[id(self)] = self

    def _owned_by_this_thread(self) -> bool:
        """Return True if the current thread holds the lock."""
        lock: Any = self._lock
        return bool(lock._is_owned())

    def _after_fork(self) -> None:
        """Replace the lock in a child process: a thread that holds it does not exist there.

        Subclasses reset whatever else belongs to the parent's threads.
        """
        self._lock = RLock()


class ForkSafeLock(ForkSafe):
    """A re-entrant lock that is free in a forked child even if the parent holds it: ``with lock.rlock:``."""

    @property
    def rlock(self) -> RLock:
        """The lock, whose methods are C functions: no signal handler can run while they do half of it."""
        return self._lock


class Gil:
    """The global interpreter lock; ``enabled``: False on a free-threaded build, and in tests of one.

    A gate reads it when it is made, or when it decorates a function.
    """

    __slots__ = ("enabled",)

    def __init__(self) -> None:
        system: Any = sys
        self.enabled: bool = not hasattr(sys, "_is_gil_enabled") or system._is_gil_enabled()


gil = Gil()


_alive: WeakValueDictionary[int, ForkSafe] = WeakValueDictionary()  # by identity


def _after_fork() -> None:
    for locked in list(_alive.values()):
        locked._after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch  elsewhere there is no fork
    os.register_at_fork(after_in_child=_after_fork)
