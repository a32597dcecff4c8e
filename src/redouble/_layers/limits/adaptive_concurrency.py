"""AdaptiveConcurrency: a limit on concurrent calls that adapts to latency."""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, NoReturn, Self, get_args

from redouble._failures.transient import transient
from redouble._failures.verdict import FailureFilter, Kind, On, Until
from redouble._internal.locks import gil
from redouble._internal.public import public
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import Duration, choice, integer, methods
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.gate import Admission, JudgingGate, Wrapper, describe_others
from redouble._layers.layer import Layers
from redouble._layers.limits.in_flight import (
    JUDGING_LIMIT,
    JUDGING_RANKED,
    LIMIT_WRAPPER,
    RANKED_WRAPPER,
    InFlight,
    InFlightCall,
    QueuedCall,
)
from redouble._layers.limits.level_events import LevelEvents
from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Vegas
from redouble._layers.limits.limit_window import AdaptiveConcurrencySettings, By, WindowedLimit
from redouble._layers.limits.ranked_slots import ORDERS, Order, RankedSlots
from redouble._layers.limits.shares import (
    PriorityOption,
    describe_shares,
    same_function,
    shares_option,
)
from redouble._layers.limits.slot_gate import SlotGate, ranked_names
from redouble._runtime.clock import SYSTEM, Chance
from redouble._telemetry.emit import emit_rejected
from redouble._telemetry.observers import watch
from redouble.errors import BulkheadFull

WAIT = 1.0  # second: the default of ``wait``
TIMED_PER_WINDOW = 16  # calls that are timed in a window while few are in flight: they cannot raise the limit
MAX_TIMING_INTERVAL = 64  # the most calls from a timed one to the next
OVERLOAD_KINDS = (Kind.throttled, Kind.timeout)


def overloaded(error: Exception, /) -> bool | None:
    """Return True if an error is a sign of overload: the default of ``on``."""
    verdict = transient(error)
    return True if verdict is not None and verdict.kind in OVERLOAD_KINDS else None


