"""The options that a `Hedge` rejects, and its `check`, `explain`, statistics, repr and `policy_of`."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from math import inf, nan
from typing import Any

import pytest

from redouble import (
    Bulkhead,
    CircuitBreaker,
    Hedge,
    Layer,
    Pipeline,
    Retry,
    RetryBudget,
    Timeout,
    Worker,
    policy_of,
)
from redouble._layers.analysis import WorstCase
from tests.support.layers.analysis import assert_warnings, plain, worst_case_of
from tests.support.layers.hedge_attempts import LOOPS, ScriptedAttempts, make_hedged_call, timed

OUTSIDE = (
    r"Hedge outside Retry: a call that is slow because it retries is made a second time, .*; put it inside"
)
NEVER = r"Hedge\(delay=1\) inside a limit of .* s: the limit is always reached before the delay, so no .*"


WORKER = Worker(grace=0)


async def fetch(url: str = "") -> str:
    """Fetch."""
    return url


async def ping() -> str:
    return "pong"


def blocking() -> None: ...


def on_workers(*args: int) -> None: ...


def items() -> Iterator[int]:
    yield 1


async def aitems() -> AsyncIterator[int]:
    yield 1


async def accepts(_: object) -> bool:
    return True


# ----------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"delay": -1}, ValueError, "Hedge delay=-1: write a finite number of seconds"),
        ({"delay": inf}, ValueError, "Hedge delay=inf"),
        ({"delay": nan}, ValueError, "Hedge delay=nan"),
        ({"delay": True}, TypeError, "Hedge delay=True"),
        ({"delay": "1s"}, TypeError, "Hedge delay='1s': write seconds as a number"),
        ({"delay": fetch}, TypeError, r"write @Hedge\(\), with brackets"),
        ({"max_extra_load": 0}, ValueError, "Hedge max_extra_load=0: write a share of the calls above 0"),
        ({"max_extra_load": -0.1}, ValueError, "Hedge max_extra_load=-0.1"),
        ({"max_extra_load": nan}, ValueError, "Hedge max_extra_load=nan"),
        ({"max_extra_load": 1.1}, ValueError, "Hedge max_extra_load=1.1: .* up to 1, such as 0.02 for 2 %"),
        ({"max_extra_load": 4, "hedges": 3}, ValueError, "Hedge max_extra_load=4: .* up to 3"),
        ({"max_extra_load": True}, TypeError, "Hedge max_extra_load=True"),
        ({"max_extra_load": "2%"}, TypeError, "Hedge max_extra_load='2%'"),
        ({"max_extra_load": None}, ValueError, "without a limit of the load, write delay=, in seconds"),
        ({"hedges": 0}, ValueError, "Hedge hedges=0: write how many extra calls, 1 or more"),
        ({"hedges": 1.0}, TypeError, "Hedge hedges=1.0"),
        ({"hedges": True}, TypeError, "Hedge hedges=True"),
        ({"on": ()}, ValueError, r"Hedge on=\(\) is empty"),
        ({"on": 3}, TypeError, "Hedge on=3: write an exception type or a rule"),
        ({"on": KeyboardInterrupt}, ValueError, "on=KeyboardInterrupt is never retried"),
        ({"until": "done"}, TypeError, "until='done': write a function of the result"),
        ({"until": accepts}, TypeError, "until=accepts is a coroutine function: rules are plain functions"),
        ({"different": 3}, TypeError, "Hedge different=3: write a function with the same arguments, a map"),
        ({"different": [fetch, 3], "hedges": 2}, TypeError, "Hedge different=3: write a function"),
        ({"different": {}}, TypeError, "Hedge different={}: write"),
        ({"different": {1: 2}}, TypeError, "Hedge different={1: 2}: write"),
        ({"different": []}, ValueError, "Hedge different= has 0 entries: write from 1 to hedges=1 of them"),
        ({"different": [fetch, fetch]}, ValueError, "has 2 entries: .* hedges=1 .* or more hedges"),
        ({"delay": []}, ValueError, r"Hedge delay=\[\] has 0 entries: write from 1 to hedges=1 of them"),
        ({"delay": [1, 2, 3], "hedges": 2}, ValueError, "has 3 entries: .* hedges=2 .* or more hedges"),
        ({"delay": [1, None], "hedges": 2}, TypeError, "Hedge delay=None: write seconds"),
        (
            {"delay": lambda: 1},
            TypeError,
            r"Hedge delay=.* takes \(\): write a function of the number of",
        ),
        ({"delay": blocking}, TypeError, r"If this was meant as a decorator, write @Hedge\(\)"),
        ({"failover": 1}, TypeError, "Hedge failover=1: write True or False"),
        ({"minimum": 0}, ValueError, "Hedge minimum=0: write from how many calls on the measured delay is"),
        ({"shortest": -1}, ValueError, "Hedge shortest=-1"),
        ({"longest": "1"}, TypeError, "Hedge longest='1'"),
        ({"shortest": 2, "longest": 1}, ValueError, "Hedge longest=1 is less than shortest=2"),
        ({"delay": 1, "minimum": 9}, ValueError, "minimum, shortest and longest are for a measured delay"),
        ({"delay": [1], "longest": 9}, ValueError, "are for a measured delay: leave out delay="),
        ({"worker": Worker}, TypeError, r"Hedge worker=.*: write Worker\(\), or Worker\(kind='process'\)"),
        ({"budget": RetryBudget}, TypeError, r"budget=RetryBudget is a class: write RetryBudget\(...\)"),
        ({"budget": 3}, TypeError, r"budget=3 cannot be a budget: it has no method spend\(\)"),
        ({"name": 3}, TypeError, "Hedge name=3: write a text, or None"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Hedge(**options)


def test_different_must_be_a_function() -> None:
    coroutine: Any = fetch()
    with pytest.raises(TypeError, match=r"Hedge different=.*: write a function with the same arguments"):
        Hedge(1, different=coroutine)
    coroutine.close()


@pytest.mark.parametrize(
    ("different", "fn", "message"),
    [
        (
            items,
            fetch,
            "different=items cannot replace fetch: write an async function with the same",
        ),
        (
            fetch,
            blocking,
            "different=fetch cannot replace blocking: write a function that blocks with",
        ),
        (fetch, items, "different=fetch cannot replace items: write a generator function with"),
        (items, aitems, "different=items cannot replace aitems: write an async generator function with"),
        (ping, fetch, r"different=ping does not accept the arguments of fetch: write a function of \(url"),
        ({"region": "eu"}, fetch, r"different={'region': 'eu'}: fetch has no parameter 'region'"),
        ({"args": 1}, on_workers, "different={'args': 1}: on_workers has no parameter 'args'"),
    ],
)
def test_different_must_fit_the_function(different: Any, fn: Callable[..., Any], message: str) -> None:
    hedge = Hedge(1, different=different, worker=Worker())
    with pytest.raises(TypeError, match=f"Hedge {message}"):
        hedge(fn)


@LOOPS
def test_different_must_not_block(colour: str) -> None:
    """This is detected when it is called; the TypeError is raised, and is no failed attempt."""

    def measured(_: object) -> int:
        return 3

    async def main() -> str:
        different: Any = measured
        return str(
            await make_hedged_call(
                Hedge(1, None, different=different), ScriptedAttempts([(9, "a")]), "argument"
            )
        )

    message = r"UsageError\(.*measured returned a int: make it async\) after 1"
    assert re.search(message, timed(colour, main))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (blocking, "blocking blocks"),
        (partial(print, 1), "print blocks"),
        (items, "items is a generator that"),
    ],
)
@pytest.mark.parametrize("layer", [Hedge(), Timeout(1, worker=Worker()) | Hedge(1, None)])
@pytest.mark.parametrize("way", ["decorated", "called"])
def test_blocking_functions_need_a_worker(
    fn: Callable[..., Any], message: str, layer: Layer, way: str
) -> None:
    message = (
        rf"Hedge runs attempts side by side, and {message}.*: write Hedge\(worker=Worker\(\)\) to run it"
    )
    with pytest.raises(TypeError, match=message):
        layer(fn) if way == "decorated" else layer.call(fn)


# -------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (Hedge() | Timeout(1), []),
        (Retry() | Hedge() | Timeout(1), []),
        (Timeout(2) | Hedge(1), []),
        (Hedge() | Retry(), [OUTSIDE]),
        (Hedge() | Bulkhead(9) | Retry(), [OUTSIDE]),
        (Timeout(1) | Hedge(1), [NEVER]),
        (Timeout(5) | CircuitBreaker() | Timeout(0.5) | Hedge(1), [NEVER]),
        (Retry(attempt_timeout=0.5) | Hedge(1), [NEVER]),
        (Timeout(0.001) | Hedge(), []),  # a measured delay may be shorter still
        (Timeout(1) | Hedge([1, 0.1], hedges=2), [NEVER]),
        (Timeout(1) | Hedge([0.5, 3], hedges=2), []),
        (Timeout(1) | Hedge(1, failover=True), []),
        (Timeout(1) | Hedge(float), []),
    ],
)
def test_lint_in_a_pipeline(layers: Layer, expected: list[str]) -> None:
    assert_warnings(layers, expected)


@pytest.mark.parametrize(
    ("layer", "description"),
    [
        (Hedge(), "once more if it takes longer than most, for 2 % of the calls at most"),
        (Hedge(0.25), "once more if it takes over 0.25 s, for 2 % of the calls at most"),
        (Hedge(2, None, hedges=3), "up to 3 times more if it takes over 2 s"),
        (Hedge(2, None, failover=True), "once more if it fails or takes over 2 s"),
        (Hedge([1, 0.5], None, hedges=2), "up to 2 times more if it takes over 1 s + 0.5 s"),
        (Hedge(float, None), "once more if it takes longer than a function says"),
        (
            Hedge(max_extra_load=0.12345),
            "once more if it takes longer than most, for 12.3 % of the calls at most",
        ),
        (Hedge(1, None, worker=Worker(limit=5)), "once more if it takes over 1 s, on 5 threads at most"),
        (Hedge(1, None, different=fetch), "once more, by fetch, if it takes over 1 s"),
        (Hedge(1, None, different={"a": 1, "b": 2}), "once more, with another a and b, if it takes over 1 s"),
        (
            Hedge(1, None, hedges=2, different=[{"a": 1}, fetch]),
            "up to 2 times more, with another a, then by fetch, if it takes over 1 s",
        ),
        (
            Hedge(shortest=0.01),
            "once more if it takes longer than most, at least 0.01 s, for 2 % of the calls at most",
        ),
        (
            Hedge(longest=1),
            "once more if it takes longer than most, at most 1 s, for 2 % of the calls at most",
        ),
    ],
)
def test_its_description(layer: Layer, description: str) -> None:
    assert Pipeline(layer).explain().splitlines()[0].split(maxsplit=1) == ["Hedge", description]


@pytest.mark.parametrize(
    ("layers", "worst"),
    [
        (Hedge(), WorstCase(calls=2)),
        (Hedge(1, None, hedges=3), WorstCase(calls=4)),
        (Hedge() | Timeout(2), WorstCase(calls=2, seconds=4)),
        (Hedge(longest=0.5) | Timeout(2), WorstCase(calls=2, seconds=2.5)),
        (Hedge(longest=0.5, failover=True) | Timeout(2), WorstCase(calls=2, seconds=4)),
        (Hedge(1, None, hedges=3) | Timeout(2), WorstCase(calls=4, seconds=5)),
        (Timeout(2) | Hedge(1, None, hedges=3), WorstCase(calls=4, seconds=2)),
        (plain(backoff=[0, 0]) | Hedge(1, None) | Timeout(2), WorstCase(calls=6, seconds=9)),
        (Hedge([1, 3], None, hedges=2) | Timeout(2), WorstCase(calls=3, seconds=6)),
        (Hedge(float, None, hedges=2) | Timeout(2), WorstCase(calls=3, seconds=6)),
        (Hedge(failover=True, hedges=2) | Timeout(2), WorstCase(calls=3, seconds=6)),
        (Hedge(1, None, failover=True) | Timeout(2), WorstCase(calls=2, seconds=3)),
        (Hedge(1, None, worker=Worker(grace=0.5)) | Timeout(2), WorstCase(calls=2, seconds=3.5)),
    ],
)
def test_the_worst_case(layers: Layer, worst: WorstCase) -> None:
    assert worst_case_of(Pipeline(layers)) == worst


# ----------------------------------------------------------- repr, identity, statistics


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (Hedge(), "Hedge(delay=None, max_extra_load=0.02)"),
        (Hedge(1, None), "Hedge(delay=1.0, max_extra_load=None)"),
        (Hedge(1, None, hedges=3), "Hedge(delay=1.0, max_extra_load=None, hedges=3)"),
        (Hedge(0.5, 0.1, name="search"), "Hedge(delay=0.5, max_extra_load=0.1, name='search')"),
        (Hedge([1, 2], hedges=3), "Hedge(delay=[1.0, 2.0, 2.0], max_extra_load=0.02, hedges=3)"),
        (Hedge(float), "Hedge(delay=float, max_extra_load=0.02)"),
        (Hedge(failover=True), "Hedge(delay=None, max_extra_load=0.02, failover=True)"),
        (
            Hedge(minimum=9, shortest=0.1, longest=2),
            "Hedge(delay=None, max_extra_load=0.02, minimum=9, shortest=0.1, longest=2.0)",
        ),
        (Hedge(1, worker=WORKER), f"Hedge(delay=1.0, max_extra_load=0.02, worker={WORKER!r})"),
    ],
)
def test_its_repr_recreates_it(layer: Hedge, text: str) -> None:
    assert repr(layer) == text
    assert repr(eval(text)) == text  # noqa: S307


def test_it_is_shared_and_never_copied() -> None:
    hedge = Hedge()
    assert copy.copy(hedge) is copy.deepcopy(hedge) is hedge
    with pytest.raises(TypeError, match="a Hedge is shared by the calls of one process"):
        pickle.dumps(hedge)
    assert_warnings(hedge | Bulkhead(9) | hedge, ["the same Hedge is in the pipeline twice: .*"])


@pytest.mark.parametrize("options", [{}, {"delay": 1}])
def test_a_decorated_function_keeps_its_signature(options: dict[str, Any]) -> None:
    hedge = Hedge(**options)
    decorated = hedge(fetch)
    assert policy_of(decorated) is hedge
    assert policy_of(fetch) is None
    assert (decorated.__name__, decorated.__doc__) == ("fetch", "Fetch.")
    assert timed("asyncio", lambda: decorated("there")) == "there"
    del hedge
    assert isinstance(policy_of(decorated), Hedge)


def test_the_statistics() -> None:
    hedge = Hedge(1, 0.34)
    assert hedge.snapshot() == {"delay": 1.0, "calls": 0, "hedged": 0, "won": 0, "suppressed": 0}

    async def main() -> None:
        for steps in ([(0.5, "a")], [(9, "a"), (1, "b")], [(2, "a"), (9, "b")], [(9, "a")]):
            await hedge.call(ScriptedAttempts(steps))

    timed("asyncio", main)
    assert hedge.snapshot() == {"delay": 1.0, "calls": 4, "hedged": 2, "won": 1, "suppressed": 1}
    assert Hedge().snapshot() == {"delay": None, "calls": 0, "hedged": 0, "won": 0, "suppressed": 0}


# -------------------------------------------------------------------------- reconfiguration


@pytest.mark.parametrize(
    ("before", "after", "can"),
    [
        (Hedge(), Hedge(max_extra_load=0.5, hedges=3, minimum=9, longest=2), True),
        (Hedge(1), Hedge(2, None, until=str, on=OSError, budget=RetryBudget()), True),
        (Hedge([1, 2], hedges=2), Hedge([3], hedges=1), True),
        (Hedge(worker=Worker()), Hedge(worker=Worker(grace=0)), True),
        (Hedge(), Hedge(1), False),
        (Hedge(1), Hedge([1]), False),
        (Hedge(1), Hedge(1, failover=True), False),
        (Hedge(1), Hedge(1, worker=Worker()), False),
        (Hedge(1), Hedge(1, different={"url": "b"}), False),
    ],
)
def test_it_adopts_other_settings(before: Hedge, after: Hedge, can: bool) -> None:
    assert before.can_reconfigure(after) is can
    if can:
        before.reconfigure(after)
        assert before.settings == after.settings
        assert before.snapshot()["delay"] == after.snapshot()["delay"]


@LOOPS
def test_decorated_functions_use_the_new_settings(colour: str) -> None:
    hedge = Hedge(1, None, name="db")
    work = ScriptedAttempts([(9, "a"), (1, "b"), (9, "c"), (9, "d"), (1, "e")])

    async def main() -> list[str]:
        call = hedge(work.__call__)
        first = await call()
        hedge.reconfigure(Hedge(2, 2.0, hedges=2))
        return [first, await call()]

    assert timed(colour, main) == ["b", "e"]
    assert work.start_times == [0, 1, 2, 4, 6]
    assert hedge.snapshot() == {"delay": 2, "calls": 2, "hedged": 3, "won": 2, "suppressed": 0}
    assert (hedge.name, hedge.settings.name) == ("db", "db")


@LOOPS
def test_a_measured_delay_is_kept_within_the_new_bounds(colour: str) -> None:
    hedge = Hedge(minimum=4)

    async def main() -> None:
        for _ in range(4):
            await hedge.call(ScriptedAttempts([(1, "a")]))

    timed(colour, main)
    assert hedge.snapshot()["delay"] == 1.0625
    hedge.reconfigure(Hedge(minimum=100, longest=0.5))
    assert hedge.snapshot()["delay"] == 0.5


@LOOPS
def test_more_hedges_during_a_call_have_no_delays_yet(colour: str) -> None:
    hedge = Hedge([1], None)
    work = ScriptedAttempts([(9, "a"), (9, "b")])

    async def reading() -> str:
        hedge.reconfigure(Hedge([1, 1, 1], None, hedges=3))
        return str(await work())

    async def main() -> str:
        return await hedge.call(reading)

    assert timed(colour, main) == "a"
    assert work.start_times == [0, 1]
