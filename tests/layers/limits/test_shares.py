"""The options `shares` and `priority`: what they accept, and the class of a call."""

from __future__ import annotations

import re
from typing import Any

import pytest

from redouble import priority
from redouble._internal.callables import UsageError
from redouble._layers.limits.shares import Shares, describe_shares, same_function, shares_option

TWO = {"interactive": 0.6, "batch": 0.1}


def test_shares_keep_their_order() -> None:
    shares = Shares(TWO, None, "Bulkhead")
    assert [*shares.shares] == ["interactive", "batch"]
    assert [shares.of(name) for name in ("interactive", "batch", "other", None)] == [0.6, 0.1, 0, 0]
    assert describe_shares(shares) == "60% for interactive, 10% for batch"
    assert repr(shares) == repr(TWO)


def test_a_gate_without_shares() -> None:
    assert shares_option(None, None, "Bulkhead") is None


@pytest.mark.parametrize("shares", [{"a": 1}, {"a": 0.5, "b": 0.5}, {"a": 0.1, "b": 0.2, "c": 0.7}, {"a": 0}])
def test_shares_up_to_one(shares: dict[str, float]) -> None:
    assert Shares(shares, None, "Bulkhead").shares == shares


@pytest.mark.parametrize(
    ("shares", "kind", "message"),
    [
        ({}, ValueError, "Bulkhead shares={} is empty: write shares by class, such as"),
        (0.5, TypeError, "Bulkhead shares=0.5: write a dict of shares by class, such as"),
        (
            {"a": 0.6, "b": 0.5},
            ValueError,
            "Bulkhead shares= add up to 1.1: guarantee 1.0 or less",
        ),
        ({"a": 1.5}, ValueError, "Bulkhead shares['a']=1.5: write a share from 0 to 1, such as 0.1"),
        ({"a": -0.1}, ValueError, "Bulkhead shares['a']=-0.1"),
        ({"a": "x"}, TypeError, "Bulkhead shares['a']='x'"),
        ({1: 0.5}, TypeError, "Bulkhead shares: the class 1 is no text: write a name such as 'batch'"),
        ({"": 0.5}, ValueError, "Bulkhead shares: the class '' has no name: write one such as 'batch'"),
    ],
)
def test_wrong_shares(shares: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        shares_option(shares, None, "Bulkhead")


def work(one: int) -> None:
    """Do nothing."""


@pytest.mark.parametrize(
    ("shares", "chosen", "kind", "message"),
    [
        (None, "batch", TypeError, "Bulkhead priority='batch' needs shares, such as shares={"),
        (None, work, TypeError, "Bulkhead priority=work needs shares, such as shares={"),
        (
            TWO,
            "other",
            ValueError,
            "Bulkhead priority='other' is not in shares: write 'interactive' or 'batch'",
        ),
        (TWO, 1, TypeError, "Bulkhead priority=1: write the name of a class, or a function such as"),
    ],
)
def test_wrong_priorities(shares: Any, chosen: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=re.escape(message)):
        shares_option(shares, chosen, "Bulkhead")


def test_the_class_of_the_context() -> None:
    plain, defaulting = Shares(TWO, None, "Bulkhead"), Shares(TWO, "batch", "Bulkhead")
    assert (plain.current(), defaulting.current()) == (None, "batch")
    with priority("interactive"):
        assert (plain.current(), defaulting.current()) == ("interactive", "interactive")


def class_of_call(name: Any, *, size: int = 1) -> Any:
    return name


def test_the_class_of_a_function() -> None:
    shares = Shares(TWO, class_of_call, "Bulkhead")
    assert shares.per_call is not None
    class_of = shares.per_call.evaluate
    assert class_of("batch", size=3) == "batch"
    assert class_of(None) is None
    with priority("interactive"):
        assert (class_of("batch"), class_of(None)) == ("batch", "interactive")
    with pytest.raises(UsageError, match="returned a value of type int: return the name of a class, or None"):
        class_of(3)


def test_functions_that_differ() -> None:
    none, one, other = None, Shares(TWO, work, "Bulkhead"), Shares(TWO, class_of_call, "Bulkhead")
    named, unnamed = Shares(TWO, "batch", "Bulkhead"), Shares({"a": 1}, None, "Bulkhead")
    assert same_function(one, Shares({"a": 1}, work, "Bulkhead"))
    equal = [(none, none), (named, unnamed), (named, none)]
    pairs = [*equal, (none, one), (one, other), (one, named), (unnamed, other)]
    assert [pair for pair in pairs if same_function(*pair)] == equal
