"""Timeouts: the limits of one call on connecting, on silence and on its total time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Self, cast

from redouble._internal.public import public
from redouble._internal.validation import SHORTEST, Duration, seconds


@public("redouble.llm")
@dataclass(frozen=True)
class Timeouts:
    """The time limits of one call; None is no limit.

    >>> Timeouts(total=120)
    Timeouts(connect=5.0, read=30.0, total=120.0, first=None)

    connect: until the connection is established.
    read: between two chunks, and until the first one.
    total: for the whole call: attempts, delays, and all of a stream.
    first: until the first chunk, for models that think before they answer; ``read`` unless given.
    """

    connect: Duration | None = 5.0
    read: Duration | None = 30.0
    total: Duration | None = 30.0
    first: Duration | None = None

    def __post_init__(self) -> None:
        for option, limit in [*vars(self).items()]:
            if limit is not None:
                object.__setattr__(self, option, _positive(limit, f"Timeouts {option}"))

    @classmethod
    def none(cls) -> Self:
        """Return timeouts without any limit."""
        return cls(None, None, None)

    def within(self, rest: float, *, stream: bool = True) -> dict[str, float | None]:
        """Return the limits for an HTTP client if ``rest`` seconds are left: ``httpx2.Timeout(**limits)``.

        They are a little shorter than the time left, so that the client, which knows the cause, times out
        first. A client has one limit for all silences: if the first chunk may take longer, every chunk may;
        the guarded stream enforces ``read`` between chunks itself.
        """
        # Some clients treat zero as no wait, others as no limit.
        rest = inf if rest == inf else max(SHORTEST, rest - min(0.01, rest / 5))
        read = max(self.silence, self.opening) if stream else self.silence
        limits = min(limit_of(self.connect), rest), min(read, rest)
        connect, silence = (None if limit == inf else limit for limit in limits)
        return {"connect": connect, "read": silence, "write": silence, "pool": connect}

    @property
    def silence(self) -> float:
        """The longest time between two chunks, in seconds."""
        return limit_of(self.read)

    @property
    def opening(self) -> float:
        """The longest time until the first chunk of each attempt, in seconds."""
        return self.silence if self.first is None else limit_of(self.first)


def _positive(value: object, option: str) -> float:
    with suppress(ValueError):
        if limit := seconds(value, option):
            return limit
    raise ValueError(f"{option}={value!r}: write more than 0 seconds, or None for no limit")


def limit_of(value: Duration | None) -> float:
    """Return a validated limit as a number."""
    return inf if value is None else cast("float", value)  # __post_init__ converted a timedelta


def as_timeouts(value: object, option: str) -> Timeouts:
    """Validate the time limits of one call: a number limits the total time, and silence as well.

    A call that is not a stream is silent until its answer arrives, so a shorter limit on silence would limit
    the whole call.
    """
    if isinstance(value, Timeouts):
        return value
    if value is None:
        return Timeouts.none()
    try:
        total = _positive(value, option)
    except TypeError:
        wanted = "seconds for the whole call, or Timeouts(connect=5, read=30, total=30)"
        raise TypeError(f"{option}={value!r}: write {wanted}") from None
    return Timeouts(min(5.0, total), total, total)
