"""Durations and numbers in documents: every accepted spelling; ambiguous ones are refused."""

from __future__ import annotations

from datetime import date, timedelta
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redouble.config._document_path import DocPath
from redouble.config._options.values import (
    DurationValue,
    Flag,
    Listed,
    Number,
    TableOf,
    Text,
    Unlimited,
    Value,
    VariableText,
    Whole,
    plain,
)
from redouble.errors import ConfigError

HERE = DocPath(("policies", "a", "timeout"))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("250ms", 0.25),
        ("30s", 30.0),
        ("2m", 120.0),
        ("1.5h", 5400.0),
        ("1d", 86400.0),
        ("10us", 0.00001),
        ("1.1ms", 0.0011),
        ("0s", 0.0),
        ("  2 m\t", 120.0),
        ("007s", 7.0),
        (30, 30.0),
        (0.1, 0.1),
        (0, 0.0),
        (timedelta(minutes=1), 60.0),
    ],
)
def test_a_duration_is_parsed_to_seconds(value: Any, seconds: float) -> None:
    assert DurationValue().read(value, HERE) == seconds
    assert isinstance(DurationValue().read(value, HERE), float)


@pytest.mark.parametrize(
    "value",
    [
        *("", "s", "5", "5 parsecs", "1m30s", "-5s", "1e3s", "5S", "5 s s", ".5s", "5.s", "٣s", "+1s"),
        *(True, False, None, -1, -0.5, nan, inf, 10**400, [], {}, date(2020, 1, 1), b"5s", "1_000s"),
        *("9" * 400 + "d", timedelta(-1), object(), pytest.param(10**5000, id="huge")),
    ],
)
def test_an_invalid_duration_raises(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"is no duration: write seconds as a number.*'250ms'") as raised:
        DurationValue().read(value, HERE)
    assert raised.value.path == "policies.a.timeout"
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize("value", [0, 0.0, -0.0, timedelta(0)])
def test_a_limit_of_zero_needs_a_unit(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"write 'unlimited' for no limit, or '0s' if"):
        DurationValue(zero=False).read(value, HERE)
    assert DurationValue(zero=False).read("0s", HERE) == 0
    assert DurationValue(zero=False).write(0.0, HERE) == "0s"
    assert DurationValue().write(0.0, HERE) == 0


@settings(max_examples=50)
@given(st.floats(0, 1e300))
def test_a_duration_survives_a_round_trip(seconds: float) -> None:
    for kind in (DurationValue(), DurationValue(zero=False)):
        assert kind.read(kind.write(seconds, HERE), HERE) == seconds


KINDS: list[Any] = [
    (Whole(), [0, 1, 10**30], [-1, 1.0, "1", True, None, nan]),
    (Whole(1), [1, 5], [0, -1, 5.0, False]),
    (Whole(1, high=9), [1, 9], [0, 10, 10**5000]),
    (Number(), [0, 0.5, 1, 1e300], [-1, nan, inf, -inf, True, "1", None, 10**400]),
    (Number(1, 2), [1, 1.5, 2], [0.999, 2.001, 10**5000]),
    (Flag(), [True, False], [0, 1, "true", None]),
    (Text(), ["", "x"], [5, None, ["x"], b"x"]),
    (Unlimited(Whole()), [0, None, "unlimited"], ["none", "", -1, "Unlimited"]),
    (Listed(Whole(), least=1), [[1], [1, 2], (3,)], [[], "1", 1, [True], ["1"], None]),
    (Listed(Whole()), [[], [1]], [{}, None]),
    (TableOf(Text()), [{}, {"a": "b"}], [{"a": 1}, [], "a", {1: "a"}]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), KINDS)
def test_each_value_type_accepts_and_refuses(kind: Value, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        read = kind.read(value, HERE)
        assert kind.read(kind.write(read, HERE), HERE) == read
    for value in bad:
        with pytest.raises(ConfigError, match=r"^policies\.a\.timeout"):
            kind.read(value, HERE)


def test_an_error_mentions_unlimited_where_it_is_allowed() -> None:
    with pytest.raises(ConfigError, match=r"a whole number, 1 or more, or 'unlimited'$"):
        Unlimited(Whole(1)).read(0, HERE)
    with pytest.raises(ConfigError, match=r"timeout\.0: -1: write a whole number, 0 or more$"):
        Unlimited(Listed(Whole())).read([-1], HERE)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DurationValue(), "5s", "5s"),
        (DurationValue(), "5", 5),
        (DurationValue(), "0.5", 0.5),
        (DurationValue(), "nan", "nan"),
        (Whole(), "7", 7),
        (Whole(), "-7", -7),
        (Whole(), "7.0", "7.0"),
        (Whole(), "٣", "٣"),
        (Whole(), "1" * 5000, "1" * 5000),
        (Number(), "0.5", 0.5),
        (Number(), "inf", "inf"),
        (Number(), "x", "x"),
        (Flag(), "TRUE", True),
        (Flag(), "false", False),
        (Flag(), "1", "1"),
        (Text(), "a b", "a b"),
        (Listed(Number()), "0.1, 0.5", ["0.1", "0.5"]),
    ],
)
def test_the_text_of_a_variable_is_converted(kind: Value, text: str, value: object) -> None:
    assert kind.text(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Unlimited(Whole()), "unlimited", None),
        (Unlimited(Whole()), "3", 3),
        (Listed(Number()), "0.1, 0.5", (0.1, 0.5)),
        (Unlimited(Listed(Whole())), "1 ,2", (1, 2)),
        (Unlimited(Listed(Whole())), "unlimited", None),
    ],
)
def test_the_parts_of_a_variable_are_converted_by_their_own_type(
    kind: Value, text: str, value: object
) -> None:
    assert kind.read(VariableText(text), HERE) == value


@pytest.mark.parametrize(
    ("number", "written"), [(30.0, 30), (0.25, 0.25), (1e300, 1e300), (2.0**53, 2**53), (5, 5), (-0.0, 0)]
)
def test_a_whole_number_is_written_as_an_integer(number: float, written: float) -> None:
    assert repr(plain(number)) == repr(written)


def test_the_text_of_a_number_that_is_none_stays_a_text() -> None:
    assert [Number().text(text) for text in ("x", "1e999", "2")] == ["x", "1e999", 2]
