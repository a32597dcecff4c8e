"""AdaptiveConcurrency: a limit on concurrent calls that adapts to latency.

A wrapper counts the calls in flight without a lock, if there is a GIL: between reading and writing the count
there must be no call, because another thread or a signal handler could run there.
"""

from __future__ import annotations

import random as chance
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn, get_args

from redouble._failures.transient import transient
from redouble._failures.verdict import FailureFilter, Kind, On
from redouble._internal.codegen import gil_variants
from redouble._internal.locks import gil
from redouble._internal.public import public
from redouble._internal.reentrancy import ReentrancySafe
from redouble._internal.shared_context_manager import try_from_start
from redouble._internal.validation import Duration, choice, integer, methods
from redouble._internal.validation import seconds as checked
from redouble._layers.analysis import Traits
from redouble._layers.gate import Gate, Wrapper
from redouble._layers.limits.limit_algorithms import Aimd, Gradient, LimitAlgorithm, Vegas
from redouble._layers.limits.limit_window import AdaptiveConcurrencySettings, By, WindowedLimit
from redouble._runtime.clock import SYSTEM, Chance
from redouble._telemetry.emit import emit_rejected
from redouble.errors import BulkheadFull


class InFlight:
    """The calls in flight and their limit. A forked child has a new one, without the parent's calls.

    skip: the number of calls that begin before the next timed one: ``timing_interval`` while fewer than half
        of the limit are in flight, else 0.
    """

    __slots__ = ("count", "limit", "skip", "timing_interval")  # faster than a dict, in each call

    def __init__(self, limit: int) -> None:
        self.limit, self.count, self.skip, self.timing_interval = limit, 0, 0, 1


class InFlightCall:
    """The ticket of a call; ``counted``: True while it is among the calls in flight."""

    __slots__ = ("concurrent", "counted", "in_flight", "started")

    def __init__(self, in_flight: InFlight, started: float) -> None:
        self.in_flight, self.started = in_flight, started
        self.concurrent, self.counted = 0, False


TIMED_PER_WINDOW = 16  # calls that are timed in a window while few are in flight: they cannot raise the limit
MAX_TIMING_INTERVAL = 64  # the most calls from a timed one to the next
OVERLOAD_KINDS = (Kind.throttled, Kind.timeout)

# Between reading and writing `count` there is no call, so that no other thread and no signal handler can run.
COUNT_IN = """\
    redouble_concurrent = redouble_in_flight.count
    if redouble_concurrent >= redouble_in_flight.limit:
        redouble_reject()
    redouble_in_flight.count = redouble_concurrent + 1
"""
COUNT_OUT = """\
        redouble_in_flight.count -= 1
"""
LIMIT_WRAPPER = gil_variants(
    "adaptive concurrency",
    f"""\
{{async_}}def limited({{parameters}}):
    redouble_in_flight = redouble_owner._in_flight
{COUNT_IN}\
    redouble_start = None
    try:
        redouble_in_flight.skip -= 1
        if redouble_in_flight.skip <= 0:
            redouble_start = redouble_system() if redouble_ambient else redouble_now()
        redouble_result = {{await_}}redouble_fn({{arguments}})
        {{check}}
    except redouble_BaseException:
        redouble_record_failure(redouble_exception(), redouble_concurrent + 1, redouble_system())
        raise
    finally:
{COUNT_OUT}\
    if redouble_start is not None:
        redouble_moment = redouble_system() if redouble_ambient else redouble_now()
        redouble_record_success(redouble_start, redouble_concurrent + 1, redouble_moment)
    return redouble_result
""",
    COUNT_IN,
    COUNT_OUT,
)


def overloaded(error: Exception, /) -> bool | None:
    """Return True if an error is a sign of overload: the default of ``on``."""
    verdict = transient(error)
    return True if verdict is not None and verdict.kind in OVERLOAD_KINDS else None


