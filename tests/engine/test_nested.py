"""Nested retries: errors on which an inner policy has already given up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry, errors, report
from redouble._runtime.clock import SystemClock
from tests.support.fakes import Boom, Ledger, Virtual, in_colour, options


class Wrapped(Exception):
    """The error by which a client library replaces another one."""


class Nest:
    """An operation that fails under two policies, and the number of its calls."""

    def __init__(self, how: str = "same", inner: dict[str, Any] | None = None, **outer: Any) -> None:
        self.clock = Virtual()
        self.calls = 0
        self.how = how
        common: dict[str, Any] = {"on": Exception, "attempts": 2, "backoff": [1] * 9, "clock": self.clock}
        self.inner = Retry(**common | (inner or {}))
        self.outer = Retry(**common | outer)

    def operation(self) -> None:
        self.calls += 1
        raise Boom(f"{self.calls}")

    def between(self, error: Exception) -> Exception:
        """Return the error that the outer policy gets for an inner one."""
        match self.how:
            case "from":
                return _from(Wrapped(), error)
            case "deep":
                return _from(Wrapped(), _from(ValueError(), error))
            case "cycle":
                outer = _from(Wrapped(), ValueError())
                return _from(outer, _from(ValueError(), outer))
            case "pickled":
                copy: Exception = pickle.loads(pickle.dumps(error))
                return copy
            case "context":
                unrelated = _from(Wrapped(), ValueError("another cause"))
                unrelated.__context__ = error
                assert unrelated.__cause__ is not None
                unrelated.__cause__.__context__ = error
                return unrelated
            case "group":
                return ExceptionGroup("several", [ValueError(), error])
            case _:
                return error

    def run(self, colour: str = "sync") -> BaseException:
        @self.inner
        def once() -> None:
            self.operation()

        @self.inner
        async def aonce() -> None:
            self.operation()

        def blocking() -> None:
            seen: Exception | None = None
            try:
                once()
            except Exception as error:
                seen = error
            assert seen is not None
            raise self.between(seen)

        async def waiting() -> None:
            seen: Exception | None = None
            try:
                await aonce()
            except Exception as error:
                seen = error
            assert seen is not None
            raise self.between(seen)

        with pytest.raises(Exception) as caught:  # noqa: PT011  of any type
            in_colour(colour, lambda: self.outer.call(blocking), lambda: self.outer.call(waiting))
        return caught.value


def _from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def reason(error: BaseException) -> str | None:
    reported = report(error)
    return reported.reason if reported else None


@pytest.mark.parametrize(
    ("how", "nested", "calls", "expected", "logged"),
    [
        ("same", "warn", 4, "attempts", 1),
        ("same", "stop", 2, "nested", 0),
        ("same", "allow", 4, "attempts", 0),
        ("from", "warn", 4, "attempts", 1),
        ("from", "stop", 2, "nested", 0),
        ("deep", "stop", 2, "nested", 0),
        ("pickled", "stop", 2, "nested", 0),
        ("group", "stop", 2, "nested", 0),
        ("pickled", "warn", 4, "attempts", 1),
        ("cycle", "stop", 4, "attempts", 0),  # the search for a stamp ends, without one
        ("context", "stop", 4, "attempts", 0),  # a context is no cause
    ],
)
def test_an_error_that_an_inner_policy_gave_up_on(
    colour: str,
    caplog: pytest.LogCaptureFixture,
    how: str,
    nested: str,
    calls: int,
    expected: str,
    logged: int,
) -> None:
    nest = Nest(how, nested=nested, name=f"{colour} {how}")
    assert reason(nest.run(colour)) == expected
    assert nest.calls == calls
    assert len(caplog.records) == logged


def test_the_warning_is_logged_once_per_policy(caplog: pytest.LogCaptureFixture) -> None:
    nest, other = Nest(name="outer", inner={"name": "inner"}), Nest(name="another")
    nest.run()
    nest.run()
    assert len(caplog.records) == 1
    assert "inner policy (inner) already gave up: attempts multiply" in caplog.text
    assert "name='outer'" in caplog.text
    other.run()
    assert len(caplog.records) == 2


def test_each_of_two_equal_policies_logs_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A policy that was garbage-collected does not count."""
    one, other = Nest(), Nest()
    common: dict[str, Any] = {"on": Exception, "attempts": 2, "backoff": [1], "clock": Virtual()}
    one.outer, other.outer = Retry(**common), Retry(**common)
    assert one.outer == other.outer
    for nest in (one, other, other, one):
        nest.run()
    assert len(caplog.records) == 2
    for _ in range(20):  # each may have the address of an earlier one
        one.outer = Retry(**common)
        one.run()
    assert len(caplog.records) == 22


