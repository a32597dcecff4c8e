"""Backoffs: tables of delays, jitter, saturation, equality and pickling."""

from __future__ import annotations

import copy
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import reduce
from itertools import islice, pairwise
from math import isfinite, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Backoff
from tests.support.fakes import Draws, stable_repr

LARGEST = sys.float_info.max


def series(recipe: Backoff, count: int, draw: float = 0.5) -> list[float]:
    return list(islice(recipe.delays(Draws(draw)), count))


class Again:
    """Delays that can be iterated repeatedly, computed each time."""

    def __init__(self, *delays: Any) -> None:
        self.delays = delays

    def __iter__(self) -> Iterator[Any]:
        return iter(self.delays)


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        (Backoff.constant(3), [3, 3, 3, 3]),
        (Backoff.constant(timedelta(milliseconds=250)), [0.25] * 4),
        (Backoff.linear(1, 2), [1, 3, 5, 7]),
        (Backoff.linear(timedelta(seconds=1), timedelta(seconds=0.5)), [1, 1.5, 2, 2.5]),
        (Backoff.exponential(1), [1, 2, 4, 8]),
        (Backoff.exponential(1, 3), [1, 3, 9, 27]),
        (Backoff.exponential(timedelta(minutes=1), factor=1), [60, 60, 60, 60]),
        (Backoff.exponential(0), [0, 0, 0, 0]),
        (Backoff.fibonacci(2), [2, 2, 4, 6]),
        (Backoff.of([1, 2.5, timedelta(seconds=3)]), [1, 2.5, 3]),
        (Backoff.of(()), []),
        (Backoff.of(Again(1, timedelta(seconds=2))), [1, 2]),
        (Backoff.of(range(3)), [0, 1, 2]),
        (Backoff.exponential(1).minimum(3), [3, 3, 4, 8]),
        (Backoff.exponential(1).maximum(3), [1, 2, 3, 3]),
        (Backoff.exponential(1).maximum(timedelta(seconds=3)).minimum(timedelta(seconds=2)), [2, 2, 3, 3]),
        (Backoff.constant(9).minimum(5).maximum(2), [2] * 4),
        (Backoff.constant(9).maximum(2).minimum(5), [5] * 4),
        (Backoff.exponential(1).take(2), [1, 2]),
        (Backoff.exponential(1).take(0), []),
        (Backoff.exponential(1).take(5).maximum(2).take(3), [1, 2, 2]),
        (Backoff.exponential(1).take(2).take(3), [1, 2]),
        (Backoff.constant(1).take(2), [1, 1]),
        (Backoff.of(Again(8, 9)).maximum(2), [2, 2]),
    ],
    ids=stable_repr,
)
def test_delays_without_jitter(recipe: Backoff, expected: list[float]) -> None:
    """No random number is drawn, and seconds are floats."""
    random_source = Draws(0.5)
    delays = list(islice(recipe.delays(random_source), 4))
    assert delays == expected
    assert random_source.drawn == 0
    assert all(type(delay) is float for delay in delays)