@public("redouble")
class AdaptiveConcurrency(ReentrancySafe, Gate):
    """A limit on concurrent calls: as many as the service answers without queueing them.

    Calls beyond the limit raise `BulkheadFull` at once. The limit depends on latency: it grows while calls
    take no longer than they do when few are in flight, and shrinks when they take longer. It does not grow
    while fewer than half of it are in flight.

    initial, least, most: the first limit, the lowest and the highest.
    by: the algorithm: ``"gradient"`` uses the ratio of the shortest latency to the latest; ``"vegas"``
        estimates how many calls queue in the service; ``"aimd"`` uses failures alone, and adds one while
        there are none.
    window: the seconds of calls that each change of the limit is based on.
    on: the errors that are signs of overload and lower the limit: by default timeouts and throttling.
        Other errors do not change it.
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
        self._overload_errors = FailureFilter(on, "AdaptiveConcurrency")
        methods(random, "random", ("random",))
        self.settings = AdaptiveConcurrencySettings(
            initial=initial, least=least, most=most, by=by, on=on, name=name, random=random, **spans
        )
        self.name = name
        algorithms: dict[By, Callable[[], LimitAlgorithm]]
        algorithms = {"gradient": Gradient, "vegas": Vegas, "aimd": partial(Aimd, self.settings.slow)}
        self._window = WindowedLimit(self.settings, algorithms[by](), SYSTEM.now())
        self._in_flight = InFlight(initial)
        self.register("limits")

    @property
    def limit(self) -> int:
        """The current maximum number of concurrent calls."""
        return self._in_flight.limit

    def admit(self, now: float, /) -> InFlightCall:
        """Admit a call, or raise `BulkheadFull`."""
        call = InFlightCall(self._in_flight, now)
        try:
            self._count_in(call)
        except BaseException:
            self._count_out(call)  # a signal handler that raises may have interrupted it
            raise
        return call

    @try_from_start
    def ended(self, ticket: InFlightCall, error: BaseException | None, now: float, /) -> None:
        try:
            self._count_out(ticket)
        except BaseException:
            self._count_out(ticket)  # a signal handler that raises may have interrupted it
            raise
        if error is None:
            self._record_success(ticket.started, ticket.concurrent, now)
        else:
            self._record_failure(error, ticket.concurrent, now)

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
        """Return the ``limit``, and how many calls are in flight (``in_use``)."""
        in_flight = self._in_flight
        return {"limit": in_flight.limit, "in_use": in_flight.count}

    def _wrapper(self, *, is_async: bool) -> Wrapper:  # noqa: ARG002
        return LIMIT_WRAPPER[gil.enabled], {
            "BaseException": BaseException,
            "reject": self._reject,
            "record_success": self._record_success,
            "record_failure": self._record_failure,
        }

    def _record_success(self, started: float, concurrent: int, now: float) -> None:
        in_flight, window = self._in_flight, self._window
        if window.since <= now < window.end and started <= now and gil.enabled:
            in_flight.skip = 0 if concurrent * 2 >= in_flight.limit else in_flight.timing_interval
            window.collect(now - started, concurrent, now)
        else:
            self._run_exclusively(self._record, max(0.0, now - started), concurrent, now, False)

    def _record_failure(self, error: BaseException | None, concurrent: int, now: float) -> None:
        if self._overload_errors.is_failure(error):
            self._run_exclusively(self._record, None, concurrent, now, True)

    def _record(self, seconds: float | None, concurrent: int, now: float, dropped: bool) -> None:
        in_flight, window = self._in_flight, self._window
        in_flight.skip = 0 if concurrent * 2 >= in_flight.limit else in_flight.timing_interval
        calls = window.record(seconds, concurrent, now, dropped=dropped)
        if calls:
            interval = in_flight.timing_interval * calls // TIMED_PER_WINDOW
            in_flight.timing_interval = max(1, min(MAX_TIMING_INTERVAL, interval))
            in_flight.limit = window.limit

    def _reject(self) -> NoReturn:
        limit = self._in_flight.limit
        calls = "1 call is" if limit == 1 else f"{limit} calls are"
        title = self._title("adaptive limit")
        message = f"{title} is reached: {calls} in flight, as many as the service can handle"
        raise emit_rejected(BulkheadFull(message, limit=limit, wait=0), "adaptive_concurrency", self.name)

    def describe(self) -> str:
        return f"as many at once as the service can handle, currently {self._in_flight.limit}"

    def traits(self) -> Traits:
        # The other algorithms depend on latency, not on errors.
        return Traits(handles=self.settings.on if self.settings.by == "aimd" else None, shared=(self,))

    def _after_fork(self) -> None:
        super()._after_fork()
        self._in_flight = InFlight(self._in_flight.limit)

    def __repr__(self) -> str:
        return self._repr(f"by={self.settings.by!r}", f"limit={self.limit}")
