"""`Fallback` in pipelines: outside a layer that retries or rejects it acts last, inside it acts first."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Bulkhead, CircuitBreaker, Fallback, Retry, Timeout, errors, report
from redouble._runtime.backend import backend
from redouble.testing import Script, VirtualClock, ok
from tests.support.fakes import Boom, Virtual, in_colour
from tests.support.layers.fallbacks import called
from tests.support.virtual_time import HOUR, LOOP_PLACES, in_virtual_time


def test_outside_a_retry_it_acts_last(colour: str) -> None:
    """It receives the error of the last attempt, with its report."""
    received: list[Exception] = []
    pipeline = Fallback(received.append) | Retry(on=OSError, attempts=3, backoff=[0, 0], clock=Virtual())
    assert called(colour, pipeline, *[OSError(1), OSError(2), OSError(3)]) is None
    assert [error.args for error in received] == [(3,)]
    found = report(received[0])
    assert found is not None
    assert (found.attempts, found.reason) == (3, "attempts")


def test_inside_a_retry_it_acts_first(colour: str) -> None:
    """An error that it replaces is not retried; any other is."""
    script = Script(OSError(), KeyError(), ok(3))
    pipeline = Retry(on=Exception, backoff=[0] * 3, clock=Virtual()) | Fallback(value=7, on=KeyError)
    assert in_colour(colour, lambda: pipeline.call(script), lambda: pipeline.call(script.aio)) == 7
    assert len(script.calls) == 2


def test_outside_a_breaker_it_replaces_rejections_too(colour: str) -> None:
    breaker, received = CircuitBreaker(failures=1), list[type[Exception]]()
    pipeline = Fallback(lambda error: received.append(type(error))) | breaker
    for _ in range(2):
        assert called(colour, pipeline, Boom()) is None
    assert received == [Boom, errors.CircuitOpen]


def test_inside_a_breaker_it_hides_the_failures(colour: str) -> None:
    breaker = CircuitBreaker(failures=1)
    assert called(colour, breaker | Fallback(value=7), Boom()) == 7
    assert breaker.state == "closed"


def test_a_fallback_inside_another_one(colour: str) -> None:
    """The inner one acts first; an error that it does not replace, or raises, reaches the outer one."""
    both = Fallback(value="outer") | Fallback(lambda error: 1 // 0, on=OSError)
    assert called(colour, both, KeyError()) == "outer"
    assert called(colour, both, OSError()) == "outer"
    assert called(colour, Fallback(value="outer") | Fallback(value="inner"), Boom()) == "inner"


def test_outside_a_full_bulkhead_it_replaces_the_rejection(colour: str) -> None:
    bulkhead = Bulkhead(1, wait=0)
    with bulkhead:
        assert called(colour, Fallback(value=7, on=errors.BulkheadFull) | bulkhead, ok(3)) == 7
    assert called(colour, Fallback(value=7) | bulkhead, ok(3)) == 3


@pytest.mark.parametrize("place", LOOP_PLACES)
def test_outside_a_timeout_it_replaces_the_timeout(place: str) -> None:
    """A timeout is an error like any other, although the inner call was cancelled."""

    async def waiting(clock: VirtualClock) -> None:
        pipeline = Fallback(type) | Timeout(2)
        assert await pipeline.call(Script(ok(takes=HOUR)).aio) is errors.AttemptTimeout
        assert clock.now() == 2

    in_virtual_time(place, waiting)


@pytest.mark.parametrize("place", LOOP_PLACES)
@pytest.mark.parametrize("step", [ok(takes=HOUR), Boom()], ids=["call", "fallback"])
def test_a_timeout_outside_ends_the_call_and_the_fallback(place: str, step: Any) -> None:
    async def slow(_: Exception) -> int:
        await backend().sleep(HOUR)
        return 7

    async def waiting(clock: VirtualClock) -> None:
        with pytest.raises(errors.AttemptTimeout):
            await (Timeout(2) | Fallback(slow)).call(Script(step).aio)
        assert clock.now() == 2

    in_virtual_time(place, waiting)
