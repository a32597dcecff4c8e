"""The shapes of a call: every kind of callable can be retried, and keeps its name, type and colour."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import AsyncMock

import pytest

from redouble import Outcome, Retry, policy_of, retry, variant
from tests.support.drivers.flaky_function import CLOCK, answer, flaky, policy
from tests.support.fakes import ASYNC, Boom, Virtual, in_colour

pytestmark = pytest.mark.usefixtures("two_failures")


async def aanswer(*args: object, **kwargs: object) -> object:
    """Return the arguments."""
    return answer(*args, **kwargs)


class Service:
    """A class with every kind of method."""

    @policy
    def method(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    @policy
    async def amethod(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    @policy
    @staticmethod
    def static(*args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    @staticmethod
    @policy
    async def astatic(*args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    @classmethod
    @policy
    def of_class(cls, *args: object, **kwargs: object) -> object:
        assert cls is Service
        return answer(*args, **kwargs)

    @policy
    @classmethod
    async def aof_class(cls, *args: object, **kwargs: object) -> object:
        assert cls is Service
        return answer(*args, **kwargs)

    def plain(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)

    async def aplain(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)


class Plain:
    def __call__(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)


class Coloured:
    async def __call__(self, *args: object, **kwargs: object) -> object:
        return answer(*args, **kwargs)


service = Service()
aanswer_mock = AsyncMock(side_effect=answer)
DECORATED = [
    service.method,
    service.static,
    Service.static,
    service.of_class,
    Service.of_class,
    policy(answer),
    retry(on=Boom, backoff=[1] * 9, clock=CLOCK)(answer),
    policy(partial(answer, 1)),
    policy(partial(partial(answer, 1), key=2)),
    policy(Plain()),
    policy(service.plain),
    (policy | policy)(answer),
    Retry(on=Boom, backoff=[1] * 9, clock=CLOCK, timeout=99)(answer),
]
ADECORATED = [
    service.amethod,
    service.astatic,
    Service.astatic,
    service.aof_class,
    Service.aof_class,
    policy(aanswer),
    policy(partial(aanswer, 1)),
    policy(partial(Coloured(), 1)),
    policy(Coloured()),
    policy(service.aplain),
    policy(aanswer_mock),
    (policy | policy)(aanswer),
    Retry(on=Boom, backoff=[1] * 9, clock=CLOCK, timeout=99)(aanswer),
]
PLAIN = [answer, partial(answer, 1), Plain(), service.plain, Service().plain]
APLAIN = [
    aanswer,
    partial(aanswer, 1),
    Coloured(),
    service.aplain,
    aanswer_mock,
    partial(Coloured(), 1),
]


def arguments(fn: Any) -> tuple[tuple[object, ...], dict[str, object]]:
    """Return the arguments that the operation gets from ``fn(2, key=3)``."""
    fn = getattr(fn, "__wrapped__", fn)
    first = fn.args if isinstance(fn, partial) else ()
    return (*first, 2), {"key": 3}


@pytest.mark.parametrize("fn", DECORATED)
def test_a_decorated_callable_is_retried(fn: Callable[..., object]) -> None:
    assert fn(2, key=3) == arguments(fn)
    assert not flaky
    assert not inspect.iscoroutinefunction(fn)


@pytest.mark.parametrize("colour", ASYNC)
@pytest.mark.parametrize("fn", ADECORATED)
def test_a_decorated_async_callable_is_retried(colour: str, fn: Callable[..., Any]) -> None:
    assert in_colour(colour, lambda: None, lambda: fn(2, key=3)) == arguments(fn)
    assert not flaky
    assert inspect.iscoroutinefunction(fn)


@pytest.mark.parametrize("fn", PLAIN)
def test_call_and_run_retry_any_callable(fn: Callable[..., object]) -> None:
    assert policy.call(fn, 2, key=3) == arguments(fn)
    assert not flaky
    outcome = policy.run(fn, 2, key=3)
    assert (outcome.ok, outcome.value, outcome.report.attempts) == (True, arguments(fn), 1)


@pytest.mark.parametrize("fn", APLAIN)
def test_call_and_run_retry_any_async_callable(fn: Callable[..., Any]) -> None:
    async def main() -> Outcome[Any]:
        assert await policy.call(fn, 2, key=3) == arguments(fn)
        assert not flaky
        flaky.append(Boom("3"))
        outcome: Outcome[Any] = await policy.run(fn, 2, key=3)
        return outcome

    outcome: Outcome[Any] = in_colour("asyncio", lambda: None, main)
    assert (outcome.ok, outcome.value, outcome.report.attempts) == (True, arguments(fn), 2)


def test_retry_decorates_without_parentheses() -> None:
    @retry
    def fetch(url: str) -> str:
        """Fetch."""
        return url

    assert fetch("/") == "/"
    assert (fetch.__name__, fetch.__doc__) == ("fetch", "Fetch.")
    assert policy_of(fetch) == Retry()
    assert (repr(retry), repr(variant)) == ("redouble.retry", "redouble.variant")


@pytest.mark.parametrize("arguments", [(Boom,), (3,), (answer, answer)])
def test_options_are_keywords(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"write @retry, or @retry\(on="):
        retry(*arguments)
    with pytest.raises(TypeError, match=r"write @retry, or @retry\(on="):
        retry(answer, attempts=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("fn", [*DECORATED[5:7], *ADECORATED[5:6], service.method, Service.aof_class])
def test_a_wrapper_has_the_metadata_of_its_function(fn: Any) -> None:
    original = fn.__wrapped__
    for word in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
        assert getattr(fn, word) == getattr(original, word)
    kept = inspect.signature(original)
    bound = len(kept.parameters) - len(inspect.signature(fn).parameters)
    assert list(inspect.signature(fn).parameters.values()) == list(kept.parameters.values())[bound:]
    assert list(fn.__dict__) == ["__wrapped__"]


@pytest.mark.parametrize("options", [{}, {"timeout": 9}])
@pytest.mark.parametrize("colour", ASYNC)
def test_a_call_begins_when_it_is_awaited(colour: str, options: dict[str, Any]) -> None:
    """Time counts from the first await, however long ago the coroutine was created."""
    clock = Virtual()
    late = Retry(on=Boom, backoff=[1] * 9, give_up_after=9, clock=clock, **options)

    async def work(fails: list[Exception]) -> float:
        if fails:
            raise fails.pop()
        return clock.time

    made: Any = [
        late.call(work, [Boom(), Boom()]),
        late.run(work, [Boom(), Boom()]),
        late(work)([Boom(), Boom()]),
    ]

    async def main() -> list[Any]:
        return [await one for one in made]

    clock.time = 1000
    called, outcome, decorated = in_colour(colour, lambda: None, main)
    assert (called, outcome.value, decorated) == (1002, 1004, 1006)
    assert (outcome.report.elapsed, outcome.report.attempts) == (2, 3)
    assert [entry.started for entry in outcome.report.history] == [0, 1, 2]
