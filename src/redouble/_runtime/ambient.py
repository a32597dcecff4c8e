"""One flag: whether anything ambient is at work, such as an observer or a switch of a test.

Every successful call reads it once, so that what nobody uses costs nobody anything. Whoever turns
something on that calls must notice holds the flag up until it is turned off again.
"""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["ATTEMPT_OVERRIDE", "AttemptOverride", "ambient"]


class Ambient:
    """The flag: ``active`` is true as long as there is anything in it, one entry for each user.

    ``others`` has an entry for each of them that is no observer.
    """

    __slots__ = ("active", "others")

    def __init__(self) -> None:
        self.active: list[None] = []
        self.others: list[None] = []

    def hold(self, users: int) -> None:
        """Count users in (1) and out (-1)."""
        if users > 0:
            self.others.append(None)  # each is atomic: worker threads do so at every attempt
            self.active.append(None)
        else:
            self.active.pop()
            self.others.pop()

    def watch(self, observers: int) -> None:
        """Count observers in (1) and out (-1)."""
        if observers > 0:
            self.active.append(None)
        else:
            self.active.pop()


ambient = Ambient()


class AttemptOverride:
    """How many attempts every policy makes, whatever its options say: for tests. Once ``over``, as it was."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.over = False


ATTEMPT_OVERRIDE: ContextVar[AttemptOverride | None] = ContextVar("redouble_most_attempts", default=None)
