"""Hedge: repeat a slow call beside the first one and use the first acceptable outcome.

`Race` decides which attempt wins; `LatencyHistogram` and `HedgeQuota` decide when an extra call may start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import isawaitable
from sys import modules
from typing import Any, NoReturn, ParamSpec, TypeVar

from redouble._engine.budgets.budget_protocol import Budget
from redouble._failures.verdict import FailureFilter, Kind, On, Until, check_until
from redouble._internal.callables import UsageError, callable_kind, display_name
from redouble._internal.codegen import compile_wrapper, gil_variants
from redouble._internal.locks import ForkSafe, gil
from redouble._internal.logger import call_hook
from redouble._internal.public import public
from redouble._internal.validation import Duration, format_seconds, integer, methods, number, seconds
from redouble._layers.analysis import BlockingWorstCase, NoBlockingCode, Traits, WorstCase, combined_traits
from redouble._layers.hedge.latency import LatencyHistogram
from redouble._layers.hedge.quota import HedgeQuota
from redouble._layers.hedge.race import FIRST, HedgedCall, Operation, Race
from redouble._layers.layer import AsyncGeneratorFunction, Layer, Layers
from redouble._runtime.backend import under_trio
from redouble._runtime.clock import SYSTEM, WRAPPER_CLOCK

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")

COUNT = "    redouble_quota.calls += 1\n"
FIXED = gil_variants(
    "hedge",
    """\
async def hedged({parameters}):
    redouble_quota.calls += 1
    return await redouble_run_race(
        redouble_owner, redouble_delay, redouble_fn, ({positional}), {{{keywords}}}
    )
""",
    COUNT,
)
MEASURED = gil_variants(
    "hedge",
    """\
async def hedged({parameters}):
    redouble_quota.calls += 1
    redouble_latencies.skip -= 1
    redouble_start = None
    if redouble_latencies.skip <= 0:
        redouble_start = redouble_system() if redouble_ambient else redouble_now()
    redouble_delay = redouble_latencies.threshold
    if redouble_delay is None:
        redouble_result = await redouble_fn({arguments})
    else:
        redouble_result = await redouble_run_race(
            redouble_owner, redouble_delay, redouble_fn, ({positional}), {{{keywords}}}
        )
    if redouble_start is not None:
        redouble_moment = redouble_system() if redouble_ambient else redouble_now()
        redouble_record(redouble_moment - redouble_start, redouble_moment)
    return redouble_result
