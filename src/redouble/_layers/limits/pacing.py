"""How closely calls may follow each other: the arithmetic of a rate limit, and of being told to slow down.

It is told the time and never waits; who waits, and in what order, is the business of `_line`.

Rule 1: ``free`` is the moment from which the next call may pass. A call that passes moves it on by one
        interval. It never lies further back than ``slack``: what was not used by then is lost, and that is
        all a burst is made of. So in any t seconds at most t / interval + burst calls pass.
Rule 2: as long as nobody has to be asked, ``quick`` is that moment and passing is three attributes, in the
        wrapper of the call itself: from looking to taking there is no call and no loop, so that no other
        thread and no signal can come in between. Else it is infinity, and `free` is in force.
Rule 3: what the other side says about its own limits is kept apart, as ``told``: nothing passes before that
        moment either. So it can slow us down, and never make us faster.
"""

from __future__ import annotations

from math import ceil, floor, inf
from typing import Protocol

__all__ = ["BACK", "SMALLEST", "GcraPacer", "Pacer"]


SMALLEST = 2e-9  # seconds: a clock that was asked to move to a moment may stop this short of it
BACK = 1.0  # second: a clock that goes back by more is another clock


class Pacer(Protocol):
    """How soon there is a permit. It is used under a lock, told the time, and never waits."""

    def hold(self) -> None:
        """Let nobody pass unasked."""
        ...

    def release(self) -> None:
        """Let everybody pass who comes in time."""
        ...

    def due(self, now: float, ahead: int = 0, /) -> float:
        """Tell in how many seconds a call may pass, after so many others; 0.0 is now."""
        ...

    def take(self, now: float, /) -> None:
        """Let one pass."""
        ...


class GcraPacer:
    """One call after the other, at an interval; and not before what the other side has told."""

    __slots__ = ("_since", "_thin", "_until", "free", "interval", "quick", "slack", "told")

    def __init__(self, interval: float, burst: int) -> None:
        self.interval, self.slack = interval, interval * (burst - 1)
        self.free = self.quick = -inf  # our own pace: what we are told never changes it
        self.told, self._since = -inf, inf  # nothing passes before this moment; and when we were told
        self._thin, self._until = 0.0, -inf  # from there on calls are this far apart, until then

    def hold(self) -> None:
        """Let nobody pass unasked."""
        if self.quick != inf:
            self.free = self.quick  # and nothing in between, by rule 2
            self.quick = inf

    def release(self) -> None:
        """Let everybody pass who comes in time, unless we were told to slow down."""
        if self.quick == inf and self.told == -inf:
            self.quick = self.free

    def due(self, now: float, ahead: int = 0) -> float:
        """Tell in how many seconds a call may pass, after so many others."""
        self._look(now)
        free, told = self.free, max(self.told, now)
        if self._thin:
            first = max(free, told)
            fit = max(0, ceil((self._until - first) / self._thin - 1e-9))  # how many pass before that is over
            if ahead < fit:
                return _rounded(first + ahead * self._thin - now)
            if fit:
                free, ahead = first + (fit - 1) * self._thin + self.interval, ahead - fit
            told = max(told, self._until)
        return _rounded(max(told, max(free, told - self.slack) + ahead * self.interval) - now)

    def available(self, now: float) -> int:
        """Tell how many could pass now."""
        if self.due(now):
            return 0
        room = now - max(self.free, now - self.slack) + SMALLEST
        return 1 if self._thin else 1 + floor(room / self.interval)

    def take(self, now: float) -> None:
        """Let one pass."""
        self._look(now)
        self.free = max(self.free, now if self._thin else now - self.slack) + self.interval
        if self._thin:
            self.told = min(max(self.told, now) + self._thin, self._until)
        if self.quick != inf:  # the collector has ended somebody's waiting in the middle of this
            self.quick = self.free

    def pause(self, seconds: float, now: float) -> None:
        """Let nobody pass for so long."""
        self.hold()
        self._look(now)
        self._since, self.told = now, max(self.told, now + seconds)

    def spread(self, calls: int, seconds: float, now: float) -> None:
        """Let no more than so many pass in so many seconds, evenly; then go on as before."""
        self.hold()
        self._look(now)
        self._thin, self._until = 0.0, -inf
        if seconds > calls * self.interval:
            self._since, self._thin, self._until = now, seconds / calls, now + seconds
            self.told = max(self.told, now)

    def reconfigure(self, interval: float, burst: int, now: float) -> None:
        """Go on at another interval, with another burst; as many of the burst are used as before."""
        self.hold()
        self._look(now)
        used = (self.free - now + self.slack) / self.interval  # and no call from here on, as in rule 2
        used = 0.0 if used < 0 else burst if used > burst else used  # noqa: FURB136
        self.interval, self.slack = interval, interval * (burst - 1)
        self.free = now - self.slack + used * interval
        if self.quick != inf:  # a signal has come in the middle of this
            self.quick = self.free

    def _look(self, now: float) -> None:
        """Forget what is over, and what another clock said."""
        if self.free - now > self.interval + BACK:  # our own pace is never that far ahead
            self.free = -inf
        if now < self._since - BACK:
            self.told, self._since, self._thin, self._until = -inf, inf, 0.0, -inf
        if self._until <= now + SMALLEST:
            self._thin, self._until = 0.0, -inf
            if self.told <= now + SMALLEST:
                self.told, self._since = -inf, inf


def _rounded(wait: float) -> float:
    return 0.0 if wait <= SMALLEST else wait
