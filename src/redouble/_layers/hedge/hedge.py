"""Hedge: repeat a slow call beside the first one and use the first acceptable outcome.

`Race` decides which attempt wins; `LatencyHistogram` and `HedgeQuota` decide when an extra call may start.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import cache, partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, cast

from redouble._drivers.opened_stream import AsyncSource, StreamOwner
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.budgets.budget_protocol import Budget, traits_of
from redouble._engine.worker import Worker, check_worker, describe_worker
from redouble._failures.transient import transient
from redouble._failures.verdict import FailureFilter, Kind, On, Until, Verdict
from redouble._internal.callables import callable_kind, display_name
from redouble._internal.codegen import compile_wrapper, gil_variants
from redouble._internal.locks import ForkSafe, gil
from redouble._internal.logger import call_hook
from redouble._internal.public import public
from redouble._internal.validation import (
    Duration,
    format_seconds,
    instance,
    integer,
    methods,
    number,
    seconds,
    signature_mismatch,
)
from redouble._layers.analysis import BlockingWorstCase, NoBlockingCode, Traits, WorstCase, combined_traits
from redouble._layers.hedge.different import (
    Different,
    Operation,
    as_different,
    check_different,
    describe_different,
)
from redouble._layers.hedge.first_item import StartedAsyncStream, StartedStream, aopen_stream, open_stream
from redouble._layers.hedge.latency import SHORTEST, LatencyHistogram
from redouble._layers.hedge.quota import HedgeQuota
from redouble._layers.hedge.race import FIRST, AsyncHedgedCall, Race
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import SYSTEM, WRAPPER_CLOCK
from redouble._telemetry.emit import emit_layer
from redouble._telemetry.observers import watch

if TYPE_CHECKING:
    from redouble._engine.budgets.retries_in_flight import CallInFlight
    from redouble._layers.hedge.race_workers import WorkerRace

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

CUT = Verdict.stop(kind=Kind.timeout)  # stands for a cancellation
COUNT = "    redouble_quota.calls += 1\n"
FIXED = gil_variants(
    "hedge",
    """\
{async_}def hedged({parameters}):
    redouble_quota.calls += 1
    return {await_}redouble_run_race(
        redouble_owner, redouble_latencies.threshold, redouble_fn, ({positional}), {{{keywords}}}
    )
""",
    COUNT,
)
WHILE_UNKNOWN = """\
        if redouble_delay is None:
            redouble_result = await redouble_fn({arguments})
        else:
            redouble_result = await redouble_run_race(
                redouble_owner, redouble_delay, redouble_fn, ({positional}), {{{keywords}}}
            )
"""
ALWAYS = """\
        redouble_result = {await_}redouble_run_race(
            redouble_owner, redouble_delay, redouble_fn, ({positional}), {{{keywords}}}
        )
"""
MEASURED = gil_variants(
    "hedge",
    f"""\
{{async_}}def hedged({{parameters}}):
    redouble_quota.calls += 1
    redouble_latencies.skip -= 1
    redouble_start = None
    if redouble_latencies.skip <= 0:
        redouble_start = redouble_system() if redouble_ambient else redouble_now()
    redouble_delay = redouble_latencies.threshold
    try:
{WHILE_UNKNOWN}\
    except redouble_BaseException as redouble_error:
        if redouble_start is not None:
            redouble_owner._record_cut(redouble_error, redouble_start)
        raise
    if redouble_start is not None:
        redouble_moment = redouble_system() if redouble_ambient else redouble_now()
        redouble_record(redouble_moment - redouble_start, redouble_moment)
    return redouble_result