""",
    COUNT,
)


@dataclass(frozen=True, slots=True)
class HedgeSettings:
    """The validated options of a `Hedge`."""

    delay: float | None
    max_extra_load: float | None
    hedges: int
    on: On
    until: Until | None
    different: Operation | None
    budget: Budget | None
    name: str | None


@public("redouble")
class Hedge(ForkSafe, Layer):
    """Repeat a slow call beside the first: the first acceptable outcome wins, the others are cancelled.

    For async functions that may be called twice at once, such as those that only read.

    delay: how many seconds a call may take before an extra call starts. None: measured, as the time that
        all but the slowest ``max_extra_load`` of the calls take; nothing is hedged before there were enough
        calls to measure. If more calls than that are slow, set a larger load, or the delay.
    max_extra_load: how many extra calls there may be, as a share of all calls: at most that share plus one.
        None is no limit, and then ``delay`` is required.
    hedges: how many extra calls one call may start, each a ``delay`` after the one before.
    on: errors that do not end the race: another attempt may still win. Any other error wins at once.
    until: a rule for results, as in `Retry`: a result that it refuses does not win while others are running.
    different: a function for the extra calls, with the same arguments: one for another host, for example.
    budget: a budget that may be shared, such as that of a `Retry`: each extra call spends from it.
    name: its name in metrics.

    If all attempts fail, the error of the first one is raised. A call that may not be hedged just continues.
    """

    _kept_by_wrapper = True

    def __init__(
        self,
        delay: Duration | None = None,
        max_extra_load: float | None = 0.02,
        *,
        hedges: int = 1,
        on: On = Exception,
        until: Until | None = None,
        different: Callable[..., Awaitable[Any]] | None = None,
        budget: Budget | None = None,
        name: str | None = None,
    ) -> None:
        if callable(delay):
            raise TypeError("write @Hedge(), with brackets: it is no decorator without them")
        super().__init__()
        delay = None if delay is None else seconds(delay, "Hedge delay")
        integer(hedges, "Hedge hedges", 1, "how many extra calls, 1 or more")
        share = max_extra_load
        if share is not None:
            wanted = f"a share of the calls above 0, up to {hedges}, such as 0.02 for 2 %"
            share = number(share, "Hedge max_extra_load", 1e-6, hedges, wanted)
        elif delay is None:
            raise ValueError(
                "Hedge(max_extra_load=None): without a limit of the load, write delay=, in seconds"
            )
        if until is not None:
            check_until(until)
        wrong = different is not None and callable_kind(different) not in ("plain", "coroutine")
        if wrong or (different is not None and not callable(different)):
            raise TypeError(f"Hedge different={different!r}: write an async function with the same arguments")
        if budget is not None:
            methods(budget, "budget", ("spend", "refund"))
        self.settings = HedgeSettings(delay, share, hedges, on, until, different, budget, name)
        self.name = name
        self._failures = FailureFilter(on, "Hedge")
        self._different = None if different is None else require_awaitable(different)
        self._quota = HedgeQuota(share)
        self._latencies = LatencyHistogram(min(share or 0.0, 1.0), SYSTEM.now())
        self._latencies.threshold = delay
        self._hedged = self._won = self._suppressed = 0
        self.register("layers")

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

    def around_async(self, fn: Callable[P, Awaitable[T]], /) -> Callable[P, Coroutine[Any, Any, T]]:
        """Return ``fn`` hedged, for a coroutine function."""
        return compile_wrapper(
            fn,
            (MEASURED if self.settings.delay is None else FIXED)[gil.enabled],
            is_async=True,
            owner=self,
            quota=self._quota,
            delay=self.settings.delay,
            latencies=self._latencies,
            record=self._latencies.record if gil.enabled else self._record,
            **WRAPPER_CLOCK,
            run_race=run_race,
        )

    def around(self, fn: Callable[P, T], /) -> Callable[P, T]:
        self._refuse(fn, "which blocks: write an async function")

    def around_stream(self, fn: Callable[P, Generator[T, S, Any]], /) -> Callable[P, Generator[T, S, Any]]:
        self._refuse(fn, "a generator: write an async function")

    def around_async_stream(self, fn: AsyncGeneratorFunction[P, T, S], /) -> AsyncGeneratorFunction[P, T, S]:
        self._refuse(fn, "an async generator, whose items would come twice: hedge the call that opens it")

    def _refuse(self, fn: object, why: str) -> NoReturn:
        raise TypeError(f"Hedge runs attempts side by side, and cannot do so with {display_name(fn)}, {why}")

    # ------------------------------------------------------------- called by the races of its calls

    def _allow_attempt(self) -> bool:
        """Return True if the quota and the budget allow an extra call; count it as hedged or suppressed."""
        with self._lock:
            allowed = self._quota.spend()
            if allowed and not self._budget_grants():
                self._quota.refund()
                allowed = False
            self._hedged += allowed
            self._suppressed += not allowed
        return allowed

    def _outcome(self, race: Race, /) -> Any:
        """Return the result of a decided race, or raise its error; count a win of an extra call."""
        won = race.winner not in (None, FIRST)
        with self._lock:
            self._won += won
        return race.outcome()

    def _record(self, seconds: float, now: float) -> None:
        """Record the latency of a call, under the lock."""
        with self._lock:
            self._latencies.record(seconds, now)

    def _budget_grants(self) -> bool:
        budget, now = self.settings.budget, SYSTEM.now()
        if budget is None:
            return True
        grant = call_hook(budget, "spend", Kind.unknown, now)
        if grant is not None and grant.wait:  # a hedge cannot wait
            call_hook(budget, "refund", grant, now)
        return grant is not None and not grant.wait

    # ----------------------------------------------------------------------------------- hooks

    def describe(self) -> str:
        delay, load, hedges = self.settings.delay, self.settings.max_extra_load, self.settings.hedges
        late = "takes longer than most" if delay is None else f"takes over {format_seconds(delay)}"
        most = "" if load is None else f", for {100 * load:.3g} % of the calls at most"
        more = "once more" if hedges == 1 else f"up to {hedges} times more"
        return f"{more} if it {late}{most}"

    def worst_case(self, inner: WorstCase, /) -> WorstCase:
        delay, hedges = self.settings.delay, self.settings.hedges
        more = inner._replace(calls=inner.calls * (1 + hedges))
        more = more._replace(seconds=more.seconds + hedges * (delay or 0.0))
        return NoBlockingCode(*more) if isinstance(inner, BlockingWorstCase) else more

    def traits(self) -> Traits:
        return Traits(concurrent=True, shared=(self,))

    def lint(self, outer: Layers, inner: Layers, worst: WorstCase, /) -> Iterator[str]:  # noqa: ARG002
        if combined_traits(inner).retries:
            yield (
                "Hedge outside Retry: a call that is slow because it retries is made a second time, and the "
                "second call retries too; put it inside"
            )
        around, delay = combined_traits(outer), self.settings.delay
        limit = min(around.time_limit, around.each_call_limit)
        if delay is not None and limit <= delay:
            yield (
                f"Hedge(delay={delay:g}) inside a limit of {format_seconds(limit)}: the limit is always "
                "reached before the delay, so no call is ever hedged"
            )

    def __repr__(self) -> str:
        settings = self.settings
        hedges = None if settings.hedges == 1 else settings.hedges
        return self._repr(
            f"delay={settings.delay}", f"max_extra_load={settings.max_extra_load}", hedges=hedges
        )


def run_race(
    hedge: Hedge, delay: float, fn: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Coroutine[Any, Any, Any]:
    """Call ``fn``, start further attempts after each delay; return or raise the first acceptable outcome."""
    if "trio" in modules and under_trio():
        from redouble._layers.hedge.race_trio import RaceNurseryTask  # noqa: PLC0415  Trio is running

        return RaceNurseryTask(hedge, delay, fn, args, kwargs).run()
    return _race_task()(hedge, delay, fn, args, kwargs).run()


@cache  # an import statement for each call would cost time
def _race_task() -> Callable[..., HedgedCall]:
    from redouble._layers.hedge.race_asyncio import RaceTask  # noqa: PLC0415  only if async code runs

    return RaceTask


def require_awaitable(different: Operation) -> Operation:
    """Return ``different``, wrapped to raise `UsageError` if its result cannot be awaited."""

    async def other(*args: Any, **kwargs: Any) -> Any:
        result: object = different(*args, **kwargs)
        if not isawaitable(result):
            raise UsageError(
                f"Hedge different={display_name(different)} returned a {type(result).__name__}: make it async"
            )
        return await result

    return different if callable_kind(different) == "coroutine" else other
