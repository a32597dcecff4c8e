"""`Hedge`: which attempt wins, when extra calls start, and how many; on every event loop, from one table."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from redouble import Hedge, Retry, TokenBucket, Verdict
from tests.support.fakes import Boom, Ledger, always
from tests.support.layers.hedge_attempts import LOOPS, HedgedCall, ScriptedAttempts, make_hedged_call, timed
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


class Busy(Exception):
    """An error with a ``retry_after``."""

    retry_after = 3.0


def good(result: str) -> bool:
    return result != "bad"


def raising(result: object) -> bool:
    raise LookupError(str(result))


OVER: dict[str, Any] = {"failover": True}

ROWS: list[tuple[dict[str, Any], list[tuple[float, Any]], str, list[float]]] = [
    # in time, or late
    ({}, [(0.5, "a")], "a after 0.5", [0]),
    ({}, [(9, "a"), (1, "b")], "b after 2", [0, 1]),
    ({}, [(1.5, "a"), (9, "b")], "a after 1.5", [0, 1]),
    ({"delay": 0}, [(2, "a"), (1, "b")], "b after 1", [0, 0]),
    ({"delay": timedelta(seconds=2)}, [(9, "a"), (1, "b")], "b after 3", [0, 2]),
    # failures
    ({}, [(0.5, Boom)], "ScriptedError(attempt 1) after 0.5", [0]),
    ({}, [(3, "a"), (1, Boom)], "a after 3", [0, 1]),
    ({}, [(2, Boom), (2, "b")], "b after 3", [0, 1]),
    ({}, [(2, Boom), (2, KeyError)], "ScriptedError(attempt 1) after 3", [0, 1]),
    ({}, [(4, Boom), (1, KeyError)], "ScriptedError(attempt 1) after 4", [0, 1]),
    # several
    ({"hedges": 3}, [(9, "a"), (9, "b"), (9, "c"), (2.5, "d")], "d after 5.5", [0, 1, 2, 3]),
    ({"hedges": 3}, [(9, "a"), (9, "b"), (1.5, "c")], "c after 3.5", [0, 1, 2, 3]),
    ({"hedges": 2}, [(1.5, Boom), (9, "b"), (2, "c")], "c after 4", [0, 1, 2]),
    ({"hedges": 2}, [(1.5, Boom), (0.2, Boom)], "ScriptedError(attempt 1) after 1.5", [0, 1]),
    ({"hedges": 2}, [(4, Boom), (2, Boom), (5, Boom)], "ScriptedError(attempt 1) after 7", [0, 1, 2]),
    (
        {"hedges": 2},
        [(9, "a"), (4, "same"), (3, "same")],
        "same after 5",
        [0, 1, 2],
    ),  # two end at the same moment
    # errors that ``on`` does not name
    ({"on": Boom}, [(9, "a"), (1, OSError)], "OSError(attempt 2) after 2", [0, 1]),
    ({"on": Boom}, [(2, OSError), (9, "b")], "OSError(attempt 1) after 2", [0, 1]),
    ({"on": Boom}, [(2, Boom), (2, OSError)], "OSError(attempt 2) after 3", [0, 1]),
    ({"on": [Boom, always(False)]}, [(9, "a"), (1, OSError)], "OSError(attempt 2) after 2", [0, 1]),
    ({"on": always(Verdict.accept())}, [(9, "a"), (1, Boom)], "ScriptedError(attempt 2) after 2", [0, 1]),
    ({"on": always("so")}, [(9, "a"), (1, Boom)], "TypeError(rule always.<locals>.rule ", [0, 1]),
    # results that ``until`` refuses
    ({"until": good}, [(3, "a"), (1, "bad")], "a after 3", [0, 1]),
    ({"until": good}, [(2, "bad"), (3, "b")], "b after 4", [0, 1]),
    ({"until": good}, [(0.5, "bad")], "bad after 0.5", [0]),
    ({"until": good}, [(2, "bad"), (3, Boom)], "bad after 4", [0, 1]),
    ({"until": good}, [(2, Boom), (3, "bad")], "ScriptedError(attempt 1) after 4", [0, 1]),
    ({"until": raising}, [(9, "a"), (1, "b")], "LookupError(b) after 2", [0, 1]),
    # a `retry_after` delays the next attempt
    ({"hedges": 2}, [(9, "a"), (0.5, Busy), (1, "c")], "c after 5.5", [0, 1, 4.5]),
    ({"hedges": 2}, [(1.5, Busy), (9, "b"), (1, "c")], "c after 5.5", [0, 1, 4.5]),
    ({"hedges": 2}, [(9, "a"), (0.5, OSError), (1, "c")], "c after 3", [0, 1, 2]),
    ({"hedges": 2, "on": always(5.0)}, [(9, "a"), (0.5, Boom), (1, "c")], "c after 7.5", [0, 1, 6.5]),
    ({"hedges": 2}, [(3, "a"), (0.5, Busy)], "a after 3", [0, 1]),
    ({"hedges": 3}, [(9, "a"), (1.5, Busy), (9, "c"), (1, "d")], "d after 6.5", [0, 1, 2, 5.5]),
    # with failover a failure or a refused result starts the next attempt
    ({**OVER}, [(0.5, "a")], "a after 0.5", [0]),
    ({**OVER}, [(9, "a"), (1, "b")], "b after 2", [0, 1]),
    ({**OVER}, [(0.5, Boom), (1, "b")], "b after 1.5", [0, 0.5]),
    ({**OVER}, [(0.5, Boom), (1, KeyError)], "ScriptedError(attempt 1) after 1.5", [0, 0.5]),
    ({**OVER}, [(9, "a"), (1, KeyError)], "a after 9", [0, 1]),
    ({**OVER, "hedges": 2}, [(0.5, Boom), (0.25, Boom), (1, "c")], "c after 1.75", [0, 0.5, 0.75]),
    ({**OVER, "hedges": 2}, [(9, "a"), (0.5, Boom), (1, "c")], "c after 2.5", [0, 1, 1.5]),
    ({**OVER, "hedges": 2}, [(0.5, Boom), (9, "b"), (1, "c")], "c after 2.5", [0, 0.5, 1.5]),
    ({**OVER, "hedges": 3}, [(2, Boom), (1, Boom), (9, "c"), (1, "d")], "d after 3", [0, 1, 2, 2]),
    ({**OVER, "on": Boom}, [(0.5, OSError)], "OSError(attempt 1) after 0.5", [0]),
    ({**OVER, "on": Boom}, [(0.5, Boom), (1, OSError)], "OSError(attempt 2) after 1.5", [0, 0.5]),
    ({**OVER, "on": always(Verdict.stop())}, [(0.5, Boom)], "ScriptedError(attempt 1) after 0.5", [0]),
    ({**OVER, "until": good}, [(0.5, "bad"), (1, "b")], "b after 1.5", [0, 0.5]),
    ({**OVER, "until": good}, [(0.5, "bad"), (0.5, "bad")], "bad after 1", [0, 0.5]),
    ({**OVER, "until": good}, [(0.5, "bad"), (1, Boom)], "bad after 1.5", [0, 0.5]),
    ({**OVER, "until": raising}, [(0.5, "a")], "LookupError(a) after 0.5", [0]),
    ({**OVER}, [(0.5, Busy), (1, "b")], "b after 4.5", [0, 3.5]),
    ({**OVER}, [(1.5, Busy), (9, "b")], "b after 10", [0, 1]),
    ({**OVER, "hedges": 2}, [(9, "a"), (0.5, Busy), (1, "c")], "c after 5.5", [0, 1, 4.5]),
    ({**OVER, "hedges": 2}, [(0.5, Busy), (1, Boom), (1, "c")], "c after 5.5", [0, 3.5, 4.5]),
    ({**OVER, "hedges": 2, "delay": 4}, [(9, "a"), (1, Busy), (0.5, "c")], "c after 8.5", [0, 4, 8]),
    # a delay for each extra attempt
    ({"hedges": 3, "delay": [1, 2]}, [(9.0, "a")] * 3 + [(1, "d")], "d after 6", [0, 1, 3, 5]),
    ({"hedges": 2, "delay": (2, timedelta(seconds=0.5))}, [(9, "a")] * 3, "a after 9", [0, 2, 2.5]),
    ({"hedges": 3, "delay": float}, [(9.0, "a")] * 3 + [(1, "d")], "d after 7", [0, 1, 3, 6]),
    ({"hedges": 2, "delay": always(None)}, [(2, "a")], "a after 2", [0]),
    ({"hedges": 2, "delay": {1: 1}.get}, [(9, "a")] * 2, "a after 9", [0, 1]),
    ({**OVER, "delay": always(None)}, [(9, Boom), (1, "b")], "b after 10", [0, 9]),
    (
        {**OVER, "hedges": 3, "delay": {2: 1}.get},
        [(2, Boom), (9, "b"), (2, Boom), (1, "d")],
        "d after 6",
        [0, 2, 3, 5],
    ),
]


@LOOPS
@pytest.mark.parametrize(("options", "steps", "ends", "began"), ROWS)
def test_one_call(
    colour: str, options: dict[str, Any], steps: list[tuple[float, Any]], ends: str, began: list[float]
) -> None:
    """The outcome, the duration in seconds, and when the attempts started."""
    arguments: dict[str, Any] = {"delay": 1, "max_extra_load": None, **options}
    hedge, work = Hedge(**arguments), ScriptedAttempts([*steps, (9, "unused")])

    async def main() -> HedgedCall:
        return await make_hedged_call(hedge, work)

    assert str(timed(colour, main)).startswith(ends)
    assert (work.start_times, work.running) == (began, 0)
    assert hedge.snapshot()["hedged"] == len(began) - 1


@LOOPS
def test_the_first_error_is_raised_unchanged(colour: str) -> None:
    errors = [Boom("first"), Boom("second")]
    left = list(errors)
    work = ScriptedAttempts([(2, None), (2, None)])

    async def failing() -> None:
        mine = left.pop(0)
        await work()
        raise mine

    async def main() -> HedgedCall:
        return await make_hedged_call(Hedge(1, None), failing)

    call = timed(colour, main)
    assert call.error is errors[0]
    assert [frame.name for frame in traceback.extract_tb(call.error.__traceback__)].count("failing") == 1
    assert call.error.__context__ is call.error.__cause__ is None


@LOOPS
@pytest.mark.parametrize("options", [{"delay": 1, "max_extra_load": None}, {"max_extra_load": 0.5}])
def test_every_attempt_gets_the_arguments(colour: str, options: dict[str, Any]) -> None:
    work = ScriptedAttempts([(0.9, "quick")] * 32 + [(9, "slow"), (0.9, "quick")])
    hedge = Hedge(**options)

    @hedge
    async def fetch(url: str, *more: int, key: str = "k", **others: int) -> Any:
        return await work(url, *more, key=key, **others)

    async def main() -> Any:
        for _ in range(32):
            await fetch("u", 1, other=2)
        return await fetch("u", 1, other=2)

    assert timed(colour, main) == "quick"
    assert work.arguments == [(("u", 1), {"key": "k", "other": 2})] * 34


@LOOPS
@pytest.mark.parametrize("how", ["object", "method", "partial", "plain"])
def test_extra_calls_call_the_different_function(colour: str, how: str) -> None:
    here, there = ScriptedAttempts([(9, "here")]), ScriptedAttempts([(9, "there"), (1, "there too")])

    def plain(number: int) -> Awaitable[Any]:
        return there(number)

    functions: dict[str, Callable[..., Awaitable[Any]]] = {
        "object": there,
        "method": there.__call__,
        "partial": partial(there),
        "plain": plain,
    }
    hedge = Hedge(1, None, hedges=2, different=functions[how])

    async def main() -> HedgedCall:
        return await make_hedged_call(hedge, here, 1)

    assert str(timed(colour, main)) == "there too after 3"
    assert (here.start_times, here.arguments) == ([0], [((1,), {})])
    assert (there.start_times, there.arguments) == ([1, 2], [((1,), {})] * 2)


# --------------------------------------------------------------------------- the load


@LOOPS
def test_the_delay_is_measured(colour: str) -> None:
    """No call is hedged before there were enough; then those that take longer than nearly all others are."""
    hedge = Hedge(max_extra_load=0.05)

    async def main() -> list[Any]:
        early = await make_hedged_call(hedge, ScriptedAttempts([(60, "late")]))
        for _ in range(31):
            await hedge.call(ScriptedAttempts([(1, "quick")]))
        return [early, await make_hedged_call(hedge, slow)]

    slow = ScriptedAttempts([(60, "late"), (2, "b")])
    early, late = timed(colour, main)
    assert str(early) == "late after 60"
    assert hedge.snapshot() == {"delay": 1.0625, "calls": 33, "hedged": 1, "won": 1, "suppressed": 0}
    assert late.value == "b"
    assert late.took == pytest.approx(3.0625, abs=0.01)


@LOOPS
def test_a_used_up_quota_suppresses_only_the_extra_call(colour: str) -> None:
    """The quota allows one extra call at once, and another one after ten calls."""
    hedge = Hedge(1, 0.1)

    async def main() -> list[str]:
        return [str(await make_hedged_call(hedge, ScriptedAttempts([(3, "a"), (1, "b")]))) for _ in range(12)]

    hedged, not_hedged = "b after 2", "a after 3"
    # Each call adds a tenth of an extra call to the quota before it is late, so the tenth has the next one.
    assert timed(colour, main) == [hedged, *[not_hedged] * 8, hedged, *[not_hedged] * 2]
    assert hedge.snapshot() == {"delay": 1.0, "calls": 12, "hedged": 2, "won": 2, "suppressed": 10}


@LOOPS
def test_two_hedges_share_a_budget(colour: str) -> None:
    ledger = Ledger(retries=1)
    first, second = Hedge(1, None, budget=ledger), Hedge(1, None, budget=ledger)

    async def main() -> list[str]:
        return [
            str(await make_hedged_call(hedge, ScriptedAttempts([(3, "a"), (1, "b")])))
            for hedge in (first, second)
        ]

    assert timed(colour, main) == ["b after 2", "a after 3"]
    assert ledger.lines == ["spend unknown"] * 2
    assert [hedge.snapshot()["suppressed"] for hedge in (first, second)] == [0, 1]


@LOOPS
def test_a_hedge_refused_by_the_budget_costs_no_quota(colour: str) -> None:
    ledger = Ledger(retries=0)
    hedge = Hedge(1, 1e-6, budget=ledger)  # one extra call, and then none for a long time

    async def main() -> list[str]:
        before = await make_hedged_call(hedge, ScriptedAttempts([(3, "a"), (1, "b")]))
        ledger.retries = 2
        after = [await make_hedged_call(hedge, ScriptedAttempts([(3, "a"), (1, "b")])) for _ in range(2)]
        return [str(before), *map(str, after)]

    assert timed(colour, main) == ["a after 3", "b after 2", "a after 3"]
    assert ledger.lines == ["spend unknown"] * 2  # the third was suppressed by the quota


@LOOPS
def test_a_grant_that_requires_a_wait_is_refunded(colour: str) -> None:
    """An extra call that would have to wait is not made."""
    ledger = Ledger(wait=2)

    async def main() -> str:
        return str(
            await make_hedged_call(Hedge(1, None, budget=ledger), ScriptedAttempts([(3, "a"), (1, "b")]))
        )

    assert timed(colour, main) == "a after 3"
    assert ledger.lines == ["spend unknown", "refund 1"]


@LOOPS
def test_retries_and_extra_calls_take_tokens_from_one_bucket(colour: str) -> None:
    bucket = TokenBucket()
    policy = Retry(on=Exception, attempts=2, backoff=[0], budget=bucket) | Hedge(1, None, budget=bucket)

    async def main() -> str:
        return str(await make_hedged_call(policy, ScriptedAttempts([(2, Boom), (2, Boom), (0.5, "c")])))

    assert timed(colour, main) == "c after 3.5"
    assert bucket.snapshot()["tokens"] == 500 - 5  # the extra call; the retry succeeded and was refunded
