"""Throttle: Google's client-side throttling, which rejects calls in proportion to the server's rejections."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

from redouble._failures.verdict import FailureFilter, On
from redouble._internal.public import public
from redouble._internal.reentrancy import ReentrancySafe
from redouble._internal.sliding_counter import SLICES, SlidingCounter
from redouble._internal.validation import Duration, format_seconds, instance, integer, methods, number
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.gate import Gate, problem_outside_retry
from redouble._layers.layer import Layer
from redouble._layers.limits.sampled_counter import SampledCounter, compile_counting_wrapper
from redouble._runtime.clock import SYSTEM, Chance
from redouble._telemetry.emit import emit_rejected
from redouble.errors import Rejected

__all__ = ["Throttle"]


MIN_WINDOW = 0.001  # second


def rejection_share(requests: float, accepts: float, k: float, most: float = 1.0) -> float:
    """Return the share of calls to reject."""
    return min(most, max(0.0, (requests - k * accepts) / (requests + 1)))


class RequestWindow(SampledCounter):
    """A sliding window of requests and accepted requests; ``count``: accepted ones not yet added to it."""

    __slots__ = ("accepts", "limiting", "requests", "width")

    def __init__(self, window: float) -> None:
        super().__init__()
        self.width = window / SLICES
        self.requests, self.accepts = SlidingCounter(), SlidingCounter()
        self.limiting = False  # True if a request in the window was not accepted

    def advance(self, now: float) -> None:
        """Add the counted calls to the slice they were counted in, and drop slices that are too old."""
        before, since = self.drain()
        self._add(before, before)
        in_slice = self.requests.counts[self.requests.position]
        index = floor(now / self.width)
        self.requests.advance(index)
        self.accepts.advance(index)
        self._add(since, since)
        self.begin_slice(in_slice, self.requests.latest * self.width, (self.requests.latest + 1) * self.width)
        self.limiting = self.requests.total > self.accepts.total

    def add(self, now: float, accepted: bool) -> None:
        """Count a call."""
        self.advance(now)
        self._add(1, int(accepted))
        self.limiting = self.requests.total > self.accepts.total

    def _add(self, requests: int, accepts: int) -> None:
        self.requests.add(requests, self.requests.latest)
        self.accepts.add(accepts, self.accepts.latest)


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
        k = number(k, "Throttle k", 1, 1e9, "1 or more, such as 2: calls sent for each one accepted")
        seconds = checked(window, "Throttle window")
        if seconds < MIN_WINDOW:
            raise ValueError(f"Throttle window={window!r}: write more seconds, such as 120")
        most = number(most, "Throttle most", 0, 1, "a share from 0 to 1, such as 0.9")
        integer(minimum, "Throttle minimum", 0, "how many calls, 0 or more")
        self._failures = FailureFilter(on, "Throttle")
        instance(name, "Throttle name", str | None, "a text, or None")
        methods(random, "random", ("random",))
        self.settings = ThrottleSettings(
            k=k, window=seconds, most=most, minimum=minimum, on=on, name=name, random=random
        )
        self.name = name
        self._requests = RequestWindow(seconds)
        self.register("limits")

    def admit(self, now: float, /) -> None:
        """Admit a call, or raise `Rejected`."""
        # A call by a signal handler that interrupted the counting of another call is admitted.
        if not self._requests.limiting or self._owned_by_this_thread():
            return
        draw = self.settings.random.random()  # outside the lock, because it may be the user's code
        share = self._run_exclusively(self._share_if_rejected, draw, now)
        if share:
            throttle = "the throttle" if self.name is None else f"the throttle {self.name}"
            calls = f"{share:.0%} of the calls are"
            message = f"{throttle} is on: {calls} rejected here, because the service accepts too few"
            raise emit_rejected(Rejected(message), "throttle", self.name)

    def _share_if_rejected(self, draw: float, now: float) -> float:
        """Count the call and return the share of rejected calls, if the draw is below it; else return 0."""
        self._requests.advance(now)
        share = self._rejected_share()
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
        requests, accepts = self._requests.requests.total, self._requests.accepts.total
        return {"share": self._rejected_share(), "requests": requests, "accepts": accepts}

    def _compile(self, fn: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        window, enter = self._requests, self._aenter if is_async else self._enter
        advance = self._advance_window
        return compile_counting_wrapper(self, advance, self, window, window, fn, enter, is_async=is_async)

    def _enter(self) -> None:
        self.admit(SYSTEM.now())

    async def _aenter(self) -> None:
        self.admit(SYSTEM.now())

    def _advance_window(self) -> None:
        self._run_exclusively(self._requests.advance, SYSTEM.now())

    def _rejected_share(self) -> float:
        requests, accepts = self._requests.requests.total, self._requests.accepts.total
        settings = self.settings
        if requests < settings.minimum:
            return 0.0
        return rejection_share(requests, accepts, settings.k, settings.most)

    def describe(self) -> str:
        settings = self.settings
        return f"at most {settings.k:g} calls for each one accepted in {format_seconds(settings.window)}"

    def lint(self, outer: tuple[Layer, ...], inner: tuple[Layer, ...], worst: WorstCase, /) -> Iterator[str]:
        del outer, worst
        return problem_outside_retry(self, inner, "it counts one call for several attempts")

    def traits(self) -> Traits:
        return Traits(handles=self.settings.on, shared=(self,))

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"Throttle({self.settings.k:g}, window={self.settings.window:g}{named})"
