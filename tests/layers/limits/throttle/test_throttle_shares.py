"""A throttle with classes: calls of the lowest are rejected first, and each class has its share."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from math import fsum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import SYSTEM, Throttle, errors, priority
from redouble._internal import reentrancy
from redouble._internal.callables import UsageError
from redouble._layers.limits import throttle as _throttle
from redouble._layers.limits.shares import allotment
from redouble.config import from_mapping, to_mapping
from redouble.testing import virtual_time
from tests.support.fakes import ASYNC, Boom, Draws, in_colour
from tests.support.interruption import SignalHandler
from tests.support.layers.limits.throttles import NEVER, with_history

TWO = {"interactive": 0.6, "batch": 0.1}
NAMES = ["interactive", "batch", None]

# ---------------------------------------------------------------------------- the shares


@pytest.mark.parametrize(
    ("admitted", "demand", "expected"),
    [
        (100, [60, 10, 30], [60, 10, 30]),
        (50, [60, 20, 20], [45, 5, 0]),
        (50, [10, 60, 30], [10, 40, 0]),
        (50, [10, 10, 80], [10, 10, 30]),
        (0, [10, 10, 10], [0, 0, 0]),
        (30, [0, 0, 60], [0, 0, 30]),
    ],
)
def test_what_is_left_goes_to_the_highest(admitted: float, demand: list[int], expected: list[float]) -> None:
    assert allotment(TWO, admitted, dict(zip(NAMES, demand, strict=True))) == pytest.approx(expected)


@given(st.floats(0, 1), st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_all_that_is_admitted_is_allotted_and_shares_are_kept(part: float, needs: list[int]) -> None:
    demand = dict(zip(NAMES, needs, strict=True))
    admitted = part * sum(needs)
    got = allotment(TWO, admitted, demand)
    assert fsum(got) == pytest.approx(admitted)
    for name, needed, each in zip(NAMES, needs, got, strict=True):
        assert -1e-6 <= each <= needed + 1e-6
        assert each >= min(needed, TWO.get(name or "", 0) * admitted) - 1e-6
    lacking = [needed - each > 1e-6 for needed, each in zip(needs, got, strict=True)]
    if lacking[0]:  # then no lower class has more than its share
        assert got[1] <= TWO["batch"] * admitted + 1e-6
        assert got[2] <= 1e-6


def test_under_pressure_the_lowest_class_goes_first() -> None:
    """The service accepts twenty calls a second, of a hundred."""
    chance = random.Random(1)
    throttle = Throttle(shares=TWO, window=10, random=chance)
    admitted, asked = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0)
    accepted = 0
    with virtual_time() as clock:
        for number in range(6000):
            clock.advance(0.01)
            accepted = 0 if number % 100 == 0 else accepted
            name = chance.choice(["interactive", "interactive", "batch", None])
            asked[name] += 1
            try:
                with priority(name):
                    throttle.admit(clock.now())
            except errors.Rejected:
                continue
            admitted[name] += 1
            accepted += 1
            throttle.ended(None, None if accepted <= 20 else Boom(), clock.now())
        seen = throttle.snapshot()
    parts = [admitted[name] / asked[name] for name in NAMES]
    assert parts[0] > 0.7
    assert 0.3 > parts[1] > 0.1
    assert parts[2] < 0.1
    assert seen["share.interactive"] < seen["share.batch"]


def test_the_share_of_a_class_without_calls() -> None:
    with virtual_time():
        throttle = with_history(Throttle(shares=TWO), 0, 1)
        assert throttle.snapshot() == {
            "share": 0.5,
            "requests": 1,
            "accepts": 0,
            "share.interactive": 0.5,
            "share.batch": 0.5,
        }


# ------------------------------------------------------------------- the class of a call


def first(name: Any) -> Any:
    """Return the class that a call names; raise if that is a mistake."""
    if name == "boom":
        raise Boom
    return name


def zero(name: Any = None) -> int:
    return 0


async def azero(name: Any = None) -> int:
    return 0


def items(name: Any = None) -> Iterator[int]:
    yield 0


def limiting(**options: Any) -> Throttle:
    """Return a throttle that rejects every call, with the class in its error."""
    return with_history(Throttle(shares=TWO, random=Draws(0.0), **options), 0, 99, SYSTEM.now())


@pytest.mark.parametrize("colour", ["sync", *ASYNC])
@pytest.mark.parametrize("until", [None, callable])
def test_the_class_in_the_error(colour: str, until: Any) -> None:
    for options, within, args, text in (
        ({}, None, (), "of the calls are"),
        ({}, "batch", (), "of the calls of class batch are"),
        ({}, "other", (), "of the calls of class other are"),
        ({"priority": "interactive"}, None, (), "of the calls of class interactive are"),
        ({"priority": first}, None, ("batch",), "of the calls of class batch are"),
        ({"priority": first}, "interactive", (None,), "of the calls of class interactive are"),
    ):
        with priority(within):
            throttle = limiting(until=until, **options)
            for _ in range(2):
                with pytest.raises(errors.Rejected, match=text):
                    in_colour(
                        colour,
                        lambda throttle=throttle, args=args: throttle(zero)(*args),  # type: ignore[misc]
                        lambda throttle=throttle, args=args: throttle(azero)(*args),  # type: ignore[misc]
                    )


def test_blocks_and_streams() -> None:
    with virtual_time():
        throttle = limiting(priority=first)
        with pytest.raises(errors.Rejected, match="class batch"):
            list(throttle(items)("batch"))
        with priority("batch"), pytest.raises(errors.Rejected, match="class batch"), throttle:
            pass
        idle = Throttle(shares=TWO)
        with idle:
            pass
        assert list(idle(items)()) == [0]


def test_a_function_that_raises(colour: str) -> None:
    """It is called before each call, so that a mistake shows at once."""
    throttle = Throttle(shares=TWO, priority=first)
    with pytest.raises(Boom):
        in_colour(colour, lambda: throttle(zero)("boom"), lambda: throttle(azero)("boom"))
    with pytest.raises(UsageError, match="returned a value of type int"):
        in_colour(
            colour, lambda: limiting(priority=first)(zero)(3), lambda: limiting(priority=first)(azero)(3)
        )


class Own(Throttle):
    """A throttle of a user's that admits every call."""

    def admit(self, now: float, /) -> None:
        """Admit it."""


