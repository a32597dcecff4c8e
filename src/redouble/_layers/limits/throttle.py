"""Throttle: Google's client-side throttling, which rejects calls in proportion to the server's rejections."""

from __future__ import annotations

import random as chance
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from redouble._failures.verdict import FailureFilter, On
from redouble._internal.locks import gil
from redouble._internal.public import public
from redouble._internal.reentrancy import ReentrancySafe
from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble._internal.validation import (
    Duration,
    format_seconds,
    integer,
    methods,
    number,
    positive_seconds,
)
from redouble._layers.analysis import Traits
from redouble._layers.gate import Gate, Wrapper
from redouble._layers.limits.sampled_counter import COUNTING_WRAPPER, SampledCounter
from redouble._runtime.clock import SYSTEM, Chance
from redouble._telemetry.emit import emit_rejected
from redouble.errors import Rejected


class RequestWindow(SampledCounter):
    """A sliding window of requests, and of those not accepted; ``count``: accepted ones not yet in it."""

    def __init__(self, window: float) -> None:
        super().__init__()
        self._width = window / SLICES
        self.requests, self.failures = SlidingCounter(), SlidingCounter()

    def advance(self, now: float) -> None:
        """Add the counted calls to the slice they were counted in, and drop slices that are too old."""
        requests, index = self.requests, floor(now / self._width)
        before, since = self.drain()
        requests.add(before, requests.latest)
        in_slice = requests.counts[requests.position]
        requests.advance(index)
        self.failures.advance(index)
        requests.add(since, requests.latest)
        self.begin_slice(in_slice, requests.latest * self._width, (requests.latest + 1) * self._width)
        self.limiting = self.failures.total > 0

    def add(self, now: float, accepted: bool) -> None:
        """Count a call."""
        self.advance(now)
        self.requests.add(1, self.requests.latest)
        if not accepted:
            self.failures.add(1, self.failures.latest)
            self.limiting = True

    def totals(self) -> tuple[int, int]:
        """Return the numbers of requests and of accepted requests."""
        return self.requests.total, self.requests.total - self.failures.total


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    """The validated options of a `Throttle`."""

    k: float
    window: float
    most: float
    minimum: int
    on: On
    name: str | None
    random: Chance

    def rejected_share(self, requests: int, accepts: int) -> float:
        """Return the share of calls to reject."""
        if requests < self.minimum:
            return 0.0
        return min(self.most, max(0.0, (requests - self.k * accepts) / (requests + 1)))


@public("redouble")
class Throttle(ReentrancySafe, Gate):
    """A client-side throttle: rejects as many calls as the service would, before they cost anything.

    Of the calls in the last ``window`` seconds, a share of ``(requests - k * accepts) / (requests + 1)`` is
    rejected with `Rejected`, at random. When the service accepts more calls again, the share falls.

    k: the number of calls to send for each accepted one. 2 admits twice as many as succeed, enough to notice
        soon that the service has recovered; 1.1 is strict.
    window: the seconds that a call counts for.
    most: the largest share to reject, such as 0.9, so that some calls always pass and probe the service.
    minimum: reject nothing while there are fewer calls in the window.
    on: the errors that mean "not accepted": an exception type, a tuple, a rule, or a list of these. An error
        for which a rule returns False counts as accepted; an error that no rule decides on, a cancellation
        and a `Rejected` are not counted.
    name: the name of the throttle in its errors.
    """

    _problem_outside_retry = "it counts one call for several attempts"

    def __init__(
        self,
        k: float = 2.0,
        window: Duration = 120,
        most: float = 1.0,
        minimum: int = 0,
        on: On = Exception,
        *,
        name: str | None = None,
        random: Chance = chance,
    ) -> None:
        if callable(k):
            raise TypeError("write @Throttle(), with brackets: it is no decorator without them")
        super().__init__()
        self.settings = ThrottleSettings(
            k=number(k, "Throttle k", 1, 1e9, "1 or more, such as 2: calls sent for each one accepted"),
            window=positive_seconds(window, "Throttle window", "120"),
            most=number(most, "Throttle most", 0, 1, "a share from 0 to 1, such as 0.9"),
            minimum=integer(minimum, "Throttle minimum", 0, "how many calls, 0 or more"),
            on=on,
            name=name,
            random=random,
        )
        self._failures = FailureFilter(on, "Throttle")
        methods(random, "random", ("random",))
        self.name = name
        self._requests = RequestWindow(self.settings.window)
        self.register("limits")

    def admit(self, now: float, /) -> None:
        """Admit a call, or raise `Rejected`."""
        # A call by a signal handler that interrupted the counting of another call is admitted.
        if not self._requests.limiting or self._owned_by_this_thread():
            return
        draw = self.settings.random.random()  # outside the lock, because it may be the user's code
        share = self._run_exclusively(self._share_if_rejected, draw, now)
        if share:
            rejected = f"{share:.0%} of the calls are rejected here"
            message = f"{self._title('throttle')} is on: {rejected}, because the service accepts too few"
            raise emit_rejected(Rejected(message), "throttle", self.name)

    def _share_if_rejected(self, draw: float, now: float) -> float:
        """Count the call and return the share of rejected calls, if the draw is below it; else return 0."""
        self._requests.advance(now)
        share = self.settings.rejected_share(*self._requests.totals())
        if draw >= share:
            return 0.0
        self._requests.add(now, False)
        return share

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:  # noqa: ARG002
        """Record how a call ended."""
        bad = self._failures.is_failure(error)
        if bad is not None:
            self._run_exclusively(self._requests.add, now, not bad)

    def snapshot(self) -> Mapping[str, float]:
        """Return the ``share`` of calls that is rejected, and the numbers of ``requests`` and ``accepts``."""
        self._advance_window()
        return self._run_now(self._snapshot)

    def _snapshot(self) -> Mapping[str, float]:
        requests, accepts = self._requests.totals()
        share = self.settings.rejected_share(requests, accepts)
        return {"share": share, "requests": requests, "accepts": accepts}

    def _wrapper(self, *, is_async: bool) -> Wrapper:
        return COUNTING_WRAPPER[gil.enabled], {
            "counter": self._requests,
            "enter": self._aenter if is_async else self._enter,
            "advance_window": self._advance_window,
        }

    def _enter(self) -> None:
        self.admit(SYSTEM.now())

    async def _aenter(self) -> None:
        self.admit(SYSTEM.now())

    def _advance_window(self) -> None:
        self._run_exclusively(self._requests.advance, SYSTEM.now())

    def describe(self) -> str:
        settings = self.settings
        return f"at most {settings.k:g} calls for each one accepted in {format_seconds(settings.window)}"

    def traits(self) -> Traits:
        return Traits(handles=self.settings.on, shared=(self,))

    def __repr__(self) -> str:
        return self._repr(f"{self.settings.k:g}", f"window={self.settings.window:g}")
