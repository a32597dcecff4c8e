"""Hedge: repeat a slow call beside the first one and use the first acceptable outcome.

`HedgeState` decides when an extra call may start, and `Race` which attempt wins.
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
from functools import cache, partial
from math import inf
from sys import modules
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from redouble._drivers.opened_stream import AsyncSource, StreamOwner
from redouble._drivers.stream_function import wrap_stream
from redouble._engine.budgets.budget_protocol import Budget
from redouble._engine.worker import Worker, check_worker, describe_worker
from redouble._failures.verdict import FailureFilter, On, Until
from redouble._internal.callables import display_name
from redouble._internal.codegen import compile_wrapper, gil_variants
from redouble._internal.locks import SharedByIdentity, gil
from redouble._internal.public import public
from redouble._internal.validation import (
    Duration,
    format_seconds,
    instance,
    integer,
    methods,
    number,
)
from redouble._layers.analysis import BlockingWorstCase, NoBlockingCode, Traits, WorstCase, combined_traits
from redouble._layers.hedge.extra_calls import (
    Call,
    Different,
    as_different,
    check_different,
    describe_different,
)
from redouble._layers.hedge.latency import SHORTEST
from redouble._layers.hedge.race import AsyncHedgedCall
from redouble._layers.hedge.settings import HedgeSettings, checked_bounds, checked_delay
from redouble._layers.hedge.shared_state import HedgeState
from redouble._layers.hedge.started_stream import StartedAsyncStream, StartedStream, aopen_stream, open_stream
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import WRAPPER_CLOCK

if TYPE_CHECKING:
    from redouble._layers.hedge.race_workers import WorkerRace

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

COUNT = "    redouble_quota.calls += 1\n"
FIXED = gil_variants(
    "hedge",
    """\
{async_}def hedged({parameters}):
    redouble_quota.calls += 1
    return {await_}redouble_run_race(
        redouble_owner, redouble_latencies.threshold, (redouble_fn, ({positional}), {{{keywords}}})
    )
""",
    COUNT,
)
WHILE_UNKNOWN = """\
        if redouble_delay is None:
            redouble_result = await redouble_fn({arguments})
        else:
            redouble_result = await redouble_run_race(
                redouble_owner, redouble_delay, (redouble_fn, ({positional}), {{{keywords}}})
            )
