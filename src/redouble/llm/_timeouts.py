"""How long a call of a language model may take: to connect, in silence, in all. Values, and no waiting."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Self, cast

from redouble._internal.public import public
from redouble._internal.validation import Duration, seconds

__all__ = ["Timeouts", "as_timeouts", "limit_of"]

WANTED = "more than 0 seconds, or None for no limit"
LEAST = 0.001  # second: a client takes zero for no waiting at all, or for ever


@public("redouble.llm")
@dataclass(frozen=True)
class Timeouts:
    """The time limits of one call; None is no limit.

    >>> Timeouts(total=120)
    Timeouts(connect=5.0, read=30.0, total=120.0, first=None)

    connect: for a connection to be there.
    read: for the silence between two chunks, and until the first one.
    total: for everything: attempts, delays, and the whole of a stream.
    first: for the first chunk, where a model thinks before it speaks; ``read`` unless given.
    """

    connect: Duration | None = 5.0
    read: Duration | None = 30.0
    total: Duration | None = 30.0
    first: Duration | None = None

    def __post_init__(self) -> None:
        for option in ("connect", "read", "total", "first"):
            value = getattr(self, option)
            if value is not None:
                object.__setattr__(self, option, _positive(value, f"Timeouts {option}"))

    @classmethod
    def none(cls) -> Self:
        """No limits at all."""
        return cls(None, None, None)

    def within(self, rest: float, *, stream: bool = True) -> dict[str, float | None]:
        """Return what an HTTP client is told, if so many seconds are left: ``httpx2.Timeout(**these)``.

        A little less than what is left: the client is to end first, who knows what it has waited for. It has
        one limit for all silences, so where the first is allowed to be longer, so are they; the guard of
        streams knows better.
        """
        rest = inf if rest == inf else max(LEAST, rest - min(0.01, rest / 5))
        read = max(self.silence, self.opening) if stream else self.silence
        connect, silence = _least(limit_of(self.connect), rest), _least(read, rest)
        return {"connect": connect, "read": silence, "write": silence, "pool": connect}

    @property
    def silence(self) -> float:
        """The seconds that may pass between two chunks."""
        return limit_of(self.read)

    @property
    def opening(self) -> float:
        """The seconds until the first chunk, of each attempt."""
        return self.silence if self.first is None else limit_of(self.first)


def _positive(value: object, option: str) -> float:
    try:
        limit = seconds(value, option)
    except ValueError:
        limit = 0.0
    if not limit:
        raise ValueError(f"{option}={value!r}: write {WANTED}") from None
    return limit


def limit_of(value: Duration | None) -> float:
    """Return a limit that was checked as a number."""
    return inf if value is None else cast("float", value)  # a timedelta became seconds


def _least(limit: float, rest: float) -> float | None:
    found = min(limit, rest)
    return None if found == inf else found


def as_timeouts(said: object, option: str) -> Timeouts:
    """Read what was said of one call: a number is for all of it, and for the silence in it too.

    An answer in one piece is silent until it is there, so a shorter limit for silence would be one for it.
    """
    if isinstance(said, Timeouts):
        return said
    if said is None:
        return Timeouts.none()
    try:
        total = _positive(said, option)
    except TypeError:
        wanted = "seconds for the whole call, or Timeouts(connect=5, read=30, total=30)"
        raise TypeError(f"{option}={said!r}: write {wanted}") from None
    return Timeouts(min(5.0, total), total, total)
