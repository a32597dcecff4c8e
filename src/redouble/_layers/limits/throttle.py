"""Throttle: Google's client-side throttling, which rejects calls in proportion to the server's rejections."""

from __future__ import annotations

import random as chance
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor
from typing import Self

from redouble._failures.verdict import FailureFilter, On, Until
from redouble._internal.locks import gil
from redouble._internal.public import public
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
from redouble._layers.gate import Admission, JudgingGate, Wrapper
from redouble._layers.limits.sampled_counter import COUNTING_WRAPPER, JUDGING_WRAPPER, SampledCounter
from redouble._layers.limits.shares import (
    PriorityOption,
    allotment,
    describe_shares,
    same_function,
    shares_option,
)
from redouble._runtime.clock import SYSTEM, Chance
from redouble._telemetry.emit import emit_rejected
from redouble.errors import Rejected

# A function of the arguments is evaluated before each call, so that its mistakes show at once.
BY_CLASS = (
    """\
    if redouble_counter.limiting:
        {await_}redouble_enter()
""",
    """\
    redouble_name = redouble_per_call({arguments})
    if redouble_counter.limiting:
        {await_}redouble_enter(redouble_name)
""",
)
COUNTING_BY_CLASS = {key: each.derive("gate", BY_CLASS) for key, each in COUNTING_WRAPPER.items()}
JUDGING_BY_CLASS = {key: each.derive("gate", BY_CLASS) for key, each in JUDGING_WRAPPER.items()}


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


