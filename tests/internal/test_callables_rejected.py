"""Objects that cannot be retried are refused, when decorating or calling, with a hint what to write."""

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


def not_awaited() -> Coroutine[Any, Any, int]:
    return fetch()


GENERATORS = [generator, agenerator, Generator(), Generator().items, partial(generator), partial(agenerator)]
VERBS: dict[str, Callable[[Any], object]] = {"decorate": policy, "call": policy.call, "run": policy.run}


@pytest.mark.parametrize("fn", GENERATORS)
def test_run_refuses_streams(fn: Any) -> None:
    with pytest.raises(TypeError, match="no outcome before its end: iterate over policy"):
        policy.run(fn)


@pytest.mark.parametrize("verb", VERBS)
def test_a_coroutine_is_refused(verb: str) -> None:
    """It is closed, so that Python does not warn that it was never awaited."""
    with pytest.raises(TypeError, match=f"cannot {verb} a coroutine, which can run only once"):
        VERBS[verb](fetch())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("thing", [3, None, "fetch", [fetch]])
def test_objects_that_are_not_callable_are_refused(verb: str, thing: object) -> None:
    with pytest.raises(TypeError, match=f"cannot {verb} .* it is not callable"):
        VERBS[verb](thing)


def test_a_class_can_be_called_but_not_decorated() -> None:
    with pytest.raises(TypeError, match="cannot decorate the class Generator: decorate a method"):
        policy(Generator)
    assert isinstance(policy.call(Generator), Generator)
    assert policy.run(int, "3").value == 3


@pytest.mark.parametrize("extra", [{}, {"timeout": 9}])
def test_a_function_that_returns_a_coroutine_is_refused(extra: dict[str, Any]) -> None:
    """The coroutine is not run, because nothing in it would be retried."""
    message = "not_awaited returned .*, so nothing in it was retried: "
    strict = Retry(on=Boom, **extra)
    fn: Any = not_awaited
    with pytest.raises(TypeError, match=message):
        strict(fn)()
    with pytest.raises(TypeError, match=message):
        strict.call(fn)
    with pytest.raises(TypeError, match=message):
        strict.run(fn)


@pytest.mark.parametrize(
    "extra", [{}, {"timeout": 9}, {"until": always(True)}, {"budget": Ledger()}, {"wrap": True}]
)
@pytest.mark.parametrize("verb", VERBS)
def test_a_coroutine_returned_by_a_later_attempt_is_refused(verb: str, extra: dict[str, Any]) -> None:
    """It does not count as a success."""
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


def test_other_awaitables_are_refused() -> None:
    """An awaitable that is no coroutine cannot be closed."""

    class Later:
        def __await__(self) -> Iterator[Any]:
            yield

    with pytest.raises(TypeError, match="returned something to await"):
        policy.call(Later)
    with pytest.raises(TypeError, match="returned something to await"):
        policy.run(Later)
