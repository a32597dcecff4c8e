"""The recorded delays are those of the engine, for every policy and script, wherever time is virtual.

Seconds are whole and random numbers are eighths, so that all sums are exact.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import Backoff, Hints, Retry, Verdict
from redouble._engine.run import Run
from redouble.errors import DeadlineExceeded
from redouble.testing import Script, VirtualClock, fail, ok, recorded
from tests.support.call_shapes import ASYNC_CLOSING_SHAPES, CLOSING_SHAPES
from tests.support.virtual_time import PLACES, at, no_real_waits

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures(no_real_waits.__name__)]


class Eighths:
    """A seeded source of random numbers that are multiples of 1/8."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def random(self) -> float:
        return self._random.randrange(8) / 8


class HintedError(Exception):
    """A failure with a hint, or without one."""

    def __init__(self, hint: float | None) -> None:
        super().__init__(hint)
        self.hint = hint


def by_hint(error: Exception) -> Verdict | None:
    return Verdict.retry(after=error.hint) if isinstance(error, HintedError) else None


EXPECTED = (HintedError, ValueError, DeadlineExceeded)

SECONDS = st.integers(0, 5000).map(float)
EIGHTHS = st.integers(0, 8).map(lambda eighths: eighths / 8)
LIMIT = st.none() | st.integers(0, 20_000).map(float)
# Never at the same moment as another event, because either could be first.
TIMEOUTS = LIMIT.map(lambda limit: limit and limit + 1 / 16)
HINTS = st.builds(
    Hints,
    mode=st.sampled_from(["at_least", "instead", "ignore"]),
    longest=LIMIT,
    over=st.none() | SECONDS,
    spread=EIGHTHS,
)
RECIPES = st.one_of(
    SECONDS.map(Backoff.constant),
    SECONDS.map(Backoff.exponential),
    st.builds(Backoff.linear, SECONDS, SECONDS),
).flatmap(lambda backoff: SECONDS.map(backoff.maximum))
BACKOFFS = st.one_of(
    st.lists(SECONDS, max_size=8),
    RECIPES,
    RECIPES.map(Backoff.full_jitter),
    RECIPES.map(Backoff.equal_jitter),
    st.builds(Backoff.jitter, RECIPES, EIGHTHS),
)
OPTIONS = st.fixed_dictionaries(
    {
        "attempts": st.integers(1, 8),
        "backoff": BACKOFFS,
        "hints": HINTS,
        "give_up_after": LIMIT,
        "timeout": TIMEOUTS,
        "work_timeout": TIMEOUTS,
    }
)
FAILURES = st.builds(fail, st.builds(HintedError, st.none() | SECONDS), takes=st.just(0.0) | SECONDS)
LAST = st.builds(ok, takes=SECONDS) | st.just(fail(ValueError()))


def predicted(policy: Retry, steps: list[Any], *, cuts: bool) -> tuple[list[float], float]:
    """Return the delays of a run, and the time at its end; ``cuts``: attempts are cancelled at limits."""
    run, now, delays = Run(policy, 0.0, attempt=0), 0.0, list[float]()
    for step in steps:
        if run.start(now) is not None:
            break
        took = min(step.takes, run.time_left()) if cuts else step.takes
        now += took
        error = step.error if took == step.takes else run.expired()
        delay = None if error is None else run.failed(error, now)
        if delay is None:
            break
        delays.append(delay)
        now += delay
    return delays, now


@settings(max_examples=50)  # each of them in every place
@given(
    options=OPTIONS,
    failures=st.lists(FAILURES, max_size=8),
    last=LAST,
    seed=st.integers(),
    shape=st.sampled_from(sorted(CLOSING_SHAPES)),
)
def test_recorded_delays_are_those_of_the_engine(
    options: dict[str, Any], failures: list[Any], last: Any, seed: int, shape: str
) -> None:
    steps = [*failures, last]

    def policy() -> Retry:
        return Retry(**options, on=by_hint, random=Eighths(seed))

    def blocking(clock: VirtualClock) -> tuple[list[float], float]:
        with suppress(*EXPECTED):
            CLOSING_SHAPES[shape](policy(), Script(*steps))
        return clock.delays, clock.now()

    async def waiting(clock: VirtualClock) -> tuple[list[float], float]:
        with suppress(*EXPECTED):
            await ASYNC_CLOSING_SHAPES[shape](policy(), Script(*steps).aio)
        return clock.delays, clock.now()

    for place in PLACES:
        delays, late = predicted(policy(), steps, cuts=place.startswith(("asyncio", "trio")))
        with recorded() as events:
            slept, then = at(place, blocking, waiting)
        # Blocking code skips a delay of zero; in async code it is a checkpoint.
        assert slept == [delay for delay in delays if delay or place not in ("sync", "thread")], place
        assert then == late, place
        assert [event.delay for event in events if event.what == "retry"] == delays, place


@settings(max_examples=50)  # each of them in every place
@given(calls=st.lists(st.lists(st.integers(1, 5000).map(float), max_size=4), min_size=1, max_size=4))
def test_the_times_of_consecutive_calls_add_up(calls: list[list[float]]) -> None:
    """Each call begins at the end of the previous one, and the clock is exact at each end."""
    rows = [
        (Retry(backoff=delays, attempts=9, give_up_after=None), [fail()] * len(delays)) for delays in calls
    ]

    def blocking(clock: VirtualClock) -> list[float]:
        return [policy.call(Script(*steps, ok(clock))).now() for policy, steps in rows]

    async def waiting(clock: VirtualClock) -> list[float]:
        return [(await policy.call(Script(*steps, ok(clock)).aio)).now() for policy, steps in rows]

    for place in PLACES:
        assert at(place, blocking, waiting) == list(accumulate(map(sum, calls))), place