@public("redouble")
class AdaptiveConcurrency(JudgingGate, SlotGate):
    """A limit on concurrent calls: as many as the service answers without queueing them.

    Calls beyond the limit wait in a queue, if there is one, and else raise `BulkheadFull` at once. The limit
    depends on latency: it grows while calls take no longer than they do when few are in flight, and shrinks
    when they take longer. It does not grow while fewer than half of it are in flight.

    initial, least, most: the first limit, the lowest and the highest.
    by: the algorithm: ``"gradient"`` uses the ratio of the shortest latency to the latest; ``"vegas"``
        estimates how many calls queue in the service; ``"aimd"`` uses failures alone, and adds one while
        there are none.
    window: the seconds of calls that each change of the limit is based on.
    on: the errors that are signs of overload and lower the limit: by default timeouts and throttling.
        Other errors do not change it.
    until: a function of the result, or a rule: a result that it does not accept lowers the limit too.
    queue: how many calls may wait for a slot; 0: none. The wait is not a part of their latency.
    wait: how many seconds a call waits at most; None: as long as it takes.
    order: which waiter is admitted first: see `Bulkhead`.
    shares, priority: guaranteed shares of the limit by class of call: see `Bulkhead`.
    slow: for ``"aimd"``, calls that take longer than this many seconds lower the limit too.
    relearn: the seconds between measurements of the latency with few calls in flight.
    name: the name of the limit in its errors.
    """

    _problem_outside_retry = "it mistakes the delays between attempts for a slow service"

    def __init__(
        self,
        initial: int = 20,
        least: int = 1,
        most: int = 1000,
        by: By = "gradient",
        window: Duration = 1,
        on: On = overloaded,
        *,
        until: Until | None = None,
        queue: int = 0,
        wait: Duration | None = WAIT,
        order: Order = "fifo",
        shares: Mapping[str, float] | None = None,
        priority: PriorityOption = None,
        slow: Duration = 5,
        relearn: Duration = 60,
        name: str | None = None,
        random: Chance = chance,
    ) -> None:
        if callable(initial):
            raise TypeError("write @AdaptiveConcurrency(), with brackets: it is no decorator without them")
        super().__init__()
        numbers = {"least": least, "initial": initial, "most": most}
        for option, value in numbers.items():
            integer(value, f"AdaptiveConcurrency {option}", 1, "how many calls at once, 1 or more")
        if not least <= initial <= most:
            raise ValueError(f"AdaptiveConcurrency {numbers}: write least <= initial <= most")
        choice(by, "AdaptiveConcurrency by", *get_args(By))
        durations = {"window": window, "slow": slow, "relearn": relearn}
        spans = {
            option: checked(given, f"AdaptiveConcurrency {option}") for option, given in durations.items()
        }
        if not all(spans.values()):
            raise ValueError(f"AdaptiveConcurrency {spans}: write more than 0 seconds")
        self._failures = FailureFilter(on, "AdaptiveConcurrency", until)
        methods(random, "random", ("random",))
        choice(order, "AdaptiveConcurrency order", *get_args(Order))
        self._shares = shares_option(shares, priority, "AdaptiveConcurrency")
        self._per_call = None if self._shares is None else self._shares.per_call
        self.settings = AdaptiveConcurrencySettings(
            initial=initial,
            least=least,
            most=most,
            by=by,
            on=on,
            until=until,
            queue=integer(queue, "AdaptiveConcurrency queue", 0, "how many calls may wait, 0 or more"),
            wait=None if wait is None else checked(wait, "AdaptiveConcurrency wait"),
            order=order,
            shares=None if self._shares is None else self._shares.shares,
            priority=priority,
            name=name,
            random=random,
            **spans,
        )
        self.name = name
        algorithms: dict[By, Callable[[], LimitAlgorithm]]
        algorithms = {"gradient": Gradient, "vegas": Vegas, "aimd": partial(Aimd, self.settings.slow)}
        self._window = WindowedLimit(self.settings, algorithms[by](), SYSTEM.now())
        self._in_flight = InFlight(initial)
        self._level = LevelEvents("adaptive_concurrency", initial)
        self._ranked: RankedSlots | None = None
        if self.settings.ranked:
            self._slots = self._ranked = self._new_ranked_slots(initial, self._shares, order)
        self.register("limits")

    @property
    def limit(self) -> int:
        """The current maximum number of concurrent calls."""
        return self._in_flight.limit

    @property
    def wait(self) -> float | None:
        """How many seconds a call waits for a slot; None for as long as it takes, 0 without a queue."""
        return self.settings.wait if self.settings.queue else 0

    @property
    def queue(self) -> int:
        """How many calls may wait at once."""
        return self.settings.queue

    def admit(self, now: float, /) -> InFlightCall | QueuedCall:
        """Admit a call without waiting, or raise `BulkheadFull`."""
        if self._ranked is not None:
            return self._admit_ranked(self._ranked, now)
        call = InFlightCall(self._in_flight, now)
        try:
            self._count_in(call)
        except BaseException:
            self._count_out(call)  # a signal handler that raises may have interrupted it
            raise
        return call

    def _admit_ranked(self, slots: RankedSlots, now: float) -> QueuedCall:
        call = QueuedCall(self._new_lease(None))
        try:
            if not slots.try_acquire(call.lease):
                self._acquire_now(call.lease, "and it does not wait")
            self._begin(call, now)
        except BaseException:
            slots.release(call.lease)
            raise
        return call

    def _begin(self, call: QueuedCall, now: float) -> None:
        """Record that a call was admitted."""
        call.concurrent, call.started = len(self._slots.leases), now

    def _acquire_admission(self, admission: Admission) -> None:
        if self._ranked is None:
            super()._acquire_admission(admission)
        else:
            ticket = self._new_call(admission)
            if not self._ranked.try_acquire(ticket.lease):
                self._enter(ticket.lease)
            self._begin(ticket, self.clock.now())

    async def _aacquire_admission(self, admission: Admission) -> None:
        if self._ranked is None:
            await super()._aacquire_admission(admission)
        else:
            ticket = self._new_call(admission)
            if not self._ranked.try_acquire(ticket.lease):
                await self._aenter(ticket.lease)
            self._begin(ticket, self.clock.now())

    def _new_call(self, admission: Admission) -> QueuedCall:
        # Set first: releasing a lease that was never admitted does no harm.
        admission.ticket, admission.entered = QueuedCall(self._new_lease(admission.per_call)), True
        ticket: QueuedCall = admission.ticket
        return ticket

    @try_from_start
    def ended(self, ticket: InFlightCall | QueuedCall, error: BaseException | None, now: float, /) -> None:
        try:
            self._leave(ticket)
        except BaseException:
            self._leave(ticket)  # a signal handler that raises may have interrupted it
            raise
        if ticket.started is None:
            return  # it was never admitted
        if error is None:
            self._record_success(ticket.started, ticket.concurrent, now)
        else:
            self._record_failure(error, ticket.concurrent, now)

    def _leave(self, ticket: InFlightCall | QueuedCall) -> None:
        if isinstance(ticket, QueuedCall):
            self._slots.release(ticket.lease)
        else:
            self._count_out(ticket)

    def _count_in(self, call: InFlightCall) -> None:
        in_flight = call.in_flight
        with self._lock:  # there is no call in this block, except one that raises
            if in_flight.count >= in_flight.limit:
                self._reject()
            in_flight.count += 1
            call.concurrent, call.counted = in_flight.count, True

    def _count_out(self, call: InFlightCall) -> None:
        with self._lock:  # there is no call in this block
            if call.counted:
                call.in_flight.count -= 1
                call.counted = False

    def snapshot(self) -> Mapping[str, float]:
        """Return the ``limit``, and how many calls are in flight (``in_use``).

        With a queue or shares also how many are ``queued``, and the numbers of each class.
        """
        in_flight, ranked = self._in_flight, self._ranked
        if ranked is None:
            return {"limit": in_flight.limit, "in_use": in_flight.count}
        in_use, queued = ranked.counts()
        return {"limit": in_flight.limit, "in_use": in_use, "queued": queued, **ranked.counts_by_class()}

    def _wrapper(self, *, is_async: bool) -> Wrapper:
        judges, ranked = self._judges, self._ranked
        names: dict[str, Any] = {
            "BaseException": BaseException,
            "record_success": self._record_success,
            "record_failure": self._record_failure,
            **self._rule_names(),
        }
        if ranked is None:
            names["reject"] = self._reject
            return (JUDGING_LIMIT if judges else LIMIT_WRAPPER)[gil.enabled], names
        names |= {"wait": self._aenter if is_async else self._enter, **ranked_names(ranked, self._shares)}
        by_argument = self._per_call is not None
        return (JUDGING_RANKED if judges else RANKED_WRAPPER)[gil.enabled, by_argument], names

    def _record_success(self, started: float, concurrent: int, now: float) -> None:
        in_flight, window = self._in_flight, self._window
        if window.since <= now < window.end and started <= now and gil.enabled:
            in_flight.skip = 0 if concurrent * 2 >= in_flight.limit else in_flight.timing_interval
            window.collect(now - started, concurrent, now)
        else:
            self._run_exclusively(self._record, max(0.0, now - started), concurrent, now, False)
            self._apply_limit()

    def _record_failure(self, error: BaseException | None, concurrent: int, now: float) -> None:
        if self._failures.is_failure(error):
            self._run_exclusively(self._record, None, concurrent, now, True)
            self._apply_limit()

    def _record(self, seconds: float | None, concurrent: int, now: float, dropped: bool) -> None:
        in_flight, window = self._in_flight, self._window
        in_flight.skip = 0 if concurrent * 2 >= in_flight.limit else in_flight.timing_interval
        calls = window.record(seconds, concurrent, now, dropped=dropped)
        if calls:
            interval = in_flight.timing_interval * calls // TIMED_PER_WINDOW
            in_flight.timing_interval = max(1, min(MAX_TIMING_INTERVAL, interval))
            in_flight.limit = window.limit

    def _apply_limit(self) -> None:
        """Admit waiters if the limit has grown, and emit that it has changed; not under the lock."""
        ranked = self._ranked
        # Until they are equal: the limit may change meanwhile, and this must not restore the one before.
        while ranked is not None and ranked.limit != self._in_flight.limit:
            ranked.resize(self._in_flight.limit)
        if watch.by_event["limit_changed"]:
            self._level.emit(self._in_flight.limit, self.name)

    def _reject(self, why: str = "") -> NoReturn:
        limit = self._in_flight.limit
        calls = "1 call is" if limit == 1 else f"{limit} calls are"
        title = self._title("adaptive limit")
        message = f"{title} is reached: {calls} in flight, as many as the service can handle"
        if why and self.queue:
            message += f", {why}"
        raise emit_rejected(
            BulkheadFull(message, limit=limit, wait=self.wait), "adaptive_concurrency", self.name
        )

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True if the algorithm is the same, and decorated functions need not change.

        They would, if only one had a queue or shares, or another function as ``priority``.
        """
        own, new = self.settings, other.settings
        return (
            own.ranked == new.ranked
            and (own.by, own.slow) == (new.by, new.slow)
            and same_function(self._shares, other._shares)
        )

    def reconfigure(self, other: Self, /) -> None:
        """Apply the settings of another limit; the learned limit stays, as far as the bounds allow it."""
        self._shares = other._shares
        self.settings = settings = replace(other.settings, name=self.name)
        self._run_exclusively(self._reconfigure, settings, other._failures)
        if self._ranked is not None:
            self._reconfigure_slots(self._in_flight.limit, self._shares, settings.order)
        self._apply_limit()

    def _reconfigure(self, settings: AdaptiveConcurrencySettings, failures: FailureFilter) -> None:
        self._adopt_rules(failures)
        self._window.reconfigure(settings)
        self._in_flight.limit = self._window.limit

    def describe(self) -> str:
        limit = f"as many at once as the service can handle, currently {self._in_flight.limit}"
        guaranteed = "" if self._shares is None else f", {describe_shares(self._shares)}"
        others = f", {describe_others(self.wait, ORDERS[self.settings.order])}" if self.queue else ""
        return f"{limit}{guaranteed}{others}{self._failures.description}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        return inner.after(inf if self.wait is None else self.wait) if self.queue else inner

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:
        yield from super().lint(outer, inner, worst)
        settings = self.settings
        if not settings.queue and (settings.wait not in (0, WAIT) or settings.order != "fifo"):
            problem = "AdaptiveConcurrency with a wait or an order, and without a queue: no call waits"
            yield f"{problem}; write queue=20"

    def traits(self) -> Traits:
        # The other algorithms depend on latency, not on errors.
        return Traits(handles=self.settings.on if self.settings.by == "aimd" else None, shared=(self,))

    def _after_fork(self) -> None:
        super()._after_fork()
        self._in_flight = InFlight(self._in_flight.limit)

    def __repr__(self) -> str:
        settings = self.settings
        order = None if settings.order == "fifo" else settings.order
        return self._repr(
            f"by={settings.by!r}",
            f"limit={self.limit}",
            queue=settings.queue or None,
            order=order,
            shares=self._shares,
        )