""",
    COUNT,
)
# A race also before there is a delay: a failure may start an attempt, and blocking code needs a worker.
RACING = {
    enabled: template.derive("hedge", (WHILE_UNKNOWN, ALWAYS)) for enabled, template in MEASURED.items()
}


@dataclass(frozen=True, slots=True)
class HedgeSettings:
    """The validated options of a `Hedge`."""

    delay: object
    max_extra_load: float | None
    hedges: int
    failover: bool
    on: On
    until: Until | None
    different: object
    minimum: int | None
    shortest: float
    longest: float | None
    worker: Worker | None
    budget: Budget | None
    name: str | None

    @property
    def is_planned(self) -> bool:
        """True if each extra attempt has a delay of its own."""
        return self.delays is not None or callable(self.delay)

    @property
    def delays(self) -> tuple[float, ...] | None:
        """The delay of each extra attempt, if ``delay`` is a list."""
        delay: Any = self.delay
        return delay if isinstance(delay, tuple) else None  # pyright: ignore[reportUnknownVariableType]

    @property
    def first_delay(self) -> float | None:
        """The delay of the first extra attempt; None if it is measured, or if a function computes it."""
        if isinstance(self.delay, float):
            return self.delay
        return None if self.delays is None else self.delays[0]


@public("redouble")
class Hedge(ForkSafe, Layer):
    """Repeat a slow call beside the first: the first acceptable outcome wins, the others are cancelled.

    For functions that may be called twice at once, such as those that only read. An async generator is hedged
    up to its first item. A blocking function needs a ``worker`` to run on.

    delay: how many seconds a call may take before an extra call starts. None: measured, as the time that
        all but the slowest ``max_extra_load`` of the calls take; nothing is hedged before there were enough
        calls to measure. If more calls than that are slow, set a larger load, or the delay. A list has a
        delay for each extra call, counted from the start of the one before; the last is repeated. A function
        is passed the number of the extra call, from 1, and returns its delay, or None for no such call.
    max_extra_load: how many extra calls there may be, as a share of all calls: at most that share plus one.
        None is no limit, and then ``delay`` is required.
    hedges: how many extra calls one call may start, each a ``delay`` after the one before.
    failover: True to start the next extra call at once when a call fails, or its result is refused.
    on: errors that do not end the race: another attempt may still win. Any other error wins at once.
    until: a rule for results, as in `Retry`: a result that it refuses does not win while others are running.
    different: what the extra calls do instead: a function with the same arguments, or a mapping of arguments
        that differ, such as ``{"region": "eu"}``; or a list with one for each, of which the last is repeated.
    minimum: from how many calls on the measured delay is used; None: so many that ``max_extra_load`` of them
        is a call, and at least 20.
    shortest, longest: the bounds of the measured delay.
    worker: where blocking functions run. An attempt that has lost is told by `redouble.cancelled`.
    budget: a budget that may be shared, such as that of a `Retry`: each extra call spends from it.
    name: its name in metrics.

    If all attempts fail, the error of the first one is raised. A call that may not be hedged just continues.
    """

    _kept_by_wrapper = True

    def __init__(
        self,
        delay: Duration | Sequence[Duration] | Callable[[int], Duration | None] | None = None,
        max_extra_load: float | None = 0.02,
        *,
        hedges: int = 1,
        failover: bool = False,
        on: On = Exception,
        until: Until | None = None,
        different: Different | Sequence[Different] | None = None,
        minimum: int | None = None,
        shortest: Duration = SHORTEST,
        longest: Duration | None = None,
        worker: Worker | None = None,
        budget: Budget | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        integer(hedges, "Hedge hedges", 1, "how many extra calls, 1 or more")
        share = max_extra_load
        if share is not None:
            wanted = f"a share of the calls above 0, up to {hedges}, such as 0.02 for 2 %"
            share = number(share, "Hedge max_extra_load", 1e-6, hedges, wanted)
        elif delay is None:
            raise ValueError(
                "Hedge(max_extra_load=None): without a limit of the load, write delay=, in seconds"
            )
        instance(failover, "Hedge failover", bool, "True or False")
        if worker is not None:
            check_worker(worker, "Hedge worker")
        if budget is not None:
            methods(budget, "budget", ("spend", "refund"))
        self.settings = HedgeSettings(
            checked_delay(delay, hedges),
            share,
            hedges,
            failover,
            on,
            until,
            different,
            *checked_bounds(minimum, shortest, longest, is_measured=delay is None),
            worker,
            budget,
            name,
        )
        self.name = name
        self._failures = FailureFilter(on, "Hedge", until)
        self._others = as_different(different, hedges)
        self._quota = HedgeQuota(share)
        self._latencies = self._new_latencies()
        self._hedged = self._won = self._suppressed = 0
        self.register("layers")

    def _new_latencies(self) -> LatencyHistogram:
        settings = self.settings
        latencies = LatencyHistogram(
            min(settings.max_extra_load or 0.0, 1.0),
            SYSTEM.now(),
            minimum=settings.minimum,
            shortest=settings.shortest,
            longest=inf if settings.longest is None else settings.longest,
        )
        latencies.threshold = settings.first_delay
        return latencies

    def snapshot(self) -> Mapping[str, float | None]:
        """Return the ``delay`` (None: not known yet), and how many ``calls`` there were.

        Also how many extra calls were started (``hedged``), how many of them ``won``, and how many were
        ``suppressed`` by the quota or the budget.
        """
        return {
            "delay": self._latencies.threshold,
            "calls": self._quota.calls,
            "hedged": self._hedged,
            "won": self._won,
            "suppressed": self._suppressed,
        }

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` hedged, on workers."""
        self._require_worker(fn, "blocks")
        check_different(self._others, fn, "plain")
        return self._compile(fn, run_race_on_workers)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` hedged, for a coroutine function."""
        check_different(self._others, fn, "coroutine")
        settings = self.settings
        is_special = settings.failover or settings.is_planned
        return self._compile(fn, run_special_race if is_special else run_race, is_async=True)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` hedged up to its first item, on workers, for a generator function."""
        self._require_worker(fn, "is a generator that blocks")
        check_different(self._others, fn, "generator")
        opened = self._compile(open_stream, partial(run_race_on_workers, is_stream=True))

        def hedged(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            stream: StartedStream = opened(partial(fn, *args, **kwargs))
            return stream.value if stream.is_empty else (yield from stream)

        return hedged

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` hedged up to its first item, for an async generator function."""
        check_different(self._others, fn, "async generator")
        opened = self._compile(aopen_stream, partial(run_special_race, is_stream=True), is_async=True)

        async def aopen(make: Callable[[], AsyncGenerator[T, S]]) -> tuple[AsyncSource[T], Any]:
            stream: StartedAsyncStream = await opened(make)
            return stream.source, stream.item

        return wrap_stream(fn, lambda make: StreamOwner(partial(aopen, make)))

    def _compile(
        self, fn: Callable[..., Any], run: Callable[..., Any], *, is_async: bool = False
    ) -> Callable[..., Any]:
        """Return the wrapper of a function; ``run`` runs the race of a call."""
        measured = MEASURED if run is run_race else RACING
        return compile_wrapper(
            fn,
            (measured if self.settings.delay is None else FIXED)[gil.enabled],
            is_async=is_async,
            owner=self,
            quota=self._quota,
            latencies=self._latencies,
            record=self._latencies.record if gil.enabled else self._record,
            BaseException=BaseException,
            **WRAPPER_CLOCK,
            run_race=run,
        )

    def _require_worker(self, fn: object, kind: str) -> None:
        if self.settings.worker is None:
            raise TypeError(
                f"Hedge runs attempts side by side, and {display_name(fn)} {kind}: write "
                "Hedge(worker=Worker()) to run it on threads, or an async function"
            )

    # ------------------------------------------------------------- called by the races of its calls

    def _allow_attempt(self) -> CallInFlight | bool:
        """Return True if the quota and the budget allow an extra call; count it as hedged or suppressed.

        If the budget limits the retries in flight, return what has to end with the extra call.
        """
        with self._lock:
            allowed: CallInFlight | bool = self._quota.spend()
            if allowed:
                allowed = self._budget_grants()
                if not allowed:
                    self._quota.refund()
            self._hedged += bool(allowed)
            self._suppressed += not allowed
        return allowed

    def _outcome(self, race: Race, started_at: float | None, /) -> Any:
        """Return the result of a decided race, or raise its error; count a win of an extra call."""
        winner = race.winner
        if winner is not None and winner != FIRST:
            with self._lock:
                self._won += 1
            if watch.by_event["hedge_won"]:
                elapsed = SYSTEM.now() - (started_at or 0.0)
                emit_layer("hedge_won", "hedge", self.name, attempt=winner, elapsed=elapsed)
        return race.outcome()

    def _plan(self) -> Sequence[float | None] | None:
        """Return the delay before each extra call of one call, or None if it is always the same one.

        What the function of the caller raises comes out to the caller, before anything is called.
        """
        settings = self.settings
        if not callable(settings.delay):
            return settings.delays
        found = map(settings.delay, range(1, settings.hedges + 1))
        return [None if delay is None else seconds(delay, "Hedge delay") for delay in found]

    def _record_cut(self, error: BaseException, start: float) -> None:
        """Record a call that was cancelled or timed out as one that took at least as long as it did."""
        verdict = transient(error) if isinstance(error, Exception) else CUT
        if verdict is None or verdict.kind is not Kind.timeout:
            return
        now = SYSTEM.now()
        with self._lock:
            self._latencies.record_cut(now - start, now)

    def _record(self, seconds: float, now: float) -> None:
        """Record the latency of a call, under the lock."""
        with self._lock:
            self._latencies.record(seconds, now)

    def _budget_grants(self) -> CallInFlight | bool:
        budget, now = self.settings.budget, SYSTEM.now()
        if budget is None:
            return True
        in_flight = traits_of(budget).in_flight
        extra = None if in_flight is None else in_flight.call(counted=False)
        if extra is not None and not extra.begin_retry():
            return False
        grant = call_hook(budget, "spend", Kind.unknown, now)
        if grant is not None and not grant.wait:
            return extra or True
        if grant is not None:  # a hedge cannot wait
            call_hook(budget, "refund", grant, now)
        if extra is not None:
            extra.end_retry()
        return False

    # ----------------------------------------------------------------------------------- hooks

    def can_reconfigure(self, other: Self, /) -> bool:
        """Return True unless functions that are wrapped already would have to be wrapped otherwise."""
        mine, new = self.settings, other.settings
        return all(
            (
                (mine.delay is None) is (new.delay is None),
                mine.is_planned is new.is_planned,
                mine.failover is new.failover,
                (mine.worker is None) is (new.worker is None),
                mine.different == new.different,
            )
        )

    def reconfigure(self, other: Self, /) -> None:
        """Adopt the settings of ``other``, and keep the latencies, the quota and the counts."""
        with self._lock:
            self._failures = other._failures
            self._quota.reconfigure(other.settings.max_extra_load)
            self._latencies.reconfigure(other._latencies)
            if other.settings.delay is not None:
                self._latencies.threshold = other.settings.first_delay
            self.settings = replace(other.settings, name=self.name)

    def describe(self) -> str:
        settings = self.settings
        delay, load, hedges = settings.delay, settings.max_extra_load, settings.hedges
        if isinstance(delay, float):
            late = f"takes over {format_seconds(delay)}"
        elif settings.delays is not None:
            late = f"takes over {' + '.join(map(format_seconds, settings.delays))}"
        else:
            late = "takes longer than a function says"
        if delay is None:
            least = "" if settings.shortest == SHORTEST else f", at least {format_seconds(settings.shortest)}"
            longest = "" if settings.longest is None else f", at most {format_seconds(settings.longest)}"
            late = f"takes longer than most{least}{longest}"
        most = "" if load is None else f", for {100 * load:.3g} % of the calls at most"
        more = "once more" if hedges == 1 else f"up to {hedges} times more"
        if settings.different is not None:
            more += f", {', then '.join(map(describe_different, self._others))},"
        fails = "fails or " if settings.failover else ""
        workers = "" if settings.worker is None else describe_worker(settings.worker)
        return f"{more} if it {fails}{late}{most}{workers}{self._failures.description}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        settings = self.settings
        delay, hedges = settings.delay, settings.hedges
        if settings.delays is not None:
            later = sum(settings.delays)
        elif isinstance(delay, float):
            later = hedges * delay
        else:  # an extra attempt starts when the one before has ended, or earlier
            longest = inf if settings.longest is None or settings.failover else settings.longest
            later = hedges * min(inner.seconds, longest)
        more = inner._replace(calls=inner.calls * (1 + hedges), seconds=inner.seconds + later)
        if settings.worker is not None:
            return more._replace(seconds=more.seconds + settings.worker._grace)
        return NoBlockingCode(*more) if isinstance(inner, BlockingWorstCase) else more

    def traits(self) -> Traits:
        return Traits(concurrent=True, shared=(self,))

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        if combined_traits(inner).retries:
            yield (
                "Hedge outside Retry: a call that is slow because it retries is made a second time, and the "
                "second call retries too; put it inside"
            )
        around, delay = combined_traits(outer), self._latencies.threshold
        limit = min(around.time_limit, around.each_call_limit)
        is_fixed = self.settings.delay is not None and not self.settings.failover
        if is_fixed and delay is not None and limit <= delay:
            yield (
                f"Hedge(delay={delay:g}) inside a limit of {format_seconds(limit)}: the limit is always "
                "reached before the delay, so no call is ever hedged"
            )

    def __repr__(self) -> str:
        settings = self.settings
        delay = settings.delay if settings.delays is None else list(settings.delays)
        return self._repr(
            f"delay={display_name(delay) if callable(delay) else delay}",
            f"max_extra_load={settings.max_extra_load}",
            hedges=None if settings.hedges == 1 else settings.hedges,
            failover=settings.failover or None,
            minimum=settings.minimum,
            shortest=None if settings.shortest == SHORTEST else settings.shortest,
            longest=settings.longest,
            worker=settings.worker,
        )