class ClassDemand:
    """How many calls of each class have asked for admission in a sliding window; None: of no class."""

    def __init__(self, window: float) -> None:
        self._width = window / SLICES
        self._counters: dict[str | None, SlidingCounter] = {}

    def add(self, name: str | None, now: float) -> None:
        """Count a call."""
        if name not in self._counters:
            self._counters[name] = SlidingCounter()
        self.advance(now)
        counter = self._counters[name]
        counter.add(1, counter.latest)

    def advance(self, now: float) -> None:
        """Drop slices that are too old."""
        for counter in self._counters.values():
            counter.advance(floor(now / self._width))

    def rejected(self, shares: Mapping[str, float], share: float) -> Mapping[str | None, float]:
        """Return the share of calls to reject by class, if this share of all is to be rejected."""
        names = (*shares, None)
        counters = self._counters
        demand = {name: counters[name].total if name in counters else 0 for name in names}
        allotted = allotment(shares, (1 - share) * sum(demand.values()), demand)
        return {
            name: max(0.0, 1 - got / demand[name]) if demand[name] else share
            for name, got in zip(names, allotted, strict=True)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleSettings:
    """The validated options of a `Throttle`."""

    k: float
    window: float
    most: float
    minimum: int
    on: On
    until: Until | None
    shares: Mapping[str, float] | None
    priority: PriorityOption
    name: str | None
    random: Chance

    def rejected_share(self, requests: int, accepts: int) -> float:
        """Return the share of calls to reject."""
        if requests < self.minimum:
            return 0.0
        return min(self.most, max(0.0, (requests - self.k * accepts) / (requests + 1)))


@public("redouble")
class Throttle(JudgingGate):
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
    until: a function of the result, or a rule: a result that it does not accept means "not accepted" too.
    shares: guaranteed shares of the admitted calls by class of call, the highest class first, such as
        ``{"interactive": 0.6, "batch": 0.1}``. What is left goes to the highest class, so that calls of the
        lowest are rejected first.
    priority: the class of a call that `redouble.priority` gives none, or a function of its arguments.
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
        until: Until | None = None,
        shares: Mapping[str, float] | None = None,
        priority: PriorityOption = None,
        name: str | None = None,
        random: Chance = chance,
    ) -> None:
        if callable(k):
            raise TypeError("write @Throttle(), with brackets: it is no decorator without them")
        super().__init__()
        self._shares = shares_option(shares, priority, "Throttle")
        self._per_call = None if self._shares is None else self._shares.per_call
        self.settings = ThrottleSettings(
            k=number(k, "Throttle k", 1, 1e9, "1 or more, such as 2: calls sent for each one accepted"),
            window=positive_seconds(window, "Throttle window", "120"),
            most=number(most, "Throttle most", 0, 1, "a share from 0 to 1, such as 0.9"),
            minimum=integer(minimum, "Throttle minimum", 0, "how many calls, 0 or more"),
            on=on,
            until=until,
            shares=None if self._shares is None else self._shares.shares,
            priority=priority,
            name=name,
            random=random,
        )
        self._failures = FailureFilter(on, "Throttle", until)
        methods(random, "random", ("random",))
        self.name = name
        self._requests = RequestWindow(self.settings.window)
        self._demand = ClassDemand(self.settings.window)
        self.register("limits")

    def admit(self, now: float, /) -> None:
        """Admit a call, or raise `Rejected`."""
        # A call by a signal handler that interrupted the counting of another call is admitted.
        if self._requests.limiting and not self._owned_by_this_thread():
            self._admit_class(None, now)

    def _admit_class(self, returned: object, now: float) -> None:
        """Admit a call whose function of the arguments has returned this, or raise `Rejected`."""
        name = None if self._shares is None else self._shares.class_by(returned)
        draw = self.settings.random.random()  # outside the lock, because it may be the user's code
        share = self._run_exclusively(self._share_if_rejected, draw, now, name)
        if share:
            calls = f"the calls of class {name}" if self._shares is not None and name else "the calls"
            rejected = f"{share:.0%} of {calls} are rejected here"
            message = f"{self._title('throttle')} is on: {rejected}, because the service accepts too few"
            raise emit_rejected(Rejected(message), "throttle", self.name)

    def _acquire_admission(self, admission: Admission) -> None:
        if self._shares is None or type(self).admit is not Throttle.admit:
            super()._acquire_admission(admission)
        else:
            self._admit_call(admission.per_call)
            admission.entered = True

    def _share_if_rejected(self, draw: float, now: float, name: str | None) -> float:
        """Count the call and return the share of rejected calls, if the draw is below it; else return 0."""
        self._requests.advance(now)
        share, shares = self.settings.rejected_share(*self._requests.totals()), self._shares
        if shares is not None:
            name = name if name in shares.shares else None
            self._demand.add(name, now)
            share = self._demand.rejected(shares.shares, share)[name]
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
        """Return the ``share`` of calls that is rejected, and the numbers of ``requests`` and ``accepts``.

        With shares also the rejected share of each class, such as ``share.batch``.
        """
        self._advance_window()
        return self._run_now(self._snapshot)

    def _snapshot(self) -> Mapping[str, float]:
        requests, accepts = self._requests.totals()
        share, shares = self.settings.rejected_share(requests, accepts), self._shares
        state = {"share": share, "requests": requests, "accepts": accepts}
        if shares is not None:
            rejected = self._demand.rejected(shares.shares, share)
            state |= {f"share.{name}": rejected[name] for name in shares.shares}
        return state

    def _wrapper(self, *, is_async: bool) -> Wrapper:
        templates = JUDGING_WRAPPER if self._judges else COUNTING_WRAPPER
        if self._per_call is not None:
            templates = JUDGING_BY_CLASS if self._judges else COUNTING_BY_CLASS
        return templates[gil.enabled], {
            **self._rule_names(),
            "counter": self._requests,
            "enter": self._aenter if is_async else self._enter,
            "advance_window": self._advance_window,
        }

    def _enter(self, returned: object = None) -> None:
        self._admit_call(returned)

    async def _aenter(self, returned: object = None) -> None:
        self._admit_call(returned)

    def _admit_call(self, returned: object) -> None:
        if self._shares is None:
            self.admit(SYSTEM.now())
        elif self._requests.limiting and not self._owned_by_this_thread():
            self._admit_class(returned, SYSTEM.now())

    def _advance_window(self) -> None:
        self._run_exclusively(self._advance, SYSTEM.now())

    def _advance(self, now: float) -> None:
        self._requests.advance(now)
        if self._shares is not None:
            self._demand.advance(now)

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True unless the window differs, or decorated functions would have to change.

        They would, if only one had shares, or another function as ``priority``.
        """
        own, new = self.settings, other.settings
        same_options = (own.shares is None) == (new.shares is None)
        return same_options and own.window == new.window and same_function(self._shares, other._shares)

    def reconfigure(self, other: Self, /) -> None:
        """Apply the settings of another throttle; the calls in the window stay."""
        self._shares = other._shares
        self.settings = replace(other.settings, name=self.name)
        self._run_exclusively(self._adopt_rules, other._failures)

    def describe(self) -> str:
        settings = self.settings
        guaranteed = "" if self._shares is None else f", {describe_shares(self._shares)}"
        most = f"at most {settings.k:g} calls for each one accepted in {format_seconds(settings.window)}"
        return most + guaranteed + self._failures.description

    def traits(self) -> Traits:
        return Traits(handles=self.settings.on, shared=(self,))

    def __repr__(self) -> str:
        return self._repr(f"{self.settings.k:g}", f"window={self.settings.window:g}", shares=self._shares)
