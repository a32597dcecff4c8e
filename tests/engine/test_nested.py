"""Retries inside retries: an error on which an inner policy already gave up."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from redouble import Retry, errors, report
from tests.support.fakes import Boom, Ledger, Virtual, in_colour, options


class Wrapped(Exception):
    """What a client library makes of another error."""


class Nest:
    """An operation that fails under two policies, and how often it was called."""

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
        """Make of an inner error what the outer policy sees."""
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

        with pytest.raises(Exception) as caught:  # noqa: PT011  any: `how` says which
            in_colour(colour, lambda: self.outer.call(blocking), lambda: self.outer.call(waiting))
        return caught.value


def _from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def reason(error: BaseException) -> str | None:
    said = report(error)
    return said.reason if said else None


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
        ("cycle", "stop", 4, "attempts", 0),  # no stamp anywhere, and it ends
        ("context", "stop", 4, "attempts", 0),  # raised while handling it, but not because of it
    ],
)
def test_an_inner_policy_gave_up(
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


def test_equal_policies_are_warned_of_each(caplog: pytest.LogCaptureFixture) -> None:
    """Two equal policies warn separately; a policy that was collected does not count."""
    one, other = Nest(), Nest()
    common: dict[str, Any] = {"on": Exception, "attempts": 2, "backoff": [1], "clock": Virtual()}
    one.outer, other.outer = Retry(**common), Retry(**common)
    assert one.outer == other.outer
    for nest in (one, other, other, one):
        nest.run()
    assert len(caplog.records) == 2
    for _ in range(20):  # one may well live where another one did
        one.outer = Retry(**common)
        one.run()
    assert len(caplog.records) == 22


@pytest.mark.parametrize("how", ["same", "from"])
@pytest.mark.parametrize("nested", ["warn", "stop", "allow"])
def test_an_exhausted_budget_stops_everybody(
    colour: str, caplog: pytest.LogCaptureFixture, how: str, nested: str
) -> None:
    nest = Nest(how, inner={"budget": Ledger(retries=0)}, nested=nested)
    assert reason(nest.run(colour)) == "nested"
    assert nest.calls == 1
    assert not caplog.records


def test_it_is_a_stop_where_errors_are_wrapped() -> None:
    error = Nest(nested="stop", wrap=True).run()
    assert isinstance(error, errors.Stopped)
    assert error.reason == "nested"


def test_an_inner_wrap_counts_too() -> None:
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
def test_an_old_stamp_on_an_error_that_is_raised_again(caplog: pytest.LogCaptureFixture, how: str) -> None:
    """Some code raises one instance repeatedly: the stamp of an earlier call does not count."""
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


def test_a_stamp_of_an_earlier_attempt() -> None:
    """What happened then was dealt with then."""
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
def test_an_inner_policy_that_stopped(stops_at: int, expected: str, calls: int) -> None:
    """At its first attempt it retried nothing, so nothing multiplies."""
    asked = iter(range(1, 9))
    judge: Callable[[Exception], bool] = lambda _: next(asked) < stops_at
    nest = Nest(inner={"on": judge, "attempts": 9}, nested="stop")
    assert (reason(nest.run()), nest.calls) == (expected, calls)


def test_clocks_that_cannot_be_compared() -> None:
    """Then the stamp is believed."""
    nest = Nest(inner={"clock": Virtual(-1e6)}, nested="stop")
    assert reason(nest.run()) == "nested"
