"""When to come back: what a rejection asks for is a hint, whatever rule says that it is retried."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from conftest import Drive
from redouble import CircuitBreaker, Hints, Retry, TokenBucket, Verdict, errors, testing, transient
from support import Boom, Call, Judge, Script, Virtual, always, in_colour, ok

SHUT = errors.Rejected("shut", retry_after=7)


class Shut(errors.Rejected):
    """A rejection of one's own, which asks for whatever it likes."""

    def __init__(self, retry_after: Any) -> None:
        super().__init__("shut")
        self.retry_after = retry_after


@pytest.mark.parametrize(
    "on",
    [
        errors.Rejected,
        Exception,
        (KeyError, errors.Rejected),
        [errors.CircuitOpen, errors.Rejected],
        always(True),
        always(Verdict.retry()),
        [always(None), Exception],
        Judge(),
        transient,
    ],
)
def test_what_a_gate_asks_for_is_waited_for(drive: Drive, on: Any) -> None:
    assert drive([SHUT, ok(3)], on=on) == Call(3, attempts=2, sleeps=[7])


@pytest.mark.parametrize(
    ("on", "sleeps"),
    [(always(2.5), [2.5]), (always(Verdict.retry(after=3)), [3]), (always(0), [])],
)
def test_what_a_rule_asks_for_comes_first(drive: Drive, on: Callable[..., Any], sleeps: list[float]) -> None:
    assert drive([SHUT, ok(3)], on=on) == Call(3, attempts=2, sleeps=sleeps)


@pytest.mark.parametrize("on", [always(False), always(None), KeyError, always(Verdict.stop())])
def test_what_is_not_retried_is_not_waited_for(drive: Drive, on: Any) -> None:
    script: Script = [SHUT, ok(3)]
    assert drive(script, on=on) == Call(raises=errors.Rejected, reason="stopped", attempts=1, sleeps=[])


def test_hints_may_be_ignored(drive: Drive) -> None:
    ignoring = Hints(mode="ignore")
    assert drive([SHUT, ok(3)], on=errors.Rejected, hints=ignoring) == Call(3, attempts=2, sleeps=[])


def test_hints_may_be_too_long(drive: Drive) -> None:
    asked = drive([SHUT, ok(3)], on=errors.Rejected, hints=Hints(longest=6))
    assert asked == Call(raises=errors.Rejected, reason="hint_too_long", attempts=1)


@pytest.mark.parametrize("odd", [None, nan, "soon", True, -1, -inf])
@pytest.mark.parametrize("on", [errors.Rejected, always(True)])
def test_what_cannot_be_waited_for_is_no_hint(drive: Drive, on: Any, odd: Any) -> None:
    """The error is retried as any other, and not replaced by one about the hint."""
    assert drive([Shut(odd), ok(3)], on=on, backoff=[1]) == Call(3, attempts=2, sleeps=[1])


def test_one_that_asks_for_ever(drive: Drive) -> None:
    given_up = drive([Shut(inf), ok(3)], on=errors.Rejected, backoff=[1])
    assert given_up == Call(raises=Shut, reason="timeout", attempts=1, sleeps=[])


def test_other_errors_ask_for_nothing(drive: Drive) -> None:
    """Only of a rejection it is known what is meant; a rule may know more."""

    class Busy(Exception):
        retry_after = 7

    assert drive([Busy(), ok(3)], on=Busy) == Call(3, attempts=2, sleeps=[])


def test_retries_that_a_gate_refuses_cost_nothing(colour: str) -> None:
    """However many there are in a call: your function was not called."""
    clock, budget = Virtual(), TokenBucket()
    retry = Retry(on=Exception, backoff=[0] * 3, hints=Hints(mode="ignore"), budget=budget, clock=clock)
    pipeline = retry | CircuitBreaker(failures=1, clock=clock)
    script = testing.Script(Boom())
    with pytest.raises(errors.CircuitOpen):
        in_colour(colour, lambda: pipeline.call(script), lambda: pipeline.call(script.aio))
    assert len(script.calls) == 1
    assert budget.snapshot()["tokens"] == 500