def test_a_subclass_with_its_own_admission() -> None:
    throttle = with_history(Own(shares=TWO, random=Draws(0.0)), 0, 99, SYSTEM.now())
    with throttle:
        pass


# --------------------------------------------------------------------- results as failures


def test_a_refused_result_is_not_accepted(colour: str) -> None:
    throttle = Throttle(until=bool, random=Draws(NEVER))
    assert in_colour(colour, throttle(zero), throttle(azero)) == 0
    assert in_colour(colour, lambda: throttle.call(str, "x"), lambda: throttle.call(atext)) == "x"
    with throttle as admission:
        admission.failed(503)
    seen = throttle.snapshot()
    assert (seen["requests"], seen["accepts"]) == (3, 1)


async def atext() -> str:
    return "x"


# ------------------------------------------------------------------------------- options


def test_what_it_says() -> None:
    throttle = Throttle(shares=TWO)
    assert (
        throttle.describe()
        == "at most 2 calls for each one accepted in 120 s, 60% for interactive, 10% for batch"
    )
    assert repr(throttle) == f"Throttle(2, window=120, shares={TWO})"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": {"a": 2}}, "Throttle shares['a']=2"),
        ({"priority": "a"}, "Throttle priority='a' needs shares"),
        ({"until": 3}, "until=3"),
    ],
)
def test_wrong_options(options: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        Throttle(**options)


def test_changes_in_place() -> None:
    with virtual_time():
        throttle = with_history(Throttle(shares=TWO, name="a"), 0, 3)
        other = Throttle(5, minimum=9, shares={"batch": 1}, on=Boom)
        assert throttle.can_reconfigure(other)
        throttle.reconfigure(other)
        assert throttle.snapshot() == {"share": 0, "requests": 3, "accepts": 0, "share.batch": 0}
        assert (throttle.name, throttle.settings.k) == ("a", 5)
        for changed in (
            Throttle(),
            Throttle(shares=TWO, window=5),
            Throttle(shares=TWO, priority=first),
        ):
            assert not throttle.can_reconfigure(changed)


FILES = {module.__file__ for module in (_throttle, reentrancy)}


def test_a_class_may_lose_its_share_while_a_call_of_it_is_judged() -> None:
    number, more = 0, True
    while more:
        number += 1
        with virtual_time() as clock, priority("batch"):
            throttle = with_history(Throttle(1, shares=TWO, random=Draws(NEVER)), 5, 5, clock.now())
            other = Throttle(1, shares={"interactive": 0.6}, random=Draws(NEVER))
            change = partial(throttle.reconfigure, other)
            more = SignalHandler(FILES, change, number).interrupt(partial(throttle.call, str))
            throttle.snapshot()
    assert number > 10


def test_in_a_document() -> None:
    gate = {"type": "throttle", "shares": {"interactive": 0.6, "batch": 0.1}, "priority": "batch"}
    document = {"gates": {"api": gate}}
    assert to_mapping(from_mapping(document)) == document