def checked_delay(delay: Any, hedges: int) -> Any:
    """Validate the option ``delay``: seconds, a tuple of them for all extra calls, a function, or None."""
    if isinstance(delay, list | tuple):
        delays = [seconds(each, "Hedge delay") for each in cast("Sequence[object]", delay)]
        if not 1 <= len(delays) <= hedges:
            raise ValueError(
                f"Hedge delay={delay!r} has {len(delays)} entries, and hedges={hedges}: write as many or "
                "fewer (the last one is repeated), or more hedges"
            )
        return (*delays, *delays[-1:] * (hedges - len(delays)))
    if callable(delay):
        if callable_kind(delay) != "plain":
            raise TypeError("write @Hedge(), with brackets: it is no decorator without them")
        if (signature := signature_mismatch(delay, 1)) is not None:
            raise TypeError(
                f"Hedge delay={display_name(delay)} takes {signature}: write a function of the number of the "
                "extra call. If this was meant as a decorator, write @Hedge(), with brackets"
            )
        return delay
    return None if delay is None else seconds(delay, "Hedge delay")


def checked_bounds(
    minimum: int | None, shortest: Duration, longest: Duration | None, *, is_measured: bool
) -> tuple[int | None, float, float | None]:
    """Validate the options of a measured delay, which a given one excludes."""
    if minimum is not None:
        integer(minimum, "Hedge minimum", 1, "from how many calls on the measured delay is used, 1 or more")
    least = seconds(shortest, "Hedge shortest")
    most = None if longest is None else seconds(longest, "Hedge longest")
    if most is not None and most < least:
        raise ValueError(f"Hedge longest={longest!r} is less than shortest={shortest!r}")
    if not is_measured and (minimum, least, most) != (None, SHORTEST, None):
        raise ValueError("Hedge minimum, shortest and longest are for a measured delay: leave out delay=")
    return minimum, least, most


