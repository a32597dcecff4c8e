"""The description of a `Keyed`: that of its layers, and never a key."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from redouble import (
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Hedge,
    Keyed,
    Layer,
    Pipeline,
    RateLimit,
    Retry,
    RetryBudget,
    Timeout,
    Worker,
    report,
)
from redouble.testing import VirtualClock, recorded
from tests.support.fakes import Boom, in_colour
from tests.support.layers.keyed_calls import afetch, fetch, first, second
from tests.support.virtual_time import AROUND_LOOP, at, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)

BUDGET = RetryBudget()

MAKES: dict[str, Callable[[], Layer]] = {
    "bulkhead": lambda: Bulkhead(2, 3),
    "breaker": CircuitBreaker,
    "retry": lambda: Retry(budget=BUDGET),
    "retries without jitter": lambda: Retry(attempts=9, backoff=[1] * 8, budget=BUDGET),
    "timeout": lambda: Timeout(2),
    "long": lambda: Timeout(60, worker=Worker()),
    "fallback": lambda: Fallback(value=None),
    "rate": lambda: RateLimit(1, wait=5),
    "hedge": lambda: Hedge(1),
    "pipeline": lambda: Retry(budget=BUDGET) | Bulkhead(1) | Timeout(2),
    "wrong pipeline": lambda: CircuitBreaker() | Retry(backoff=[1], budget=BUDGET),
    "nothing": Pipeline,
}

AROUND: dict[str, Callable[[Layer], Pipeline]] = {
    "alone": Pipeline,
    "inside Retry": lambda layer: Retry(budget=BUDGET) | layer,
    "outside Retry": lambda layer: layer | Retry(budget=BUDGET),
    "inside Timeout": lambda layer: Timeout(10) | layer,
    "outside Timeout": lambda layer: layer | Timeout(10),
    "inside CircuitBreaker": lambda layer: CircuitBreaker() | layer,
    "inside Hedge": lambda layer: Hedge(1) | layer,
    "outside Hedge": lambda layer: layer | Hedge(1),
    "outside CircuitBreaker": lambda layer: layer | CircuitBreaker(),
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
@pytest.mark.parametrize("used", [False, True], ids=["unused", "used"])
def test_its_lint_and_worst_case_are_those_of_its_layers(
    make: Callable[[], Layer], around: Callable[[Layer], Pipeline], used: bool
) -> None:
    layers = Keyed(first, make)
    if used:
        layers.of("a")
    alone, keyed = around(make()), around(layers)
    assert keyed.explain().splitlines()[-1] == alone.explain().splitlines()[-1]
    assert sorted(keyed.check()) == sorted(alone.check())


@pytest.mark.parametrize("make", [CircuitBreaker, Retry, lambda: Timeout(2)])
@pytest.mark.parametrize("on", [Exception, ConnectionError, KeyError])
def test_its_traits_name_the_errors_it_handles(make: Callable[[], Layer], on: type[Exception]) -> None:
    """The problems name `Keyed` instead of its layer."""
    inside = Fallback(value=3, on=on)
    problems = (Keyed(first, make) | inside).check()
    assert [line.replace("Keyed", type(make()).__name__) for line in problems] == (make() | inside).check()


@pytest.mark.parametrize(
    ("make", "description"),
    [
        (lambda: Bulkhead(2, 0), "Bulkhead (2 at once, others are refused) for each key, 7 at most"),
        (lambda: Timeout(2), "Timeout (at most 2 s) for each key, 7 at most"),
        (
            lambda: Timeout(2) | Bulkhead(2, 0),
            "Timeout (at most 2 s) | Bulkhead (2 at once, others are refused) for each key, 7 at most",
        ),
    ],
)
def test_its_description_is_that_of_its_layers(make: Any, description: str) -> None:
    assert Pipeline(Keyed(first, make, 7)).explain().splitlines()[0].split(maxsplit=1) == [
        "Keyed",
        description,
    ]


def test_layers_that_depend_on_the_key_are_described_once_there_is_one() -> None:
    layers = Keyed(first, lambda key: Retry(attempts=key, backoff=[0] * 9))
    before = (layers | CircuitBreaker()).explain().splitlines()
    assert before[0].split(maxsplit=1) == ["Keyed", "a layer for each key, 1000 at most"]
    assert before[-1] == "at worst: 1 call, for as long as your function takes"
    assert (CircuitBreaker() | layers).check() == []
    assert (Fallback(value=1) | Timeout(3) | layers | Fallback(value=2) | Timeout(3)).check()
    layers.of(5)
    after = (layers | CircuitBreaker()).explain().splitlines()
    assert after[0].startswith("Keyed")
    assert "Retry (" in after[0]
    assert "for one of its keys, others may differ, 1000 at most" in after[0]
    assert after[-1].startswith("at worst: 5 calls")
    assert any("outside" in line for line in (CircuitBreaker() | layers).check())


def test_its_traits_are_concurrent_if_a_layer_is() -> None:
    races = {name: Keyed(first, make).traits().concurrent for name, make in MAKES.items()}
    assert [name for name, so in races.items() if so] == ["hedge"]
    assert Keyed(first, lambda: Bulkhead(1) | Hedge(1)).traits().concurrent


def test_the_same_keyed_twice_is_reported() -> None:
    layers = Keyed(first, lambda: Bulkhead(1))
    assert any("the same Keyed is in the pipeline twice" in line for line in (layers | layers).check())


# ---------------------------------------------------------------------------------- keys


ADDRESS = "jane@example.org"

PRIVATE: dict[str, Callable[[], Layer]] = {
    "retry": lambda: Retry(attempts=2, on=Exception, backoff=[0], name="mail"),
    "bulkhead": lambda: Retry(attempts=2, backoff=[0], on=Exception) | Bulkhead(1, 0, name="mail"),
    "breaker": lambda: Retry(attempts=2, backoff=[0], on=Exception) | CircuitBreaker(failures=1),
    "rate": lambda: RateLimit(1, per=9, wait=0, name="mail"),
}


@AROUND_LOOP
@pytest.mark.parametrize("make", PRIVATE.values(), ids=PRIVATE)
def test_a_key_is_never_shown(
    place: str, make: Callable[[], Layer], caplog: pytest.LogCaptureFixture
) -> None:
    """Not in a name, a text, a log, an event, a report, or a note."""
    layers = Keyed(second, make, name="users")
    shown: list[object] = []

    def work(fails: bool, key: str) -> bool:
        if fails:
            raise Boom
        return True

    async def awork(fails: bool, key: str) -> bool:
        return work(fails, key)

    decorated, adecorated = layers(work), layers(awork)

    def blocking(_: VirtualClock) -> None:
        for fails in (False, True, True, False):
            try:
                assert decorated(fails, ADDRESS)
            except Exception as error:
                shown.extend([repr(error), report(error), getattr(error, "__notes__", [])])

    async def waiting(_: VirtualClock) -> None:
        for fails in (False, True, True, False):
            try:
                assert await adecorated(fails, ADDRESS)
            except Exception as error:
                shown.extend([repr(error), report(error), getattr(error, "__notes__", [])])

    with caplog.at_level(logging.DEBUG), recorded() as events:
        at(place, blocking, waiting)
    pipeline = Pipeline(layers)
    shown += [repr(layers), layers.name, layers.snapshot(), pipeline.explain(), pipeline.check(), caplog.text]
    shown += [(event, event.name, event.labels) for event in events]
    shown += [decorated.__name__, decorated.__qualname__, repr(layers.of(ADDRESS))]
    assert len(shown) > 12
    assert ADDRESS not in repr(shown)


@pytest.mark.parametrize("key", [[ADDRESS], {ADDRESS: 1}])
def test_an_unhashable_key_is_never_shown(colour: str, key: Any) -> None:
    layers = Keyed(first, lambda: Bulkhead(1))
    with pytest.raises(TypeError) as caught:
        in_colour(colour, lambda: layers.call(fetch, key), lambda: layers.call(afetch, key))
    assert ADDRESS not in repr(caught.value)
