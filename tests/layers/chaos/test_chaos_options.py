"""The options of `Chaos`: latency, result, rate and switch; mistakes are reported when it is made."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from math import inf, nan
from typing import Any

import pytest

from redouble import Chaos, Pipeline, policy_of
from redouble.testing import virtual_time
from tests.support.fakes import Boom, in_colour
from tests.support.layers.chaos import afetch, call_with_chaos, fetch, items


async def aitems() -> AsyncIterator[str]:
    yield "fetched"


# ----------------------------------------------------------------------------- latency


@pytest.mark.parametrize(
    ("latency", "seconds"),
    [
        (3, 3),
        (0.25, 0.25),
        (0, 0),
        (timedelta(minutes=1), 60),
        (lambda: 4, 4),
        (lambda: timedelta(seconds=5), 5),
        (lambda: 0, 0),
    ],
)
def test_latency(latency: Any, seconds: float) -> None:
    assert call_with_chaos(latency=latency) == ("fetched", seconds)


def test_a_latency_function_is_called_for_each_call() -> None:
    numbers = iter([1, 0, 3])
    chaos = Chaos(latency=lambda: next(numbers), rate=1)
    with virtual_time() as clock:
        for _ in range(3):
            chaos.call(fetch)
    assert clock.delays == [1, 3]


@pytest.mark.parametrize("returned", [-1, nan, inf, "2s", None, True])
def test_a_function_that_returns_no_latency_is_reported(returned: Any) -> None:
    error, moment = call_with_chaos(latency=lambda: returned, fault=Boom)
    assert isinstance(error, TypeError | ValueError)
    assert str(error).startswith(f"Chaos latency={returned!r}: write ")
    assert moment == 0


# ------------------------------------------------------------------------------ results


@pytest.mark.parametrize(
    ("result", "expected"),
    [(3, 3), (None, None), (b"", b""), (lambda: "made", "made"), (dict, {}), (lambda: None, None)],
)
def test_results(colour: str, result: Any, expected: object) -> None:
    chaos = Chaos(result=result, rate=1)
    assert in_colour(colour, lambda: chaos.call(fetch), lambda: chaos.call(afetch)) == expected


def test_a_result_is_made_at_each_call() -> None:
    chaos = Chaos(result=list, rate=1)
    assert chaos.call(fetch) is not chaos.call(fetch)


@pytest.mark.parametrize("fn", [items, aitems])
def test_a_generator_has_no_result_to_replace(fn: Callable[[], Any]) -> None:
    name = fn.__name__
    with pytest.raises(TypeError, match=rf"^Chaos result= cannot replace {name}, a generator: use fault= or"):
        Chaos(result=3)(fn)


def test_a_plain_function_that_returns_an_awaitable_raises_type_error() -> None:
    def deferred() -> Any:
        return afetch()

    with pytest.raises(TypeError, match="returned something to await"):
        Chaos(fault=Boom, rate=0).call(deferred)


# ------------------------------------------------------------------------------- switch


def test_the_switch_may_change_at_any_time() -> None:
    """While it is off, no random number is drawn."""
    chaos, steady = (Chaos(result="struck", rate=0.5, seed=3) for _ in range(2))
    expected = [steady.call(fetch) for _ in range(20)]
    seen: list[str] = []
    for _ in range(20):
        chaos.switch = False
        assert (chaos.call(fetch), chaos.snapshot()["on"]) == ("fetched", False)
        chaos.switch = True
        seen.append(chaos.call(fetch))
    assert seen == expected
    assert chaos.snapshot() == {"hit": expected.count("struck"), "rate": 0.5, "on": True}


@pytest.mark.parametrize("assigned", [False, True])
def test_the_switch_may_be_a_function(assigned: bool) -> None:
    answers: list[Any] = [True, False, 1, 0, [], [3]]
    chaos = Chaos(result="struck", rate=1, switch=True if assigned else lambda: answers.pop(0))
    if assigned:
        chaos.switch = lambda: answers.pop(0)
    words = [chaos.call(fetch) for _ in range(6)]
    assert words == ["struck", "fetched", "struck", "fetched", "fetched", "struck"]
    answers.append(2)
    assert chaos.snapshot() == {"hit": 3, "rate": 1, "on": True}


# ------------------------------------------------------------------------- wrong options


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, ValueError, r"Chaos\(\): write what goes wrong, such as fault=ConnectionError, or latency=2$"),
        ({"rate": 1}, ValueError, r"Chaos\(\): write what goes wrong"),
        (
            {"fault": Boom, "result": 3},
            ValueError,
            r"Chaos\(fault=\.\.\., result=\.\.\.\): one layer does one of",
        ),
        (
            {"fault": Boom, "result": None},
            ValueError,
            r"Chaos\(fault=\.\.\., result=\.\.\.\): one layer does one",
        ),
        ({"latency": -1}, ValueError, r"Chaos latency=-1: write a finite number of seconds, 0 or more$"),
        ({"latency": nan}, ValueError, r"Chaos latency=nan: write a finite"),
        ({"latency": "2s"}, TypeError, r"Chaos latency='2s': write seconds as a number, or a timedelta"),
        ({"latency": True}, TypeError, r"Chaos latency=True: write seconds as a number"),
        ({"latency": afetch}, TypeError, r"Chaos latency=afetch is a coroutine function: write a plain func"),
        (
            {"result": afetch},
            TypeError,
            r"Chaos result=afetch is a coroutine function: write a plain function",
        ),
        ({"result": aitems}, TypeError, r"Chaos result=aitems is an async generator function: write a plain"),
        ({"latency": 1, "rate": 1.1}, ValueError, r"Chaos rate=1.1: write a share from 0 to 1, such as 0.1$"),
        ({"latency": 1, "rate": -0.1}, ValueError, r"Chaos rate=-0.1: write a share from 0 to 1"),
        ({"latency": 1, "rate": nan}, ValueError, r"Chaos rate=nan: write a share from 0 to 1"),
        ({"latency": 1, "rate": "10%"}, TypeError, r"Chaos rate='10%': write a share from 0 to 1"),
        ({"latency": 1, "rate": True}, TypeError, r"Chaos rate=True: write a share from 0 to 1"),
        ({"latency": 1, "seed": 1.5}, TypeError, r"Chaos seed=1.5: write a whole number, or None$"),
        ({"latency": 1, "name": 3}, TypeError, r"Chaos name=3: write a text, or None$"),
        (
            {"latency": 1, "switch": 1},
            TypeError,
            r"Chaos switch=1: write True, False, or a function that returns one",
        ),
        ({"latency": 1, "switch": None}, TypeError, r"Chaos switch=None: write True, False, or a function"),
        (
            {"latency": 1, "switch": afetch},
            TypeError,
            r"Chaos switch=afetch is a coroutine function: write a",
        ),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"^{message}"):
        Chaos(**options)


def test_its_repr_and_signature() -> None:
    assert repr(Chaos(latency=1)) == "Chaos(rate=0.1)"
    assert repr(Chaos(latency=1, rate=1, name="db")) == "Chaos(rate=1, name='db')"
    assert Chaos(latency=1, name="db").name == "db"
    assert "result: 'Any' = ..." in str(inspect.signature(Chaos))


@pytest.mark.parametrize(
    ("options", "description"),
    [
        ({"fault": Boom}, "10 % of the calls failing"),
        ({"latency": 2, "rate": 1}, "100 % of the calls late"),
        ({"latency": 2, "fault": Boom, "rate": 0.25}, "25 % of the calls late and failing"),
        ({"latency": 2, "result": None, "rate": 0.5}, "50 % of the calls late and replaced"),
    ],
)
def test_its_description(options: dict[str, Any], description: str) -> None:
    first = Pipeline(Chaos(**options)).explain().splitlines()[0]
    assert first.split(maxsplit=1) == ["Chaos", description]


def test_it_is_shared_and_never_copied() -> None:
    chaos = Chaos(latency=1)
    assert copy.copy(chaos) is copy.deepcopy(chaos) is chaos
    with pytest.raises(TypeError, match="a Chaos is shared by the calls of one process"):
        pickle.dumps(chaos)
    assert policy_of(decorated := chaos(fetch)) is chaos
    assert decorated.__name__ == "fetch"
