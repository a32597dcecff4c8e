"""Extra attempts run on stacks of their own, and know the calls around the hedged call all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from redouble import Hedge, Layer, Retry, Timeout, Worker, current, deadline, remaining
from redouble._runtime.backend import backend
from tests.support.fakes import Boom
from tests.support.layers.hedge_attempts import LOOPS, ScriptedAttempts, make_hedged_call, timed
from tests.support.virtual_time import no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

LATE, FAILING = [(9.0, "a"), (9.0, "b"), (0.5, "c")], [(1.0, Boom), (1.0, Boom), (0.5, "c")]


def left() -> Any:
    """Return the seconds that are left, and the number of the attempt of the policy around."""
    call, seconds = current(), remaining()
    return None if seconds is None else round(seconds, 1), None if call is None else call.attempt


@LOOPS
@pytest.mark.parametrize(
    ("outer", "inner", "seen"),
    [
        (None, None, [(None, None)] * 3),
        (Timeout(20), None, [(20, None), (19, None), (18, None)]),
        (Retry(timeout=20), None, [(20, 1), (19, 1), (18, 1)]),
        (Retry(attempt_timeout=7) | Timeout(15), None, [(7, 1), (6, 1), (5, 1)]),
        (Timeout(20) | Hedge(30, None), None, [(20, None), (19, None), (18, None)]),
        # Each attempt has a limit of its own, and the ones around it.
        (Timeout(20), Timeout(10), [(10, None)] * 3),
        (Timeout(11.5), Timeout(10), [(10, None), (10, None), (9.5, None)]),
        (None, Retry(timeout=10), [(10, 1)] * 3),
    ],
)
@pytest.mark.parametrize("special", [False, True])
def test_each_attempt_knows_the_time_left(
    colour: str, outer: Layer | None, inner: Layer | None, seen: list[Any], special: bool
) -> None:
    """Those of late calls, and those of failed ones."""
    work, found = ScriptedAttempts(FAILING if special else LATE), list[Any]()
    hedge = Hedge(60 if special else 1, None, hedges=2, failover=special)

    async def reading() -> Any:
        found.append(left())
        return await work()

    async def main() -> Any:
        whole: Any = hedge if inner is None else hedge | inner
        whole = whole if outer is None else outer | whole
        return await whole.call(reading)

    assert timed(colour, main) == "c"
    assert found == seen


@LOOPS
@pytest.mark.parametrize(
    ("outer", "began"),
    [
        (Timeout(1.5), [0, 1]),
        (Retry(attempts=1, give_up_after=1.5), [0, 1]),  # which interrupts nothing
        (Retry(attempts=1, timeout=5), [0, 1, 2]),
    ],
)
def test_no_attempt_starts_after_the_limit_of_a_policy_around(
    colour: str, outer: Layer, began: list[float]
) -> None:
    work = ScriptedAttempts([(4, "a"), (9, "b"), (9, "c")])

    async def main() -> None:
        await make_hedged_call(outer | Hedge(1, None, hedges=2), work)

    timed(colour, main)
    assert work.start_times == began


@LOOPS
@pytest.mark.parametrize("inner", [Timeout(10), Retry(timeout=10, attempts=1)])
def test_a_limit_that_interrupts_nothing_interrupts_no_extra_attempt(colour: str, inner: Layer) -> None:
    work = ScriptedAttempts([(9, "a"), (4, "b")])

    async def main() -> object:
        return await (Retry(attempts=1, give_up_after=3) | Hedge(1, None) | inner).call(work)

    assert timed(colour, main) == "b"
    assert work.start_times == [0, 1]


@LOOPS
def test_in_a_task_the_calls_around_the_one_that_awaits_it_are_known(colour: str) -> None:
    found: list[Any] = []

    async def reading() -> None:
        found.append(left())
        await backend().sleep(9)

    async def child() -> None:
        await Hedge(1, None).call(reading)

    async def group() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child)

    async def main() -> None:
        await Retry(timeout=20).call(group)

    timed(colour, main)
    assert found == [(20, 1), (19, 1)]


@LOOPS
def test_a_hedge_in_the_first_attempt_of_a_hedge(colour: str) -> None:
    """Each knows the calls around itself, and none of those inside."""
    found: list[Any] = []

    async def reading() -> None:
        found.append(left())
        await backend().sleep(9)

    async def main() -> None:
        inner = Hedge(2, None) | Timeout(10)
        await (Timeout(30) | Hedge(5, None) | Timeout(20) | inner)(reading)()

    timed(colour, main)
    assert found == [(10, None)] * 4


@LOOPS
def test_streams_know_the_time_left(colour: str) -> None:
    found: list[Any] = []

    async def items() -> AsyncIterator[int]:
        found.append(left())
        await backend().sleep(9 if len(found) == 1 else 1)
        yield len(found)

    async def main() -> list[int]:
        with deadline(60):
            return [item async for item in (Timeout(20) | Hedge(1, None))(items)()]

    assert timed(colour, main) == [2]
    assert found == [(20, None), (19, None)]


def test_attempts_on_workers_know_the_time_left() -> None:
    found: list[Any] = []

    def reading() -> None:
        seconds = remaining()
        call = current()
        found.append((seconds is not None and 0 < seconds <= 60, call is not None and call.attempt))
        raise Boom

    hedge = Hedge(60, None, failover=True, worker=Worker(grace=0))
    with pytest.raises(Boom):
        (Retry(on=Boom, attempts=2, backoff=[0], timeout=60) | hedge).call(reading)
    assert found == [(True, 1)] * 2 + [(True, 2)] * 2


@LOOPS
def test_behind_an_async_generator_the_calls_around_are_known(colour: str) -> None:
    found: list[Any] = []

    async def reading() -> None:
        found.append(left())
        await backend().sleep(9)

    async def items() -> AsyncIterator[None]:
        await (Timeout(10) | Hedge(1, None)).call(reading)
        yield

    async def read() -> None:
        async for _ in items():
            pass

    async def main() -> None:
        await Timeout(20).call(read)

    timed(colour, main)
    assert found == [(10, None), (9, None)]
