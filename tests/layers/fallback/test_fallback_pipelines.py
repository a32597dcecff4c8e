"""`Fallback` in pipelines: outside a layer that retries or rejects it acts last, inside it acts first."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout, errors, report
from redouble._runtime.backend import backend
from redouble.testing import Script, VirtualClock, ok
from tests.layers.fallback.test_fallback import called
from tests.layers.timeout.test_timeout import HOUR, PLACES, in_time
from tests.support.fakes import Boom, Virtual, in_colour


def test_outside_a_retry_it_comes_last(colour: str) -> None:
    """It receives the error of the last attempt, with its report."""
    asked: list[Exception] = []
    pipeline = Fallback(asked.append) | Retry(on=OSError, attempts=3, backoff=[0, 0], clock=Virtual())
    assert called(colour, pipeline, *[OSError(1), OSError(2), OSError(3)]) is None
    assert [error.args for error in asked] == [(3,)]
    said = report(asked[0])
    assert said is not None
    assert (said.attempts, said.reason) == (3, "attempts")


def test_inside_a_retry_it_comes_first(colour: str) -> None:
    """An error that it replaces is not retried; any other is."""
    script = Script(OSError(), KeyError(), ok(3))
    pipeline = Retry(on=Exception, backoff=[0] * 3, clock=Virtual()) | Fallback(value=7, on=KeyError)
    assert in_colour(colour, lambda: pipeline.call(script), lambda: pipeline.call(script.aio)) == 7
    assert len(script.calls) == 2


def test_outside_a_breaker_it_replaces_rejections_too(colour: str) -> None:
    breaker, asked = CircuitBreaker(failures=1), list[type[Exception]]()
    pipeline = Fallback(lambda error: asked.append(type(error))) | breaker
    for _ in range(2):
        assert called(colour, pipeline, Boom()) is None
    assert asked == [Boom, errors.CircuitOpen]


def test_inside_a_breaker_it_hides_the_failures(colour: str) -> None:
    breaker = CircuitBreaker(failures=1)
    assert called(colour, breaker | Fallback(value=7), Boom()) == 7
    assert breaker.state == "closed"


def test_one_in_another(colour: str) -> None:
    """The inner one acts first; an error that it does not replace, or raises, reaches the outer one."""
    both = Fallback(value="outer") | Fallback(lambda error: 1 // 0, on=OSError)
    assert called(colour, both, KeyError()) == "outer"
    assert called(colour, both, OSError()) == "outer"
    assert called(colour, Fallback(value="outer") | Fallback(value="inner"), Boom()) == "inner"


def test_outside_a_full_bulkhead(colour: str) -> None:
    bulkhead = Bulkhead(1, wait=0)
    with bulkhead:
        assert called(colour, Fallback(value=7, on=errors.BulkheadFull) | bulkhead, ok(3)) == 7
    assert called(colour, Fallback(value=7) | bulkhead, ok(3)) == 3


@pytest.mark.parametrize("place", PLACES)
def test_outside_a_timeout(place: str) -> None:
    """That is an error like any other, although the inner call was cancelled."""

    async def waiting(clock: VirtualClock) -> None:
        pipeline = Fallback(type) | Timeout(2)
        assert await pipeline.call(Script(ok(takes=HOUR)).aio) is errors.AttemptTimeout
        assert clock.now() == 2

    in_time(place, waiting)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", [ok(takes=HOUR), Boom()], ids=["call", "fallback"])
def test_inside_a_timeout(place: str, step: Any) -> None:
    """The outer limit cuts the call, and the fallback too."""

    async def slow(_: Exception) -> int:
        await backend().sleep(HOUR)
        return 7

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(errors.AttemptTimeout):
            await (Timeout(2) | Fallback(slow)).call(Script(step).aio)
        assert clock.now() == 2

    in_time(place, waiting)
