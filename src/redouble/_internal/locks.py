"""What many calls share by identity: a budget, a bulkhead, a breaker.

The lock of one may be taken again by the thread that has it: a garbage collector, or a signal, may come in
the middle of anything, and what it finishes then hands something back.
"""

from __future__ import annotations

import os
from _thread import RLock  # what threading.RLock makes, without importing all of threading
from collections.abc import Callable
from types import MethodType
from typing import Any, NoReturn, ParamSpec, Self, cast
from weakref import WeakValueDictionary, ref

__all__ = ["ForkSafe", "ForkSafeLock", "SharedByIdentity", "weak_method"]


P = ParamSpec("P")


class SharedByIdentity:
    """Something with a state of its own: never copied, and never sent to another process."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object, /) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        whose = f"an {name}" if name[0] in "AEIOU" else f"a {name}"
        raise TypeError(
            f"{whose} is shared by the calls of one process and cannot be sent to another: make one there"
        )


class ForkSafe(SharedByIdentity):
    """Something shared that has a lock of its own."""

    def __init__(self) -> None:
        self._lock = RLock()
        _alive[id(self)] = self

    def _owned_by_this_thread(self) -> bool:
        """Say whether this very thread has the lock."""
        lock: Any = self._lock
        return bool(lock._is_owned())

    def _after_fork(self) -> None:
        """Begin anew in a child process, where the threads that may hold the lock do not exist."""
        self._lock = RLock()


class ForkSafeLock(ForkSafe):
    """A lock, for ``with``, that is free in a child process, whoever has it in the parent."""

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def weak_method(method: Callable[P, None]) -> Callable[P, None]:
    """Return a function that calls a method of something for as long as that lives."""
    bound = cast("MethodType", method)
    owner, function = ref(bound.__self__), bound.__func__  # WeakMethod would do, and take ten times as long

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        somebody = owner()
        if somebody is not None:
            function(somebody, *args, **kwargs)

    return call


_alive: WeakValueDictionary[int, ForkSafe] = WeakValueDictionary()  # by identity


def _after_fork() -> None:
    for locked in list(_alive.values()):
        locked._after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch  elsewhere there is no fork
    os.register_at_fork(after_in_child=_after_fork)