@pytest.mark.parametrize(
    ("recipe", "draws", "expected"),
    [
        (Backoff.random(2, 6), [0, 0.25, 0.5], [2, 3, 4]),
        (Backoff.decorrelated(LARGEST / 2, LARGEST), [0], [LARGEST / 2]),
        (Backoff.decorrelated(1, 100), [0.5, 0.5, 0.5], [2, 3.5, 5.75]),
        (Backoff.decorrelated(1, 4), [0.5, 0.99, 0.5], [2, 4, 4]),
        (Backoff.decorrelated(1, 1), [0.9, 0.9, 0.9], [1, 1, 1]),
        (Backoff.constant(8).full_jitter(), [0, 0.25, 0.5], [0, 2, 4]),
        (Backoff.constant(8).equal_jitter(), [0, 0.25, 0.5], [4, 5, 6]),
        (Backoff.constant(8).jitter(0.5), [0, 0.25, 0.5], [4, 6, 8]),
        (Backoff.constant(8).jitter(1), [0, 0.5, 0.75], [0, 8, 12]),
        (Backoff.constant(8).jitter(0), [0, 0.5, 0.75], [8, 8, 8]),
        (Backoff.exponential(1).maximum(2).full_jitter(), [0.5, 0.5, 0.5], [0.5, 1, 1]),
        (Backoff.exponential(2).full_jitter().maximum(2), [0.5, 0.5, 0.5], [1, 2, 2]),
        (Backoff.constant(8).full_jitter().minimum(3), [0, 0.25, 0.5], [3, 3, 4]),
        (Backoff.constant(8).minimum(10).full_jitter(), [0, 0.25, 0.5], [0, 2.5, 5]),
        (Backoff.of([4, 8]).full_jitter(), [0.5, 0.25], [2, 2]),
        (Backoff.random(0, 10).full_jitter(), [0.8, 0.5], [4]),
        (Backoff.random(0, 10).equal_jitter().jitter(0.5), [0.8, 0.5, 1.0], [9]),
        (Backoff.constant(8).full_jitter().equal_jitter(), [0.5, 0.0, 0.25, 0.5], [2, 1.5]),
        (Backoff.decorrelated(1, 9).maximum(2).full_jitter(), [0.9, 0.25], [0.5]),
    ],
    ids=stable_repr,
)
def test_delays_with_jitter(recipe: Backoff, draws: list[float], expected: list[float]) -> None:
    """One draw per random stage, the series first; each stage gets the result of the previous one."""
    random_source = Draws(*draws)
    assert list(islice(recipe.delays(random_source), len(expected))) == pytest.approx(expected)
    assert random_source.drawn == len(draws)


@pytest.mark.parametrize(
    "recipe",
    [
        Backoff.exponential(2.0**1000),
        Backoff.exponential(1, LARGEST),
        Backoff.linear(LARGEST / 2, LARGEST / 3),
        Backoff.fibonacci(LARGEST / 4),
        Backoff.constant(LARGEST).jitter(1),
        Backoff.exponential(1e300, 10).minimum(1),
        Backoff.decorrelated(1, LARGEST),
    ],
    ids=stable_repr,
)
def test_an_overflow_stays_at_the_largest_float(recipe: Backoff) -> None:
    delays = series(recipe, 1200, 1.0)
    assert delays[-100:] == [LARGEST] * 100
    assert all(earlier <= later for earlier, later in pairwise(delays))


def test_exponential_ends_at_the_largest_float() -> None:
    delays = series(Backoff.exponential(1), 1200)
    assert delays[:1024] == [2.0**n for n in range(1024)]
    assert delays[1024:] == [LARGEST] * 176


def test_each_iterator_starts_from_the_beginning() -> None:
    """A backoff has no state: iterators of concurrent calls are independent."""
    recipe = Backoff.decorrelated(1, 1000)
    random_source = Draws(0.5)
    first, second = recipe.delays(random_source), recipe.delays(random_source)
    assert [next(first), next(first), next(first)] == [2.0, 3.5, 5.75]
    assert [next(second), next(first)] == [2.0, 9.125]
    for again in (Backoff.of(Again(1, 1, 2, 3)), Backoff.fibonacci(1)):
        assert list(islice(again, 4)) == list(islice(again, 4)) == [1, 1, 2, 3]


def test_iterating_draws_from_the_module_random() -> None:
    recipe = Backoff.random(0, 1)
    random.seed(7)
    seen = list(islice(recipe, 3))
    assert seen == list(islice(recipe.delays(random.Random(7)), 3))


def test_of_copies_a_list_and_returns_a_backoff_unchanged() -> None:
    mine = [1.0, 2.0]
    recipe = Backoff.of(mine)
    mine.append(3.0)
    assert list(recipe) == [1, 2]
    assert Backoff.of(recipe) is recipe


def test_an_invalid_delay_of_an_iterable_raises_when_it_is_reached() -> None:
    delays = iter(Backoff.of(Again(1, nan)))
    assert next(delays) == 1
    with pytest.raises(ValueError, match="a delay of your backoff=nan"):
        next(delays)


# ------------------------------------------------------- equality, repr and pickling

