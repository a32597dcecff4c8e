"""Random pipelines around a function that always fails: reality never exceeds the worst case."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble import (
    SYSTEM,
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Hints,
    Kind,
    Pipeline,
    Retry,
    RetryBudget,
    Timeout,
    TokenBucket,
    Verdict,
)
from redouble._layers.analysis import BlockingWorstCase, combined_worst_case
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock, virtual_time
from tests.support.layers.analysis import worst_case_of
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures(no_real_waits.__name__)]

EPSILON = 1e-6
SECONDS = st.integers(1, 12)


class Worse(Exception):
    """An error of some kind, which may ask for a wait."""

    def __init__(self, kind: Kind, after: float | None) -> None:
        super().__init__(kind)
        self.kind, self.after = kind, after


def judged(error: Exception) -> Verdict:
    return Verdict.retry(kind=getattr(error, "kind", None), after=getattr(error, "after", None))


def spread(kind: Literal["random", "decorrelated"], low: int, more: int) -> Backoff:
    return Backoff.random(low, low + more) if kind == "random" else Backoff.decorrelated(low, low + more)


def changed(recipe: Backoff, change: str, number: int) -> Backoff:
    """Modify a recipe in one way."""
    changes: dict[str, Callable[[], Backoff]] = {
        "full": recipe.full_jitter,
        "equal": recipe.equal_jitter,
        "some": lambda: recipe.jitter(0.5),
        "maximum": lambda: recipe.maximum(number),
        "minimum": lambda: recipe.minimum(number),
        "take": lambda: recipe.take(number % 4),
    }
    return changes[change]() if change else recipe


RECIPES = st.builds(
    changed,
    st.builds(Backoff.constant, SECONDS)
    | st.builds(Backoff.exponential, SECONDS)
    | st.builds(Backoff.linear, SECONDS, SECONDS)
    | st.builds(spread, st.sampled_from(["random", "decorrelated"]), SECONDS, SECONDS)
    | st.builds(Backoff.of, st.lists(SECONDS, max_size=4)),
    st.sampled_from(["", "full", "equal", "some", "maximum", "minimum", "take"]),
    SECONDS,
)

HINTS = st.builds(
    Hints,
    mode=st.sampled_from(["at_least", "instead", "ignore"]),
    longest=st.none() | SECONDS,
    over=st.none() | SECONDS,
    spread=st.sampled_from([0, 0.1, 1]),
)

BUDGETS = st.builds(RetryBudget) | st.builds(
    TokenBucket,
    capacity=st.just(15),
    refill_per_second=st.sampled_from([0, 0.5]),
)
WAITING = st.builds(TokenBucket, capacity=st.just(5), refill_per_second=SECONDS, when_empty=st.just("wait"))
LIMIT = st.none() | SECONDS


@st.composite
def policies(draw: st.DrawFn, *, cancellable: bool) -> Retry:
    """Return a policy; if calls are ``cancellable``, it may have a timeout of each attempt."""
    limits: dict[str, Any] = {"give_up_after": draw(LIMIT), "timeout": draw(LIMIT)}
    some = st.integers(1, 4)  # with only a work timeout, a rejection by a gate would be retried without end
    return Retry(
        on=judged,
        attempts=draw(some if set(limits.values()) == {None} else st.none() | some),
        backoff=draw(RECIPES | st.fixed_dictionaries({Kind.throttled: RECIPES, None: RECIPES})),
        attempt_timeout=draw(LIMIT) if cancellable else None,
        work_timeout=draw(LIMIT),
        hints=draw(HINTS),
        budget=draw(st.none() | BUDGETS | WAITING),
        nested="allow",
        **limits,
    )


def bulkhead(wait: int) -> Bulkhead:
    return Bulkhead(1, wait=wait)


def breaker(failures: int, cooldown: int) -> CircuitBreaker:
    return CircuitBreaker(failures=failures, cooldown=cooldown)


@st.composite
def pipelines(draw: st.DrawFn, *, cancellable: bool) -> Pipeline:
    """Return a pipeline of any layers; with `Timeout` only if calls are ``cancellable``."""
    layers = (
        policies(cancellable=cancellable)
        | st.builds(bulkhead, st.just(0) | SECONDS)
        | st.builds(breaker, st.integers(1, 4), SECONDS)
        | st.just(Fallback(value=7, on=KeyError))
        | (st.builds(Timeout, SECONDS) if cancellable else st.nothing())
    )
    return Pipeline(*draw(st.lists(layers, max_size=4)))


ENDINGS = st.lists(
    st.builds(Worse, st.sampled_from([Kind.throttled, Kind.network]), st.none() | SECONDS)
    | st.builds(KeyError),
    min_size=1,
    max_size=6,
)


class Calls:
    """The wrapped function: it always fails, with the errors of the list in turn, and takes its time."""

    def __init__(self, endings: list[Exception], takes: float) -> None:
        self.endings, self.takes, self.count = endings, takes, 0

    def __call__(self) -> None:
        self.count += 1
        if self.takes:
            SYSTEM.sleep(self.takes)
        raise self.endings[self.count % len(self.endings)]

    async def aio(self) -> None:
        self.count += 1
        if self.takes:
            await backend().sleep(self.takes)
        raise self.endings[self.count % len(self.endings)]


def fill(pipeline: Pipeline, full: bool) -> None:
    for layer in pipeline.layers:
        if full and isinstance(layer, Bulkhead):
            layer.admit(0)


@given(
    pipeline=pipelines(cancellable=False),
    endings=ENDINGS,
    full=st.booleans(),
    takes=st.sampled_from([0, 0.25, 3.25, 40]),
)
def test_a_blocking_call_never_exceeds_the_worst_case(
    pipeline: Pipeline, endings: list[Exception], full: bool, takes: float
) -> None:
    """No limit interrupts it."""
    fill(pipeline, full)
    calls = Calls(endings, takes)
    worst = combined_worst_case(pipeline.layers, BlockingWorstCase(seconds=takes))
    with virtual_time() as clock:
        with suppress(Exception):
            pipeline.call(calls)
        assert calls.count <= worst.calls
        assert clock.now() <= worst.seconds + EPSILON
        assert clock.now() <= worst.waiting + calls.count * takes + EPSILON
    assert all(": " in problem for problem in pipeline.check())


@pytest.mark.parametrize("place", ["asyncio around", "trio around jumping"])
@settings(deadline=None)
@given(
    pipeline=pipelines(cancellable=True),
    endings=ENDINGS,
    full=st.booleans(),
    takes=st.sampled_from([0.25, 3.25, 40]),
)
def test_an_async_call_never_exceeds_the_worst_case(
    place: str, pipeline: Pipeline, endings: list[Exception], full: bool, takes: float
) -> None:
    fill(pipeline, full)
    worst, calls = worst_case_of(pipeline), Calls(endings, takes)

    async def waiting(clock: VirtualClock) -> None:
        with suppress(Exception):
            await pipeline.call(calls.aio)
        assert calls.count <= worst.calls
        assert clock.now() <= worst.seconds + EPSILON
        assert clock.now() <= worst.waiting + calls.count * takes + EPSILON

    in_virtual_time(place, waiting)
    assert all(": " in problem for problem in pipeline.check())
