"""Backoffs in documents: by type, with short keys or a chain, and written back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from redouble import Backoff, Kind, Retry
from redouble.config import policy, to_mapping
from redouble.errors import ConfigError


def read(value: Any) -> Any:
    return policy({"backoff": value}).backoff


@pytest.mark.parametrize(
    ("value", "backoff"),
    [
        ({"type": "constant", "delay": "1s"}, Backoff.constant(1)),
        ({"type": "linear", "initial": 1, "increment": "500ms"}, Backoff.linear(1, 0.5)),
        ({"type": "exponential", "initial": "200ms"}, Backoff.exponential(0.2)),
        ({"type": "exponential", "initial": "200ms", "factor": 3}, Backoff.exponential(0.2, 3)),
        ({"type": "random", "low": 1, "high": 2}, Backoff.random(1, 2)),
        ({"type": "decorrelated", "base": 1, "cap": 2}, Backoff.decorrelated(1, 2)),
        ({"type": "fibonacci", "initial": 1}, Backoff.fibonacci(1)),
        ({"type": "of", "delays": [1, "2s"]}, Backoff.of([1, 2])),
        ({"type": "of", "delays": []}, Backoff.of([])),
        ({"type": "constant", "delay": 1, "maximum": 2}, Backoff.constant(1).maximum(2)),
        (
            {"type": "constant", "delay": 1, "take": 3, "jitter": "full", "maximum": 2, "minimum": 0.5},
            Backoff.constant(1).minimum(0.5).maximum(2).full_jitter().take(3),
        ),
        ({"type": "constant", "delay": 1, "jitter": "equal"}, Backoff.constant(1).equal_jitter()),
        ({"type": "constant", "delay": 1, "jitter": 0.25}, Backoff.constant(1).jitter(0.25)),
        ({"type": "constant", "delay": 1, "then": []}, Backoff.constant(1)),
        (
            {
                "type": "constant",
                "delay": 1,
                "then": ["full_jitter", {"maximum": 5}, {"jitter": 0.1}, "equal_jitter", {"take": 3}],
            },
            Backoff.constant(1).full_jitter().maximum(5).jitter(0.1).equal_jitter().take(3),
        ),
        ([0.1, "500ms", 2], (0.1, 0.5, 2.0)),
        ([], ()),
        (
            {"throttled": {"type": "constant", "delay": 5}, "others": [1]},
            {Kind.throttled: Backoff.constant(5), None: Backoff.of([1])},
        ),
    ],
)
def test_a_backoff_is_parsed_and_survives_a_round_trip(value: Any, backoff: object) -> None:
    made = read(value)
    assert made == backoff
    assert read(to_mapping(Retry(backoff=made))["backoff"]) == made


@pytest.mark.parametrize(
    ("backoff", "written"),
    [
        (Backoff.exponential(0.2).maximum(5), {"type": "exponential", "initial": 0.2, "maximum": 5}),
        (
            Backoff.constant(1).minimum(1).equal_jitter().take(2),
            {"type": "constant", "delay": 1, "minimum": 1, "jitter": "equal", "take": 2},
        ),
        (
            Backoff.constant(1).full_jitter().maximum(2),
            {"type": "constant", "delay": 1, "then": ["full_jitter", {"maximum": 2}]},
        ),
        (
            Backoff.constant(1).maximum(2).maximum(1),
            {"type": "constant", "delay": 1, "then": [{"maximum": 2}, {"maximum": 1}]},
        ),
        (
            Backoff.constant(1).full_jitter().jitter(0.5),
            {"type": "constant", "delay": 1, "then": ["full_jitter", {"jitter": 0.5}]},
        ),
        (Backoff.exponential(1, 3).take(9), {"type": "exponential", "initial": 1, "factor": 3, "take": 9}),
        (Backoff.constant(1).take(10**30), {"type": "constant", "delay": 1, "take": 2**53}),
        (Backoff.of((1, 2)).jitter(1), {"type": "of", "delays": [1, 2], "jitter": 1}),
    ],
)
def test_a_backoff_is_written_with_short_keys_if_possible(backoff: Backoff, written: object) -> None:
    assert to_mapping(backoff) == written
    assert read(written) == backoff
    assert to_mapping(Retry(backoff=backoff)) == {"backoff": written}


class Own:
    """A user-defined iterable."""

    def __iter__(self) -> Any:
        return iter([1.0])


@pytest.mark.parametrize("delays", [range(3), Own()])
def test_a_custom_iterable_cannot_be_written(delays: Iterable[float]) -> None:
    rows: list[tuple[str, Any]] = [
        ("backoff", delays),
        ("backoff", Backoff.of(delays).maximum(1)),
        ("backoff.others", {None: delays}),
    ]
    for path, backoff in rows:
        with pytest.raises(ConfigError, match="is an iterable of your own: set it in code") as raised:
            to_mapping(Retry(backoff=backoff))
        assert raised.value.path == path


MISTAKES: list[Any] = [
    ({"type": "exponential"}, "initial", "missing: the first delay"),
    ({"type": "linear", "initial": 1}, "increment", "missing"),
    ({"type": "random", "low": 1}, "high", "missing"),
    ({"type": "decorrelated", "cap": 1}, "base", "missing"),
    ({"type": "fibonacci"}, "initial", "missing"),
    ({"type": "constant", "maximum": 2}, "delay", "missing"),
    ({"type": "of"}, "delays", "missing"),
    ({"type": "exponental", "initial": 1}, "type", "did you mean 'exponential'"),
    ({"type": 5}, "type", "write one of constant"),
    ({"type": None}, "type", "write one of constant"),
    ({"initial": 1}, "type", "missing: write one of constant"),
    ({}, "type", "missing: write one of constant"),
    ({"type": "constant", "delay": 1, "maxium": 2}, "maxium", "did you mean 'maximum'"),
    ({"type": "constant", "delay": 1, "initial": 2}, "initial", "no such key"),
    ({"type": "constant", "delay": -1}, "delay", "is no duration"),
    ({"type": "constant", "delay": 1, "jitter": 2}, "jitter", "write a number, from 0 to 1"),
    ({"type": "constant", "delay": 1, "jitter": "half"}, "jitter", "write 'full', 'equal', or a share"),
    ({"type": "constant", "delay": 1, "jitter": True}, "jitter", "write a number"),
    ({"type": "constant", "delay": 1, "take": 1.0}, "take", "write a whole number"),
    ({"type": "constant", "delay": 1, "take": -1}, "take", "write a whole number"),
    ({"type": "exponential", "initial": 1, "factor": 0.5}, "factor", "write a number, 1 or more"),
    ({"type": "random", "low": 2, "high": 1}, "low", "is above high=1.0"),
    ({"type": "decorrelated", "base": 2, "cap": 1}, "base", "is above cap=1.0"),
    ({"type": "constant", "delay": 1, "then": 5}, "then", "write a list such as"),
    ({"type": "constant", "delay": 1, "then": ["full_jiter"]}, "then.0", "did you mean 'full_jitter'"),
    ({"type": "constant", "delay": 1, "then": [5]}, "then.0", "is not a table: write 'full_jitter'"),
    ({"type": "constant", "delay": 1, "then": [{}]}, "then.0", "write a table with one key"),
    ({"type": "constant", "delay": 1, "then": [{"take": 1, "maximum": 1}]}, "then.0", "with one key"),
    ({"type": "constant", "delay": 1, "then": [{"max": 1}]}, "then.0.max", "did you mean 'maximum'"),
    ({"type": "constant", "delay": 1, "then": [{"jitter": "full"}]}, "then.0.jitter", "write a number"),
    ({"type": "constant", "delay": 1, "then": [{"jitter": 1.5}]}, "then.0.jitter", "from 0 to 1"),
    ({"type": "constant", "delay": 1, "then": [], "take": 1}, "take", "write it into the list `then`"),
    ("exponential", "", "is not a table: write one such as { type = 'exponential', initial = '200ms'"),
    (5, "", "is not a table"),
    (None, "", "is not a table"),
    (True, "", "is not a table"),
    ([1, "x"], "1", "is no duration"),
    ([None], "0", "is no duration"),
    ({"throttled": [1], "other": [1]}, "other", "did you mean 'others'"),
    ({"throttled": [1]}, "others", "missing: write it too"),
    ({"throttled": {"others": [1]}}, "throttled.type", "missing: write one of constant"),
    ({"others": {"type": "constant"}}, "others.delay", "missing"),
]


@pytest.mark.parametrize(("value", "path", "message"), MISTAKES)
def test_an_invalid_backoff_raises_with_its_path(value: Any, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("{", r"\{").replace("[", r"\[")) as raised:
        read(value)
    assert raised.value.path == f"backoff.{path}".rstrip(".")