REPRS = [
    (Backoff.constant(1), "Backoff.constant(1)"),
    (Backoff.linear(1, 2), "Backoff.linear(1, 2)"),
    (Backoff.exponential(0.2, 3), "Backoff.exponential(0.2, 3)"),
    (Backoff.random(1, 2), "Backoff.random(1, 2)"),
    (Backoff.decorrelated(1, 2), "Backoff.decorrelated(1, 2)"),
    (Backoff.fibonacci(1), "Backoff.fibonacci(1)"),
    (Backoff.of([1, 2]), "Backoff.of((1.0, 2.0))"),
    (
        Backoff.exponential(1).minimum(1).maximum(5).full_jitter().equal_jitter().jitter(0.5).take(3),
        "Backoff.exponential(1, 2).minimum(1).maximum(5).full_jitter().equal_jitter().jitter(0.5).take(3)",
    ),
    (Backoff.of([1]).take(1), "Backoff.of((1.0,)).take(1)"),
]


@pytest.mark.parametrize(("recipe", "shown"), REPRS, ids=stable_repr)
def test_a_recipe_is_a_value(recipe: Backoff, shown: str) -> None:
    """It is equal by value; its repr, pickles and copies give equal ones."""
    assert repr(recipe) == shown
    for twin in (eval(shown), pickle.loads(pickle.dumps(recipe)), copy.copy(recipe), copy.deepcopy(recipe)):  # noqa: S307
        assert twin == recipe
        assert hash(twin) == hash(recipe)
        assert series(twin, 5) == series(recipe, 5)
    assert [other for other, _ in REPRS if other == recipe] == [recipe]
    assert recipe != shown


def test_chaining_returns_a_new_backoff() -> None:
    recipe = Backoff.constant(1)
    recipe.maximum(0.5).take(1)
    assert series(recipe, 3) == [1, 1, 1]
    with pytest.raises(AttributeError):
        recipe.maximums = 3  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# -------------------------------------------------------------------------- properties

SECONDS = st.floats(0, LARGEST)
SERIES = st.one_of(
    st.builds(Backoff.constant, SECONDS),
    st.builds(Backoff.linear, SECONDS, SECONDS),
    st.builds(Backoff.exponential, SECONDS, st.floats(1, LARGEST)),
    st.tuples(SECONDS, SECONDS).map(lambda ends: Backoff.random(min(ends), max(ends))),
    st.tuples(SECONDS, SECONDS).map(lambda ends: Backoff.decorrelated(min(ends), max(ends))),
    st.builds(Backoff.fibonacci, SECONDS),
    st.lists(SECONDS, max_size=20).map(Backoff.of),
)


STAGES: list[st.SearchStrategy[Callable[[Backoff], Backoff]]] = [
    SECONDS.map(lambda bound: lambda recipe: recipe.minimum(bound)),
    SECONDS.map(lambda bound: lambda recipe: recipe.maximum(bound)),
    st.just(Backoff.full_jitter),
    st.just(Backoff.equal_jitter),
    st.floats(0, 1).map(lambda factor: lambda recipe: recipe.jitter(factor)),
]
RECIPES = st.tuples(SERIES, st.lists(st.one_of(STAGES), max_size=4)).map(
    lambda parts: reduce(lambda recipe, stage: stage(recipe), parts[1], parts[0])
)


@given(RECIPES, st.integers())
def test_every_delay_is_finite_and_not_negative(recipe: Backoff, seed: int) -> None:
    """The same seed gives the same delays."""
    delays = list(islice(recipe.delays(random.Random(seed)), 50))
    assert all(isfinite(delay) and delay >= 0 for delay in delays)
    assert delays == list(islice(recipe.delays(random.Random(seed)), 50))


@given(RECIPES, SECONDS, st.sampled_from([None, Backoff.full_jitter, Backoff.equal_jitter]), st.integers())
def test_jitter_does_not_exceed_the_maximum(
    recipe: Backoff, cap: float, jitter: Callable[[Backoff], Backoff] | None, seed: int
) -> None:
    capped = recipe.maximum(cap)
    if jitter is not None:
        capped = jitter(capped)
    assert all(0 <= delay <= cap for delay in islice(capped.delays(random.Random(seed)), 50))
