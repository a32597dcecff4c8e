"""The ambient flag: True while an observer, a deadline or a test override is active anywhere in the process.

Every call reads it once, so that a feature costs nothing while it is unused. Code that activates a feature
which calls have to notice adds itself as a user of the flag, and removes itself at the end.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, TypeAlias


class Ambient:
    """The flag, as dicts with one key for each user; a dict is true while it has a key.

    ``active`` has all users, ``others`` those that are no observers. Adding and removing a user are single
    operations, and may be repeated, because a signal handler that raises may interrupt the caller.
    """

    __slots__ = ("active", "others")

    def __init__(self) -> None:
        self.active: dict[object, None] = {}
        self.others: dict[object, None] = {}

    def add(self, user: object) -> None:
        """Add a user that is no observer; it is compared by identity."""
        self.others[user] = None  # atomic: worker threads call this at every attempt
        self.active[user] = None

    def remove(self, user: object) -> None:
        """Remove a user, which may have been removed before."""
        self.active.pop(user, None)
        self.others.pop(user, None)

    def add_observer(self, observer: object) -> None:
        """Add an observer; it is compared by identity."""
        self.active[observer] = None


ambient = Ambient()


class AttemptOverride:
    """The limit of attempts that replaces the option of every policy in a test, until ``ended`` is True."""

    def __init__(self, most: int) -> None:
        self.attempts = most
        self.ended = False


ATTEMPT_OVERRIDE: ContextVar[AttemptOverride | None] = ContextVar("redouble_attempt_override", default=None)


# A call that credits a budget when it succeeds: the budget (None once it is over), the grant of the last
# retry inside it, and the next such call around it. A plain list, because every call with a budget makes one.
# Only a driver that calls what it retries enters one. A block does not: a generator that is suspended in it
# would leave it to its caller.
CreditedCall: TypeAlias = list[Any]
CREDITED_CALL: ContextVar[CreditedCall | None] = ContextVar("redouble_credited_call", default=None)


def credited_call(budget: object) -> CreditedCall | None:
    """Return the call of this context that credits the budget: calls inside it leave that to it.

    Calls that are over are dropped from the chain, so that tasks which start one another never make it long.
    """
    link = call = CREDITED_CALL.get()
    if link is None or link[0] is budget:
        return link
    while (call := link[2]) is not None and call[0] is not budget:
        if call[0] is None:
            link[2] = call[2]
        else:
            link = call
    return call
