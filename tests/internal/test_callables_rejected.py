"""What cannot be retried is refused, when decorating or calling, with what to write instead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

from redouble import Retry
from tests.support.fakes import Boom, Ledger, Virtual, always

policy = Retry(on=Boom)


def generator() -> Iterator[int]:
    yield 1


async def agenerator() -> AsyncIterator[int]:
    yield 1


class Generator:
    def __call__(self) -> Iterator[int]:
        yield 1

    async def items(self) -> AsyncIterator[int]:
        yield 1


async def fetch() -> int:
    return 1


def forgetful() -> Coroutine[Any, Any, int]:
    return fetch()


GENERATORS = [generator, agenerator, Generator(), Generator().items, partial(generator), partial(agenerator)]
VERBS: dict[str, Callable[[Any], object]] = {"decorate": policy, "call": policy.call, "run": policy.run}


@pytest.mark.parametrize("fn", GENERATORS)
def test_the_outcome_of_a_stream(fn: Any) -> None:
    with pytest.raises(TypeError, match="no outcome before its end: iterate over policy"):
        policy.run(fn)


@pytest.mark.parametrize("verb", VERBS)
def test_a_coroutine(verb: str) -> None:
    """It is closed, so that Python does not warn that it was never awaited."""
    with pytest.raises(TypeError, match=f"cannot {verb} a coroutine, which can run only once"):
        VERBS[verb](fetch())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("thing", [3, None, "fetch", [fetch]])
def test_what_cannot_be_called(verb: str, thing: object) -> None:
    with pytest.raises(TypeError, match=f"cannot {verb} .* it is not callable"):
        VERBS[verb](thing)


def test_a_class() -> None:
    """To call one is fine, to decorate one is a mistake."""
    with pytest.raises(TypeError, match="cannot decorate the class Generator: decorate a method"):
        policy(Generator)
    assert isinstance(policy.call(Generator), Generator)
    assert policy.run(int, "3").value == 3


@pytest.mark.parametrize("extra", [{}, {"timeout": 9}])
def test_a_function_that_returns_a_coroutine(extra: dict[str, Any]) -> None:
    """Nothing in it was retried, and nothing in it is run."""
    said = "forgetful returned .*, so nothing in it was retried: "
    strict = Retry(on=Boom, **extra)
    fn: Any = forgetful
    with pytest.raises(TypeError, match=said):
        strict(fn)()
    with pytest.raises(TypeError, match=said):
        strict.call(fn)
    with pytest.raises(TypeError, match=said):
        strict.run(fn)


@pytest.mark.parametrize(
    "extra", [{}, {"timeout": 9}, {"until": always(True)}, {"budget": Ledger()}, {"wrap": True}]
)
@pytest.mark.parametrize("verb", VERBS)
def test_a_function_that_returns_a_coroutine_later(verb: str, extra: dict[str, Any]) -> None:
    """On a later attempt it is rejected too: it is no success."""
    fails = [Boom()]

    def fetching() -> Coroutine[Any, Any, int]:
        if fails:
            raise fails.pop()
        return fetch()

    strict = Retry(on=Boom, backoff=[1], clock=Virtual(), **extra)
    verbs: dict[str, Callable[[Any], object]] = {
        "decorate": lambda fn: strict(fn)(),
        "call": strict.call,
        "run": strict.run,
    }
    with pytest.raises(TypeError, match="fetching returned something to await"):
        verbs[verb](fetching)
    assert not fails


def test_something_else_to_await() -> None:
    """It need not be a coroutine, and then there is nothing to close."""

    class Later:
        def __await__(self) -> Iterator[Any]:
            yield

    with pytest.raises(TypeError, match="returned something to await"):
        policy.call(Later)
    with pytest.raises(TypeError, match="returned something to await"):
        policy.run(Later)