@pytest.mark.parametrize("how", ["same", "from"])
@pytest.mark.parametrize("nested", ["warn", "stop", "allow"])
def test_an_exhausted_budget_stops_the_outer_policy(
    colour: str, caplog: pytest.LogCaptureFixture, how: str, nested: str
) -> None:
    nest = Nest(how, inner={"budget": Ledger(retries=0)}, nested=nested)
    assert reason(nest.run(colour)) == "nested"
    assert nest.calls == 1
    assert not caplog.records


def test_nested_stop_with_wrap_raises_stopped() -> None:
    error = Nest(nested="stop", wrap=True).run()
    assert isinstance(error, errors.Stopped)
    assert error.reason == "nested"


def test_an_error_that_the_inner_policy_wrapped_is_recognised() -> None:
    nest = Nest(inner={"wrap": True}, nested="stop")
    error = nest.run()
    assert isinstance(error, errors.AttemptsExhausted)
    assert nest.calls == 2


def test_an_inner_policy_that_succeeds_leaves_no_stamp(caplog: pytest.LogCaptureFixture) -> None:
    clock = Virtual()
    fails = [Boom(), Boom()]

    def once() -> None:
        if fails:
            raise fails.pop()

    inner = Retry(on=Boom, attempts=3, backoff=[1, 1], clock=clock)
    Retry(on=Boom, clock=clock).call(inner(once))
    assert not caplog.records


@pytest.mark.parametrize("how", ["same", "from"])
def test_the_stamp_of_an_earlier_call_does_not_count(caplog: pytest.LogCaptureFixture, how: str) -> None:
    """Some code raises the same instance repeatedly."""
    clock, singleton, calls = Virtual(), Boom("the one"), list[float]()

    def operation() -> None:
        calls.append(clock.time)
        raise singleton if how == "same" else _from(Wrapped(), singleton)

    for nested in ("stop", "warn"):
        clock.time += 1
        policy = Retry(**options(on=Exception, attempts=3, backoff=[1, 1], nested=nested, clock=clock))
        with pytest.raises((Boom, Wrapped)) as caught:
            policy.call(operation)
        assert reason(caught.value) == "attempts"
    assert len(calls) == 6
    assert not caplog.records


def test_the_stamp_of_an_earlier_attempt_does_not_count() -> None:
    clock, singleton, calls = Virtual(), Boom("the one"), list[float]()
    inner = Retry(on=Boom, attempts=2, backoff=[1], clock=clock)

    def fails() -> None:
        raise singleton

    def operation() -> str:
        calls.append(clock.time)
        if len(calls) == 1:
            assert not inner.run(fails).ok
            raise Wrapped
        if len(calls) == 2:
            raise singleton
        return "done"

    outer = Retry(on=Exception, backoff=[1] * 9, nested="stop", clock=clock)
    assert outer.call(operation) == "done"
    assert calls == [0, 2, 3]


@pytest.mark.parametrize(
    ("stops_at", "expected", "calls"), [(1, "attempts", 2), (2, "nested", 2), (3, "nested", 3)]
)
def test_an_inner_policy_that_stopped_counts_only_if_it_retried(
    stops_at: int, expected: str, calls: int
) -> None:
    """If it stopped at its first attempt, attempts do not multiply."""
    asked = iter(range(1, 9))
    judge: Callable[[Exception], bool] = lambda _: next(asked) < stops_at
    nest = Nest(inner={"on": judge, "attempts": 9}, nested="stop")
    assert (reason(nest.run()), nest.calls) == (expected, calls)


def test_a_stamp_of_another_clock_counts() -> None:
    nest = Nest(inner={"clock": Virtual(-1e6)}, nested="stop")
    assert reason(nest.run()) == "nested"


def test_an_old_stamp_of_a_client_with_another_sleep_is_of_another_attempt() -> None:
    """The clock of blocking gRPC calls differs from the system's in its sleep only."""

    def always_fails() -> None:
        raise Boom

    inner = Retry(on=Boom, attempts=2, backoff=[0], clock=SystemClock())
    seen = list[Exception]()

    @Retry(on=(Boom, KeyError), attempts=3, backoff=[0, 0], nested="stop")
    def fetch() -> None:
        if seen:
            seen.append(seen[0])
            raise seen[0]
        try:
            inner.call(always_fails)
        except Boom as error:
            seen.append(error)
        raise KeyError

    with pytest.raises(Boom):
        fetch()
    assert len(seen) == 3
