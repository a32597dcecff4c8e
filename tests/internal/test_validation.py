"""Errors of options name the option, the value and what to write instead, at construction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from math import inf, nan
from typing import Any

import pytest

from redouble import Backoff, Hints, Kind, Retry, Verdict
from redouble._internal.validation import instance, integer, methods, number, seconds


def hints(**options: Any) -> Hints:
    return Hints(**options)


WRONG: list[tuple[Callable[..., object], tuple[Any, ...], type[Exception], str]] = [
    (Backoff, (), TypeError, "constructor"),
    (Backoff.constant, (-1,), ValueError, "constant=-1"),
    (Backoff.constant, ("1s",), TypeError, "constant='1s'"),
    (Backoff.constant, (timedelta(seconds=-1),), ValueError, "constant=-1"),
    (Backoff.linear, (nan, 1), ValueError, "initial=nan"),
    (Backoff.linear, (1, True), TypeError, "increment=True"),
    (Backoff.exponential, (inf,), ValueError, "initial=inf"),
    (Backoff.exponential, (10**400,), ValueError, "initial is too large"),
    (Backoff.exponential, (1, 0.5), ValueError, "factor=0.5.*never shrink"),
    (Backoff.exponential, (1, inf), ValueError, "factor=inf"),
    (Backoff.exponential, (1, nan), ValueError, "factor=nan"),
    (Backoff.exponential, (1, 10**400), ValueError, "factor=10000"),
    (Backoff.exponential, (1, True), TypeError, "factor=True"),
    (Backoff.exponential, (1, timedelta(1)), TypeError, "factor="),
    (Backoff.random, (3, 2), ValueError, "low=3 is above high=2"),
    (Backoff.random, (None, 2), TypeError, "low=None"),
    (Backoff.random, (1, -2), ValueError, "high=-2"),
    (Backoff.decorrelated, (3, 2), ValueError, "base=3 is above cap=2"),
    (Backoff.decorrelated, (True, 2), TypeError, "base=True"),
    (Backoff.decorrelated, (1, inf), ValueError, "cap=inf"),
    (Backoff.fibonacci, (None,), TypeError, "initial=None"),
    (Backoff.of, ("123",), TypeError, "of='123'.*list"),
    (Backoff.of, (b"123",), TypeError, "of=b'123'"),
    (Backoff.of, (3,), TypeError, "of=3"),
    (Backoff.of, (iter([1, 2]),), TypeError, "only once"),
    (Backoff.of, ((n for n in (1, 2)),), TypeError, "only once"),
    (Backoff.of, ([1, -2],), ValueError, "of=-2"),
    (Backoff.of, ((1, "2"),), TypeError, "of='2'"),
    (Backoff.of, ([nan],), ValueError, "of=nan"),
    (Backoff.of, ([False],), TypeError, "of=False"),
    (Backoff.constant(1).minimum, (-1,), ValueError, "minimum=-1"),
    (Backoff.constant(1).maximum, (nan,), ValueError, "maximum=nan"),
    (Backoff.constant(1).maximum, (None,), TypeError, "maximum=None"),
    (Backoff.constant(1).jitter, (1.5,), ValueError, "jitter=1.5.*between 0 and 1"),
    (Backoff.constant(1).jitter, (-0.1,), ValueError, "jitter=-0.1"),
    (Backoff.constant(1).jitter, (nan,), ValueError, "jitter=nan"),
    (Backoff.constant(1).jitter, (True,), TypeError, "jitter=True"),
    (Backoff.constant(1).take, (-1,), ValueError, "take=-1"),
    (Backoff.constant(1).take, (2.0,), TypeError, "take=2.0"),
    (Backoff.constant(1).take, (True,), TypeError, "take=True"),
    (Verdict, ("later",), ValueError, "action='later': write 'retry', 'stop' or 'accept'"),
    (Verdict, ("retry", "bogus"), ValueError, "kind='bogus': write a Kind"),
    (Verdict, ("retry", None, True), TypeError, "after=True: write seconds as a number, or a timedelta"),
    (Verdict, ("retry", None, "5"), TypeError, "after='5'"),
    (Verdict, ("retry", None, nan), ValueError, "after=nan: write a number of seconds"),
    (Verdict, ("retry", None, None, "yes"), TypeError, "sent='yes'"),
    (partial(hints, mode="never"), (), ValueError, "mode='never': write 'at_least', 'instead' or 'ignore'"),
    (partial(hints, mode=None), (), ValueError, "mode=None"),
    (partial(hints, longest=-1), (), ValueError, "longest=-1"),
    (partial(hints, longest=True), (), TypeError, "longest=True"),
    (partial(hints, over=nan), (), ValueError, "over=nan"),
    (partial(hints, over="1s"), (), TypeError, "over='1s'"),
    (partial(hints, spread=1.1), (), ValueError, "spread=1.1: write a number between 0 and 1"),
    (partial(hints, spread=-0.1), (), ValueError, "spread=-0.1"),
    (partial(hints, spread=nan), (), ValueError, "spread=nan"),
    (partial(hints, spread=10**400), (), ValueError, "spread=1000"),
    (partial(hints, spread=False), (), TypeError, "spread=False"),
    (partial(hints, spread=None), (), TypeError, "spread=None"),
]


@pytest.mark.parametrize(("make", "args", "kind", "message"), WRONG)
def test_invalid_values_are_refused(
    make: Callable[..., object], args: tuple[Any, ...], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        make(*args)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0.0), (3, 3.0), (0.25, 0.25), (-0.0, 0.0), (timedelta(milliseconds=250), 0.25), (timedelta(0), 0.0)],
)
def test_seconds_are_floats(value: object, expected: float) -> None:
    found = seconds(value, "timeout")
    assert type(found) is float
    assert found == expected


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (True, TypeError, "timeout=True: write seconds as a number, or a timedelta"),
        (None, TypeError, "timeout=None: write seconds as a number, or a timedelta"),
        ([1], TypeError, "timeout=[1]: write seconds"),
        (1j, TypeError, "timeout=1j: write seconds"),
        ("250ms", TypeError, "timeout='250ms': write seconds as a number, or a timedelta (a text such as"),
        (-1, ValueError, "timeout=-1: write a finite number of seconds, 0 or more"),
        (timedelta(days=-1), ValueError, "timeout=-86400.0: write a finite number of seconds, 0 or more"),
        (nan, ValueError, "timeout=nan: write a finite number of seconds"),
        (inf, ValueError, "timeout=inf: write a finite number of seconds"),
        (-inf, ValueError, "timeout=-inf: write a finite number of seconds"),
        (10**400, ValueError, "timeout is too large for a float: write a number of seconds"),
    ],
)
def test_invalid_durations_are_refused(value: object, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        seconds(value, "timeout")
    assert str(caught.value).startswith(message)
    assert caught.value.__cause__ is None


def test_numbers_that_python_cannot_format_are_refused() -> None:
    """An integer with so many digits cannot be formatted, but it is rejected nevertheless."""
    huge = 10**5000
    with pytest.raises(ValueError, match="attempts=a huge integer: write a whole number"):
        Retry(attempts=-huge)
    with pytest.raises(ValueError, match="Hints spread=a huge integer: write a number between 0 and 1"):
        Hints(spread=huge)
    with pytest.raises(ValueError, match="factor=a huge integer: write a finite number"):
        Backoff.exponential(1, huge)
    assert Retry(attempts=huge).attempts == huge


def test_bounds_are_inclusive() -> None:
    assert [number(n, "spread", 0, 1, "0 to 1") for n in (0, 0.5, 1)] == [0.0, 0.5, 1.0]
    assert type(number(1, "spread", 0, 1, "0 to 1")) is float
    assert [integer(n, "attempts", 1, "1 or more") for n in (1, 10**400)] == [1, 10**400]


class Budget:
    started = 3

    def spend(self) -> None: ...


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (partial(number, "1", "spread", 0, 1, "0 to 1"), "spread='1': write 0 to 1"),
        (partial(integer, 1.0, "attempts", 1, "1 or more"), "attempts=1.0: write 1 or more"),
        (partial(instance, int, "name", str, "a text"), "name=<class 'int'>: write a text"),
        (partial(instance, 3, "name", str, "a text"), "name=3: write a text"),
        (partial(methods, Budget, "budget", ("spend",)), "budget=Budget is a class: write Budget(...)"),
        (partial(methods, 3, "budget", ("spend",)), "budget=3 cannot be a budget: it has no method spend()"),
        (partial(methods, Budget(), "budget", ("spend", "started")), "it has no method started()"),
    ],
)
def test_values_of_the_wrong_type_are_refused(check: Callable[[], object], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        check()
    assert message in str(caught.value)


def test_objects_with_the_methods_are_accepted() -> None:
    methods(Budget(), "budget", ("spend",))
    instance(None, "name", str | None, "a text")


def test_verdicts_and_hints_are_values() -> None:
    assert Verdict("retry", Kind("server"), 3) == Verdict.retry(kind=Kind.server, after=timedelta(seconds=3))
    assert Verdict.stop(kind=Kind.client, sent=True, reason="http_4xx") == Verdict(
        "stop", Kind.client, None, True, "http_4xx"
    )
    assert Verdict.accept() == Verdict("accept")
    assert Verdict.retry(after=-5).after == 0.0
    assert Verdict.retry(after=10**400).after == 1e300
    assert Hints(longest=timedelta(minutes=1), over=2) == Hints(longest=60, over=timedelta(seconds=2))
    assert len({Verdict.retry(), Verdict("retry"), Verdict.stop(), Hints(), Hints(spread=0.1)}) == 3
    for value in (Verdict.stop(), Hints()):
        with pytest.raises(AttributeError):
            setattr(value, "mode", "ignore")  # noqa: B010