"""
ALWAYS = """\
        redouble_result = {await_}redouble_run_race(
            redouble_owner, redouble_delay, (redouble_fn, ({positional}), {{{keywords}}})
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
            redouble_owner.record_cut(redouble_error, redouble_start)
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


@public("redouble")
class Hedge(SharedByIdentity, Layer):
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
    worker: where blocking functions run. In an attempt that has lost, `redouble.cancelled()` is True.
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
        minimum, shortest, longest = checked_bounds(minimum, shortest, longest, is_measured=delay is None)
        settings = HedgeSettings(
            delay=checked_delay(delay, hedges),
            max_extra_load=share,
            hedges=hedges,
            failover=failover,
            on=on,
            until=until,
            different=different,
            minimum=minimum,
            shortest=shortest,
            longest=longest,
            worker=worker,
            budget=budget,
            name=name,
        )
        self.name = name
        self._state = HedgeState(settings, FailureFilter(on, "Hedge", until), as_different(different, hedges))
        self.register("layers")

    @property
    def settings(self) -> HedgeSettings:
        """The validated options."""
        return self._state.settings

    def snapshot(self) -> Mapping[str, float | None]:
        """Return the ``delay`` (None: not known yet), and how many ``calls`` there were.

        Also how many extra calls were started (``hedged``), how many of them ``won``, and how many were
        ``suppressed`` by the quota or the budget.
        """
        return self._state.snapshot()

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        """Return ``fn`` hedged, on workers."""
        self._require_worker(fn, "blocks")
        check_different(self._state.others, fn, "plain")
        return self._compile(fn, run_race_on_workers)

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` hedged, for a coroutine function."""
        check_different(self._state.others, fn, "coroutine")
        settings = self.settings
        is_scheduled = settings.failover or settings.is_planned
        return self._compile(fn, run_scheduled_race if is_scheduled else run_race, is_async=True)

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        """Return ``fn`` hedged up to its first item, on workers, for a generator function."""
        self._require_worker(fn, "is a generator that blocks")
        check_different(self._state.others, fn, "generator")
        opened = self._compile(open_stream, partial(run_race_on_workers, is_stream=True))

        def hedged(*args: P.args, **kwargs: P.kwargs) -> Generator[T, S, Any]:
            stream: StartedStream = opened(partial(fn, *args, **kwargs))
            return stream.value if stream.is_empty else (yield from stream)

        return hedged

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        """Return ``fn`` hedged up to its first item, for an async generator function."""
        check_different(self._state.others, fn, "async generator")
        opened = self._compile(aopen_stream, partial(run_scheduled_race, is_stream=True), is_async=True)

        async def aopen(make: Callable[[], AsyncGenerator[T, S]]) -> tuple[AsyncSource[T], Any]:
            stream: StartedAsyncStream = await opened(make)
            return stream.source, stream.item

        return wrap_stream(fn, lambda make: StreamOwner(partial(aopen, make)))

    def _compile(
        self, fn: Callable[..., Any], run: Callable[..., Any], *, is_async: bool = False
    ) -> Callable[..., Any]:
        """Return the wrapper of a function; ``run`` runs the race of a call."""
        measured, state = MEASURED if run is run_race else RACING, self._state
        return compile_wrapper(
            fn,
            (measured if self.settings.delay is None else FIXED)[gil.enabled],
            is_async=is_async,
            layer=self,  # which the wrapper keeps alive
            owner=state,
            quota=state.quota,
            latencies=state.latencies,
            record=state.latencies.record if gil.enabled else state.record,
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
        self._state.reconfigure(other._state)

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
            more += f", {', then '.join(map(describe_different, self._state.others))},"
        fails = "fails or " if settings.failover else ""
        workers = "" if settings.worker is None else describe_worker(settings.worker)
        return f"{more} if it {fails}{late}{most}{workers}{self._state.failures.description}"

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
        around, delay = combined_traits(outer), self._state.latencies.threshold
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


def run_race(state: HedgeState, delay: float, call: Call) -> Coroutine[Any, Any, Any]:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    if "trio" in modules and under_trio():
        from redouble._layers.hedge.race_trio import RaceNurseryTask  # noqa: PLC0415  Trio is running

        return RaceNurseryTask(state, delay, call).run()
    return _race_task()(state, delay, call).run()


def run_scheduled_race(
    state: HedgeState, delay: float | None, call: Call, *, is_stream: bool = False
) -> Coroutine[Any, Any, Any]:
    """Do the same for a hedge with `failover` or a delay per attempt, and for a stream."""
    plan = state.delays()
    race: AsyncHedgedCall
    if "trio" in modules and under_trio():
        from redouble._layers.hedge.race_trio import RaceNurseryTask  # noqa: PLC0415  Trio is running

        race = RaceNurseryTask(state, delay, call)
    else:
        race = _race_task(scheduled=True)(state, delay, call)
    race.plan(plan, is_stream=is_stream)
    return race.run()


def run_race_on_workers(
    state: HedgeState, delay: float | None, call: Call, *, is_stream: bool = False
) -> Any:
    """Do the same for blocking code."""
    race = _worker_race()(state, delay, call)
    race.plan(state.delays(), is_stream=is_stream)
    return race.run()


@cache  # an import statement for each call would cost time
def _race_task(*, scheduled: bool = False) -> Callable[..., AsyncHedgedCall]:
    from redouble._layers.hedge.race_asyncio import RaceTask, ScheduledRaceTask  # noqa: PLC0415  only if async

    return ScheduledRaceTask if scheduled else RaceTask


@cache
def _worker_race() -> type[WorkerRace]:
    from redouble._layers.hedge.race_workers import WorkerRace  # noqa: PLC0415  only if it runs blocking code

    return WorkerRace
