"""Failed attempts that start the next one, and attempts with delays and functions of their own."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import SYSTEM, Hedge, RetryBudget, Verdict, deadline, observe
from redouble._runtime.backend import backend, under_trio
from redouble.types import Event
from tests.support.fakes import ASYNC, Boom, Ledger, always
from tests.support.layers.hedge_attempts import (
    LOOPS,
    ON_ASYNCIO,
    HedgedCall,
    Response,
    ScriptedAttempts,
    limit,
    make_hedged_call,
    timed,
)
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

Steps = list[tuple[float, Any]]
TINY = 1 / 64  # added so that no two attempts end, or start and end, at the same moment


def over(delay: Any = 1, **options: Any) -> Hedge:
    return Hedge(delay, None, failover=True, **options)


def capped(retries: int) -> RetryBudget:
    """Return a budget that allows so many extra attempts in flight."""
    return RetryBudget(ratio=None, max_in_flight=0.2, minimum=retries)


def is_good(result: object) -> bool:
    return result == "good"


class Busy(Exception):
    retry_after = 3.0


def later(result: object) -> Verdict:
    """Refuse a busy answer, which asks for a delay."""
    return Verdict.retry(after=3) if result == "busy" else Verdict.accept()


# ------------------------------------------------------------------------- any attempts

ATTEMPTS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(["good", "bad", Boom, OSError])), min_size=4, max_size=4
).map(lambda some: [(takes + TINY * number, ending) for number, (takes, ending) in enumerate(some, 1)])


def expected(steps: Steps, delays: list[float]) -> tuple[str, float, int]:
    """Return the outcome of a race, its duration and the number of attempts: a simulation."""
    now, began, due = 0.0, 1, delays[0]
    running = [(steps[0][0], 1)]
    first = ""
    while True:
        ends, number = running[0]
        if began <= len(delays) and due < ends:
            now = due
        else:
            heapq.heappop(running)
            now, ending = ends, steps[number - 1][1]
            outcome = ending if isinstance(ending, str) else f"{ending.__name__}(attempt {number})"
            if ending in ("good", OSError):
                return outcome, now, began
            first = outcome if number == 1 else first
            if began > len(delays):
                if not running:
                    return first, now, began
                continue
        began += 1
        heapq.heappush(running, (now + steps[began - 1][0], began))
        due = now + delays[min(began, len(delays)) - 1]


@settings(max_examples=60)
@given(
    steps=ATTEMPTS,
    delays=st.lists(st.sampled_from([0.5, 1.25, 2.75]), min_size=1, max_size=3),
    colour=st.sampled_from(ASYNC),
)
def test_any_attempts_with_failover(steps: Steps, delays: list[float], colour: str) -> None:
    work = ScriptedAttempts(steps)
    hedge = over(delays, hedges=len(delays), on=Boom, until=is_good)

    async def main() -> HedgedCall:
        return await make_hedged_call(hedge, work)

    outcome, moment, began = expected(steps, delays)
    call = timed(colour, main)
    assert str(call).startswith(f"{outcome} after ")
    assert call.took == pytest.approx(moment, abs=0.02)
    assert (len(work.start_times), work.running) == (began, 0)


# ----------------------------------------------------------------- delays that are measured


@LOOPS
def test_failover_before_a_delay_is_known(colour: str) -> None:
    """A failure needs no measured delay."""
    hedge = Hedge(max_extra_load=0.5, failover=True)

    async def main() -> list[str]:
        scripts: list[Steps] = [[(60, "late")], [(0.5, Boom), (1, "b")], [(0.5, "a")]]
        return [str(await make_hedged_call(hedge, ScriptedAttempts(script))) for script in scripts]

    assert timed(colour, main) == ["late after 60", "b after 1.5", "a after 0.5"]
    assert hedge.snapshot() == {"delay": None, "calls": 3, "hedged": 1, "won": 1, "suppressed": 0}


@LOOPS
@pytest.mark.parametrize("failover", [False, True])
def test_a_measured_delay_with_a_minimum_and_bounds(colour: str, failover: bool) -> None:
    hedge = Hedge(max_extra_load=0.5, failover=failover, minimum=5, shortest=2, longest=3)

    async def main() -> list[Any]:
        delays: list[Any] = []
        for takes in [1.0] * 5 + [9.0] * 32:
            await hedge.call(ScriptedAttempts([(takes, "a")] * 2))
            delays.append(hedge.snapshot()["delay"])
        return [*delays[3:5], delays[-1]]

    assert timed(colour, main) == [None, 2, 3]


@LOOPS
@pytest.mark.parametrize("how", ["cancelled", "timeout", "failed"])
@pytest.mark.parametrize("failover", [False, True])
def test_calls_that_are_cut_count_as_slow(colour: str, how: str, failover: bool) -> None:
    """Or a service that hangs would look as fast as the few calls that still end; failures say nothing."""
    hedge = Hedge(max_extra_load=0.2, failover=failover)
    error = {"timeout": TimeoutError, "failed": Boom}.get(how, Boom)

    async def main() -> float | None:
        for _ in range(32):
            await hedge.call(ScriptedAttempts([(1, "a")]))
        for _ in range(32):
            if how == "cancelled":
                async with limit(8):
                    await hedge.call(ScriptedAttempts([(60, "a")] * 2))
            else:
                with pytest.raises(error):
                    await hedge.call(ScriptedAttempts([(8, error)] * 2))
        for _ in range(16):
            await hedge.call(ScriptedAttempts([(1, "a")]))
        return hedge.snapshot()["delay"]

    delay = timed(colour, main)
    assert delay is not None
    assert delay == 1.0625 if how == "failed" else delay >= 8


# ----------------------------------------------------------------------- no time, no quota


@LOOPS
@pytest.mark.parametrize(
    ("hedge", "steps", "ends"),
    [
        (Hedge(2, None), [(9, "a"), (1, "b")], "a after 9"),
        (over(2), [(9, "a"), (1, "b")], "a after 9"),
        (over(), [(2, Boom), (9, "b")], "b after 10"),  # it began before the deadline
        (over(), [(2, Boom), (0.75, Boom)], "ScriptedError(attempt 1) after 2"),
        (over(9), [(1, Busy), (1, "b")], "Busy(attempt 1) after 1"),  # the next one would be too late
        (over(9, until=later), [(1, "busy"), (1, "b")], "busy after 1"),
        (Hedge(1, None, hedges=2), [(9, "a"), (0.25, Busy), (1, "c")], "a after 9"),
    ],
)
def test_no_attempt_starts_when_no_time_is_left(colour: str, hedge: Hedge, steps: Steps, ends: str) -> None:
    work = ScriptedAttempts(steps)

    async def main() -> str:
        with deadline(1.5):
            return str(await make_hedged_call(hedge, work))

    assert timed(colour, main) == ends
    assert max(work.start_times) <= 1.5


@LOOPS
@pytest.mark.parametrize("budget", [None, RetryBudget(0, 0), Ledger(retries=0), Ledger(wait=1)])
def test_failover_needs_the_quota_and_the_budget(colour: str, budget: Any) -> None:
    """The error comes out at once: no other attempt would follow."""
    hedge = Hedge(1, 0.01, failover=True, budget=budget)

    async def main() -> list[str]:
        works = [ScriptedAttempts([(0.5, Boom), (1, "b")]) for _ in range(2)]
        return [str(await make_hedged_call(hedge, work)) for work in works]

    failed = "ScriptedError(attempt 1) after 0.5"
    assert timed(colour, main) == [failed if budget else "b after 1.5", failed]
    assert hedge.snapshot()["suppressed"] == (1 if budget is None else 2)


@LOOPS
def test_a_refused_result_may_ask_for_a_delay(colour: str) -> None:
    """As the answer 429 does with a ``Retry-After``, by the rule for HTTP."""

    async def main() -> str:
        return str(await make_hedged_call(over(until=later), ScriptedAttempts([(0.5, "busy"), (1, "b")])))

    assert timed(colour, main) == "b after 4.5"


@LOOPS
def test_no_budget_when_the_time_of_a_hint_has_come(colour: str) -> None:
    """The race has waited for it, and ends then."""
    hedge = over(budget=Ledger(retries=0))

    async def main() -> str:
        return str(await make_hedged_call(hedge, ScriptedAttempts([(1, Busy), (1, "b")])))

    assert timed(colour, main) == "Busy(attempt 1) after 4"


@LOOPS
@pytest.mark.parametrize(
    ("budget", "steps", "ends", "began"),
    [
        (
            capped(1),
            [(9, "a"), (9, "b"), (1, "c")],
            "a after 9",
            2,
        ),
        (
            capped(2),
            [(9, "a"), (9, "b"), (1, "c")],
            "c after 3",
            3,
        ),
        (
            capped(1),
            [(9, "a"), (0.5, Boom), (1, "c")],
            "c after 3",
            3,
        ),
        (RetryBudget(0, 0, max_in_flight=0.2, minimum=1), [(9, "a"), (9, "b")], "a after 9", 1),
    ],
)
def test_a_budget_may_limit_the_extra_attempts_in_flight(
    colour: str, budget: RetryBudget, steps: Steps, ends: str, began: int
) -> None:
    """Each is in flight until it ends; none is left, however the call ends."""
    work = ScriptedAttempts(steps)

    async def main() -> str:
        for moment in (0.5, 1.25):
            async with limit(moment):
                await Hedge(1, None, hedges=2, budget=budget).call(ScriptedAttempts([(9, "z")] * 3))
        return str(await make_hedged_call(Hedge(1, None, hedges=2, budget=budget), work))

    assert timed(colour, main) == ends
    assert len(work.start_times) == began
    assert budget.snapshot()["retries_in_flight"] == 0


# ------------------------------------------------------------------- functions of the caller


@LOOPS
def test_a_delay_function_is_called_before_the_call(colour: str) -> None:
    asked: list[int] = []

    def delay(number: int) -> float:
        asked.append(number)
        if len(asked) > 3:
            raise LookupError("no delay")
        return 1.0

    hedge, work = Hedge(delay, None, hedges=3), ScriptedAttempts([(0.5, "a")])

    async def main() -> list[str]:
        return [str(await make_hedged_call(hedge, work)) for _ in range(2)]

    assert timed(colour, main) == ["a after 0.5", "LookupError(no delay) after 0"]
    assert (asked, work.start_times) == ([1, 2, 3, 1], [0])
    assert hedge.snapshot()["delay"] is None


@LOOPS
@pytest.mark.parametrize("wrong", ["1", -1, True])
def test_a_delay_function_that_returns_nonsense(colour: str, wrong: Any) -> None:
    work = ScriptedAttempts([])

    async def main() -> str:
        return str(await make_hedged_call(Hedge(lambda _: wrong, None), work))

    assert "Error(Hedge delay=" in timed(colour, main)


# --------------------------------------------------------------------- different attempts


async def read(
    work: Any, key: str, /, region: str = "us", *more: int, fresh: bool = False, **rest: Any
) -> Any:
    return await work(key, region, fresh=fresh, **rest)


@LOOPS
def test_extra_attempts_have_other_arguments(colour: str) -> None:
    work = ScriptedAttempts([(9, "a"), (9, "b"), (9, "c"), (1, "d")])
    others: list[Any] = [{"region": "eu"}, {"key": "l", "region": "asia", "fresh": True, "hop": 1}]
    hedge = Hedge(1, None, hedges=3, different=others)

    async def main() -> Any:
        return await hedge.call(read, work, "k")

    assert timed(colour, main) == "d"
    last = (("l", "asia"), {"fresh": True, "hop": 1})
    assert work.arguments == [(("k", "us"), {"fresh": False}), (("k", "eu"), {"fresh": False}), last, last]


@LOOPS
def test_extra_attempts_call_other_functions(colour: str) -> None:
    work = ScriptedAttempts([(9, "a"), (9, "b"), (1, "c")])
    names: list[str] = []

    def reader(name: str) -> Callable[[], Any]:
        async def read() -> Any:
            names.append(name)
            return await work()

        return read

    hedge = Hedge(1, None, hedges=2, different=[partial(reader("eu")), reader("asia")])

    async def main() -> Any:
        return await hedge(reader("us"))()

    assert timed(colour, main) == "c"
    assert names == ["us", "eu", "asia"]


class Reader:
    async def read(self, work: Any, region: str) -> Any:
        return await work(region)

    read_hedged = Hedge(1, None, different={"region": "eu"})(read)


@LOOPS
@pytest.mark.parametrize("how", ["method", "partial", "decorated"])
def test_other_arguments_of_any_callable(colour: str, how: str) -> None:
    work = ScriptedAttempts([(9, "a"), (1, "b")])
    hedge, reader = Hedge(1, None, different={"region": "eu"}), Reader()

    async def main() -> Any:
        if how == "decorated":
            return await reader.read_hedged(work, "us")
        if how == "partial":
            return await hedge.call(partial(reader.read, work, region="us"))
        return await hedge.call(reader.read, work, "us")

    assert timed(colour, main) == "b"
    assert [args for args, _ in work.arguments] == [("us",), ("eu",)]


# ---------------------------------------------------------------------------------- events


@LOOPS
@pytest.mark.parametrize(
    ("hedge", "steps", "events"),
    [
        (Hedge(1, None, name="db"), [(0.5, "a")], []),
        (Hedge(1, None, name="db"), [(9, "a"), (1, "b")], ["hedged 2 at 1", "hedge_won 2 at 2"]),
        (Hedge(1, None, name="db"), [(3, "a"), (9, "b")], ["hedged 2 at 1"]),
        (Hedge(1, None, name="db"), [(3, Boom), (1, Boom)], ["hedged 2 at 1"]),
        (over(name="db"), [(0.5, Boom), (1, "b")], ["hedged 2 at 0.5", "hedge_won 2 at 1.5"]),
        (
            over(name="db", hedges=2, on=Boom),
            [(9, "a"), (0.5, Boom), (1, OSError)],
            ["hedged 2 at 1", "hedged 3 at 1.5", "hedge_won 3 at 2.5"],
        ),
    ],
)
def test_its_events(colour: str, hedge: Hedge, steps: Steps, events: list[str]) -> None:
    seen: list[Event] = []

    async def main() -> None:
        await backend().sleep(100)
        with observe(seen.append, only=("hedged", "hedge_won")):
            await make_hedged_call(hedge, ScriptedAttempts(steps))

    timed(colour, main)
    assert [f"{event.what} {event.attempt} at {round(event.elapsed, 1):g}" for event in seen] == events
    assert {(event.by, event.name) for event in seen} <= {("hedge", "db")}


# --------------------------------------------------------------------------- cancellations


@LOOPS
@pytest.mark.parametrize("moment", [0.25, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("error", [Boom, Busy])
def test_a_cancelled_caller_starts_no_attempt(colour: str, moment: float, error: type[Exception]) -> None:
    """Neither while it waits for the time that a failure asked for, nor when the cancelled attempts fail."""
    work = ScriptedAttempts(
        [(0.5, error), (9, Boom), (9, Boom), (9, "d")], cleanup_seconds=1, uncancellable=[2, 3]
    )
    hedge = over(2, hedges=3)

    async def main() -> None:
        async with limit(moment):
            await hedge.call(work)
            await backend().sleep(60)
        await backend().sleep(20)

    timed(colour, main)
    assert work.running == 0
    assert max(work.start_times) <= moment


@LOOPS
def test_a_first_attempt_that_makes_its_cancellation_an_error_is_no_failure(colour: str) -> None:
    """It starts no other attempt."""
    work = ScriptedAttempts([(9, Boom), (9, "b")], uncancellable=[1])

    async def main() -> str:
        hedge = over(5)
        if under_trio():
            with trio.move_on_after(1):
                return str(await make_hedged_call(hedge, work))
        task = asyncio.ensure_future(make_hedged_call(hedge, work))
        asyncio.get_running_loop().call_later(1, task.cancel)
        return str(await task)

    assert timed(colour, main) == "ScriptedError(attempt 1) after 1"
    assert work.start_times == [0]


@LOOPS
def test_refused_results_are_closed_with_failover(colour: str) -> None:
    results = [Response(), Response(), Response()]

    def until(result: object) -> bool:
        return result is results[2]

    hedge = over(hedges=2, until=until)

    async def main() -> Any:
        return await hedge.call(ScriptedAttempts([(0.25, result) for result in results]))

    assert timed(colour, main) is results[2]
    assert [result.closed for result in results] == [1, 1, 0]


@ON_ASYNCIO
@pytest.mark.parametrize("steps", [[(0.5, "a")], [(0.5, Boom), (1, "b")], [(0.5, Busy), (1, "b")]])
def test_failover_leaves_no_timer_in_the_loop(colour: str, steps: Steps) -> None:
    async def main() -> float:
        await make_hedged_call(over(30), ScriptedAttempts(steps))
        began = SYSTEM.now()
        await backend().sleep(1)
        return SYSTEM.now() - began

    assert timed(colour, main) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("ending", ["done", Boom])
def test_a_coroutine_driven_without_a_loop_has_no_failover(ending: Any) -> None:
    async def answer() -> Any:
        if ending is Boom:
            raise Boom("alone")
        return ending

    with pytest.raises(StopIteration if ending == "done" else Boom):
        over().call(answer).send(None)


@LOOPS
def test_a_verdict_with_a_hint_delays_the_next_attempt(colour: str) -> None:
    hedge = over(9, on=always(Verdict.retry(after=2)))

    async def main() -> str:
        return str(await make_hedged_call(hedge, ScriptedAttempts([(1, Boom), (1, "b")])))

    assert timed(colour, main) == "b after 4"
