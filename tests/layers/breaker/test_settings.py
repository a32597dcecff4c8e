"""The options of a circuit breaker are validated when it is made, and an error names the fix."""

from __future__ import annotations

from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import CircuitBreaker
from tests.support.fakes import UnhashableRule

DEFAULTS: dict[str, Any] = {
    "failures": 5,
    "ratio": None,
    "window": 30,
    "minimum": 20,
    "slow": None,
    "cooldown": 30,
    "probes": 1,
    "reopening": None,
}


def numbers(*args: Any, **options: Any) -> dict[str, Any]:
    """Return the settings of a breaker that decide when it opens and closes."""
    settings = CircuitBreaker(*args, **options).settings
    return {option: getattr(settings, option) for option in DEFAULTS}


def test_the_defaults() -> None:
    assert numbers() == DEFAULTS


def test_all_options_are_converted() -> None:
    minute = timedelta(minutes=1)
    checked = numbers(OSError, 1, 1, minute, 2, timedelta(seconds=2), 0, 3, [0.1, 0.5, 1])
    assert list(checked.values()) == [1, 1.0, 60.0, 2, 2.0, 0.0, 3, (0.1, 0.5, 1.0)]


def test_options_may_be_given_by_position() -> None:
    checked = numbers(OSError, 2, 0.5, 10, 4, 1, 5, 2, (0.1,))
    assert list(checked.values()) == [2, 0.5, 10, 4, 1, 5, 2, (0.1,)]


@pytest.mark.parametrize(
    ("wrong", "kind", "expected"),
    [
        *(
            row
            for option in ("failures", "minimum", "probes")
            for row in (
                ({option: 0}, ValueError, rf"{option}=0: write a whole number, 1 or more, such as "),
                ({option: -1}, ValueError, rf"{option}=-1: write a whole number"),
                ({option: 10**5000 * -1}, ValueError, rf"{option}=a huge integer: write a whole number"),
                ({option: 1.0}, TypeError, rf"{option}=1\.0: write a whole number"),
                ({option: True}, TypeError, rf"{option}=True: write a whole number"),
                ({option: None}, TypeError, rf"{option}=None: write a whole number"),
            )
        ),
        *(
            row
            for option in ("window", "slow", "cooldown")
            for row in (
                ({option: -1}, ValueError, rf"{option}=-1: write a finite number of seconds"),
                ({option: inf}, ValueError, rf"{option}=inf: write a finite number of seconds"),
                ({option: nan}, ValueError, rf"{option}=nan: write a finite number of seconds"),
                ({option: True}, TypeError, rf"{option}=True: write seconds as a number, or a timedelta"),
                ({option: "1s"}, TypeError, rf"{option}='1s': write seconds as a number"),
            )
        ),
        *(({option: 0}, ValueError, rf"{option}=0: write more seconds") for option in ("window", "slow")),
        ({"window": None}, TypeError, r"window=None: write seconds"),
        ({"cooldown": None}, TypeError, r"cooldown=None: write seconds"),
        ({"ratio": 0}, ValueError, r"ratio=0: write a share above 0 and up to 1, such as 0\.5"),
        ({"ratio": 1.01}, ValueError, r"ratio=1\.01: write a share"),
        ({"ratio": -0.5}, ValueError, r"ratio=-0\.5: write a share"),
        ({"ratio": nan}, ValueError, r"ratio=nan: write a share"),
        ({"ratio": True}, TypeError, r"ratio=True: write a share"),
        ({"ratio": "50%"}, TypeError, r"ratio='50%': write a share"),
        ({"calls": 9}, ValueError, r"calls=9: write ratio= or slow_ratio= too, the share of these calls"),
        ({"reopening": ()}, TypeError, r"reopening=\(\): write shares that rise, such as \(0\.1, 0\.5\)"),
        ({"reopening": 0.5}, TypeError, r"reopening=0\.5: write shares that rise"),
        ({"reopening": "0.1"}, TypeError, r"reopening='0\.1': write shares that rise"),
        ({"reopening": {0.1: 0.5}}, TypeError, r"reopening=\{0\.1: 0\.5\}: write shares that rise"),
        ({"reopening": [0.5, 0.1]}, ValueError, r"reopening=\[0\.5, 0\.1\]: write shares that rise"),
        ({"reopening": [0.5, 0.5]}, ValueError, r"reopening=\[0\.5, 0\.5\]: write shares that rise"),
        ({"reopening": [0, 0.5]}, ValueError, r"reopening=0: write a share above 0"),
        ({"reopening": [0.5, 2]}, ValueError, r"reopening=2: write a share above 0"),
        ({"reopening": ["x"]}, TypeError, r"reopening='x': write a share above 0"),
    ],
)
def test_wrong_options_are_reported(wrong: dict[str, Any], kind: type[Exception], expected: str) -> None:
    with pytest.raises(kind, match=f"^CircuitBreaker {expected}"):
        CircuitBreaker(**wrong)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "opens after 5 failures in a row, for 30 s"),
        ({"failures": 2, "cooldown": 0.5}, "opens after 2 failures in a row, for 0.5 s"),
        ({"ratio": 0.5}, "opens after 50% failures of at least 20 calls in 30 s, for 30 s"),
        ({"ratio": 0.07, "window": 1.5}, "opens after 7% failures of at least 20 calls in 1.5 s, for 30 s"),
        ({"ratio": 0.005, "minimum": 9}, "opens after 0.5% failures of at least 9 calls in 30 s, for 30 s"),
    ],
)
def test_settings_are_described(options: dict[str, Any], expected: str) -> None:
    assert CircuitBreaker(**options).describe() == expected


async def acoroutine(_: object) -> None: ...


@pytest.mark.parametrize(
    ("wrong", "kind", "expected"),
    [
        (
            {"on": ()},
            ValueError,
            r"CircuitBreaker on=\(\) is empty, so nothing would count: name an exception",
        ),
        ({"on": []}, ValueError, r"CircuitBreaker on=\[\] is empty"),
        (
            {"on": KeyboardInterrupt},
            ValueError,
            r"on=KeyboardInterrupt .*; write Exception or something narrower",
        ),
        ({"on": int}, TypeError, r"on=<class 'int'> is not an exception type: write a subclass of Exception"),
        ({"on": "OSError"}, TypeError, r"on='OSError': write an exception type"),
        ({"on": acoroutine}, TypeError, r"on=.*acoroutine.* rules are plain functions"),
        ({"name": 5}, TypeError, r"CircuitBreaker name=5: write a text, or None"),
        ({"on_change": 5}, TypeError, r"on_change=5: write a function of one event"),
        ({"on_change": acoroutine}, TypeError, r"on_change=.*would never run: observers are plain functions"),
        ({"on_change": lambda: None}, TypeError, r"on_change=.*: write a function of one event"),
        ({"clock": 5}, TypeError, r"clock=5 cannot be a clock: it has no method now\(\)"),
        (
            {"clock": UnhashableRule},
            TypeError,
            r"clock=UnhashableRule is a class: write UnhashableRule\(\.\.\.\)",
        ),
        ({"random": 0.5}, TypeError, r"random=0\.5 cannot be a random: it has no method random\(\)"),
    ],
)
def test_wrong_rules_observers_and_clocks_are_reported(
    wrong: dict[str, Any], kind: type[Exception], expected: str
) -> None:
    with pytest.raises(kind, match=f"^{expected}"):
        CircuitBreaker(**wrong)
