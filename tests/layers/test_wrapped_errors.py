"""A `RetryError` that wraps an error is judged by what it wraps, by every layer and by nested policies."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    CircuitBreaker,
    Fallback,
    Kind,
    Layer,
    Retry,
    Throttle,
    TokenBucket,
    Verdict,
    errors,
    report,
    transient,
)
from redouble._failures.verdict import FailureFilter
from redouble._layers.hedge.race import Race
from redouble.types import Ended, On
from tests.support.fakes import Boom, Ledger, Virtual, in_colour

WRAPPING: dict[str, Any] = {"wrap": True, "backoff": [0] * 9, "clock": Virtual()}
LIMITED = errors.RateLimited("no", retry_after=7)


def wrapped(error: object, kind: type[errors.RetryError] = errors.AttemptsExhausted) -> errors.RetryError:
    return kind("gave up", last=error)


def called(colour: str, layer: Layer, error: Exception, inner: Layer | None = None) -> object:
    """Call a function that fails, through a layer and a policy that wraps; return the result or the error."""
    pipeline = layer | (inner or Retry(on=Exception, attempts=2, **WRAPPING))

    def fail() -> object:
        raise error

    async def afail() -> object:
        raise error

    return in_colour(colour, lambda: pipeline.call(fail), lambda: pipeline.call(afail))


RULES: list[On] = [
    transient,
    ConnectionError,
    (ValueError, ConnectionError),
    lambda e: isinstance(e, ConnectionError),
    lambda e: True if isinstance(e, ConnectionError) else None,
    [lambda _: None, ConnectionError],
]


class Judging:
    """A rule that sees how the attempt ended."""

    def judge(self, ended: Ended) -> bool:
        return isinstance(ended.error, ConnectionError)


@pytest.mark.parametrize("on", [*RULES, Judging()])
def test_a_breaker_opens(colour: str, on: On) -> None:
    breaker = CircuitBreaker(on=on, failures=1)
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, breaker, ConnectionError())
    assert breaker.state == "open"


@pytest.mark.parametrize("on", RULES)
def test_a_breaker_stays_closed(colour: str, on: On) -> None:
    """For an error that does not count without the wrapper either."""
    breaker = CircuitBreaker(on=on, failures=1)
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, breaker, KeyError())
    assert breaker.state == "closed"


def test_a_wrapped_rejection_is_not_counted(colour: str) -> None:
    """The function was not called."""
    outer, throttle, limit = CircuitBreaker(failures=1), Throttle(), AdaptiveConcurrency(on=Exception)
    for gate in (outer, throttle, limit, AdaptiveRate(on=Exception)):
        inner = Retry(on=errors.Rejected, attempts=2, **WRAPPING) | refused()
        with pytest.raises(errors.AttemptsExhausted):
            called(colour, gate, Boom(), inner)
    assert outer.state == "closed"
    assert throttle.snapshot()["requests"] == 0


def refused() -> CircuitBreaker:
    breaker = CircuitBreaker()
    breaker.isolate()
    return breaker


def test_a_throttle_counts_it(colour: str) -> None:
    throttle = Throttle(on=transient)
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, throttle, ConnectionError())
    assert throttle.snapshot() == {"share": pytest.approx(0.5), "requests": 1, "accepts": 0}


def test_an_adaptive_rate_limits(colour: str) -> None:
    rate = AdaptiveRate()
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, rate, LIMITED)
    assert rate.snapshot()["rate"] is None  # a rejection of ours says nothing about the service
    rate = AdaptiveRate(on=Boom)
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, rate, Boom())
    assert rate.snapshot()["rate"] is not None


def test_an_adaptive_concurrency_shrinks(colour: str) -> None:
    limit = AdaptiveConcurrency(by="aimd", initial=20, on=transient)
    before = limit.limit
    for _ in range(50):
        with pytest.raises(errors.AttemptsExhausted):
            called(colour, limit, TimeoutError())
    assert limit.limit <= before


@pytest.mark.parametrize("on", RULES)
def test_a_fallback_replaces_it(colour: str, on: On) -> None:
    assert called(colour, Fallback(value=3, on=on), ConnectionError()) == 3
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, Fallback(value=3, on=on), KeyError())


@pytest.mark.parametrize("on", RULES)
def test_a_hedge_lets_the_other_attempt_win(on: On) -> None:
    race = Race(FailureFilter(on, "Hedge"), None)
    race.start_attempt()
    race.record_error(1, wrapped(ConnectionError()), 0)
    assert not race.over
    race.record_result(2, 3, 0.0)
    assert race.outcome() == 3


def test_a_hedge_obeys_the_hint_of_a_wrapped_error() -> None:
    race = Race(FailureFilter(errors.Rejected, "Hedge"), None)
    race.start_attempt()
    race.record_error(1, wrapped(LIMITED), 100)
    assert race.not_before == 107
    race.record_error(2, wrapped(KeyError()), 100)  # it does not count, so it wins
    with pytest.raises(errors.AttemptsExhausted) as caught:
        race.outcome()
    assert isinstance(caught.value.last, KeyError)


@pytest.mark.parametrize("on", [*RULES, Judging()])
def test_an_outer_policy_retries_it(colour: str, on: On) -> None:
    calls: list[int] = []
    outer = Retry(on=on, attempts=3, nested="allow", backoff=[0] * 9, clock=Virtual())
    inner = Retry(on=Exception, attempts=2, **WRAPPING)

    def fail() -> None:
        calls.append(1)
        raise ConnectionError

    async def afail() -> None:
        fail()

    pipeline = outer | inner
    with pytest.raises(errors.AttemptsExhausted):
        in_colour(colour, lambda: pipeline.call(fail), lambda: pipeline.call(afail))
    assert len(calls) == 6


def test_an_outer_policy_stops_at_an_error_that_it_would_not_retry(colour: str) -> None:
    outer = Retry(on=ConnectionError, nested="allow", backoff=[0] * 9, clock=Virtual())
    with pytest.raises(errors.AttemptsExhausted):
        called(colour, outer, KeyError())


def test_the_hint_and_the_kind_of_a_wrapped_error_count(colour: str) -> None:
    clock, ledger = Virtual(), Ledger()
    outer = Retry(on=errors.Rejected, attempts=2, nested="allow", backoff=[0] * 9, clock=clock, budget=ledger)
    with pytest.raises(errors.AttemptsExhausted) as caught:
        called(colour, outer, LIMITED)
    seen = report(caught.value)
    assert seen is not None
    assert [record.kind for record in seen.history] == [Kind.throttled] * 2
    assert [7 <= wait <= 7.7 for wait in clock.waits] == [True]
    assert ledger.lines[1] == "failed throttled"


def test_a_wrapped_attempt_timeout_is_retried_by_default() -> None:
    calls: list[int] = []
    clock = Virtual()

    def fail() -> None:
        calls.append(1)
        raise wrapped(errors.AttemptTimeout("slow"))

    with pytest.raises(errors.AttemptsExhausted):
        Retry(on=KeyError, attempts=3, backoff=[0] * 9, clock=clock).call(fail)
    with pytest.raises(errors.AttemptsExhausted):
        Retry(on=lambda _: None, attempts=3, backoff=[0] * 9, clock=clock).call(fail)
    assert len(calls) == 6


def test_an_exhausted_budget_still_stops_the_outer_policy(colour: str) -> None:
    inner = Retry(on=Exception, budget=TokenBucket(1, {None: 100}), **WRAPPING)
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise ConnectionError

    async def afail() -> None:
        fail()

    pipeline = Retry(nested="allow", backoff=[0] * 9, clock=Virtual()) | inner
    with pytest.raises(errors.BudgetExhausted):
        in_colour(colour, lambda: pipeline.call(fail), lambda: pipeline.call(afail))
    assert len(calls) == 1


def cycle() -> errors.RetryError:
    error = wrapped(None)
    error.last = error
    return error


class Bare(errors.RetryError):
    """A subclass that does not call `__init__`."""

    def __init__(self) -> None: ...


VERDICTS: list[tuple[Exception, Verdict | None]] = [
    (wrapped(ConnectionResetError()), transient(ConnectionResetError())),
    (wrapped(wrapped(ConnectionRefusedError())), transient(ConnectionRefusedError())),
    (wrapped(ConnectionResetError(), errors.Stopped), transient(ConnectionResetError())),
    (wrapped(KeyError()), None),
    (wrapped(None), None),
    (wrapped("a result"), None),
    (wrapped(ConnectionResetError(), errors.NotAccepted), None),  # a result, although it is an exception
    (wrapped(LIMITED), transient(LIMITED)),
    (wrapped(None, errors.DeadlineExceeded), Verdict.retry(kind=Kind.timeout, reason="timeout")),
    (wrapped(KeyError(), errors.DeadlineExceeded), Verdict.retry(kind=Kind.timeout, reason="timeout")),
    (wrapped(LIMITED, errors.DeadlineExceeded), transient(LIMITED)),
    (cycle(), None),
    (Bare(), None),
]


@pytest.mark.parametrize(("error", "expected"), VERDICTS)
def test_transient(error: Exception, expected: Verdict | None) -> None:
    assert transient(error) == expected


def test_transient_with_a_table_of_the_users() -> None:
    busy = transient.with_({KeyError: 2.5})
    assert busy(wrapped(KeyError())) == Verdict.retry(after=2.5)
    assert transient.with_({errors.RetryError: False})(wrapped(ConnectionError())) == Verdict.stop()


def test_a_pickled_error_is_judged_alike() -> None:
    again: errors.RetryError = pickle.loads(pickle.dumps(wrapped(ConnectionResetError())))
    assert transient(again) == transient(ConnectionResetError())


def test_the_type_of_the_wrapper_counts_too() -> None:
    """A rule sees the wrapper if it has no opinion on the error inside."""
    ons: list[On] = [
        errors.RetryError,
        errors.AttemptsExhausted,
        Exception,
        [transient, errors.RetryError],
        lambda e: True if isinstance(e, errors.RetryError) else None,
    ]
    for on in ons:
        assert called("sync", Fallback(value=3, on=on), KeyError()) == 3


@pytest.mark.parametrize(
    "make", [lambda: CircuitBreaker(on=Exception), lambda: Fallback(value=3, on=KeyError)]
)
def test_a_cycle_ends(make: Callable[[], Layer]) -> None:
    def fail() -> object:
        raise cycle()

    with pytest.raises(errors.AttemptsExhausted):
        make().call(fail)