def run_race(
    hedge: Hedge, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    if "trio" in modules and under_trio():
        from redouble._layers.hedge.race_trio import RaceNurseryTask  # noqa: PLC0415  Trio is running

        return RaceNurseryTask(hedge, delay, fn, args, kwargs).run()
    return _race_task()(hedge, delay, fn, args, kwargs).run()


def run_special_race(
    hedge: Hedge,
    delay: float | None,
    fn: Operation,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_stream: bool = False,
) -> Coroutine[Any, Any, Any]:
    """Do the same for a hedge with `failover` or a delay per attempt, and for a stream."""
    plan = hedge._plan()
    call: AsyncHedgedCall
    if "trio" in modules and under_trio():
        from redouble._layers.hedge.race_trio import RaceNurseryTask  # noqa: PLC0415  Trio is running

        call = RaceNurseryTask(hedge, delay, fn, args, kwargs)
    else:
        call = _race_task(is_special=True)(hedge, delay, fn, args, kwargs)
    call.plan(plan, is_stream=is_stream)
    return call.run()


def run_race_on_workers(
    hedge: Hedge,
    delay: float | None,
    fn: Operation,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    is_stream: bool = False,
) -> Any:
    """Do the same for blocking code."""
    call = _worker_race()(hedge, delay, fn, args, kwargs)
    call.plan(hedge._plan(), is_stream=is_stream)
    return call.run()


@cache  # an import statement for each call would cost time
def _race_task(*, is_special: bool = False) -> Callable[..., AsyncHedgedCall]:
    from redouble._layers.hedge.race_asyncio import RaceTask, SpecialRaceTask  # noqa: PLC0415  only if async

    return SpecialRaceTask if is_special else RaceTask


@cache
def _worker_race() -> type[WorkerRace]:
    from redouble._layers.hedge.race_workers import WorkerRace  # noqa: PLC0415  only if it runs blocking code

    return WorkerRace
