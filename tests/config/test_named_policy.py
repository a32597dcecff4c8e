"""Functions that go by a name: in every colour they follow what is in force, and look as they did."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from redouble import CircuitBreaker, Timeout, policy_of
from redouble.config import _reload as _live
from redouble.config._reload import ConfigStore, load, policies, reload
from redouble.errors import ConfigError
from tests.support.fakes import Boom, in_colour


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without a configuration, and leave none behind."""
    monkeypatch.setattr(_live, "LIVE", ConfigStore())


def said(attempts: int) -> dict[str, Any]:
    policy = {"on": "Exception", "attempts": attempts, "backoff": [0] * 9}
    return {"policies": {"payments": policy}, "pipelines": {"all": {"layers": ["policies.payments"]}}}


class Failing:
    """Fails, and counts the attempts."""

    def __init__(self) -> None:
        self.attempts = 0

    def fail(self) -> None:
        self.attempts += 1
        raise Boom

    def tried(self, use: Callable[[], object]) -> int:
        """Say how many attempts a call made."""
        self.attempts = 0
        with pytest.raises(Boom):
            use()
        return self.attempts

    async def atried(self, use: Callable[[], Awaitable[object]]) -> int:
        """Say the same in async code."""
        self.attempts = 0
        with pytest.raises(Boom):
            await use()
        return self.attempts


def client_of(name: str) -> Any:
    """Make a client whose methods go by a name, in every way that they may."""
    layer = policies(name)

    class Client(Failing):
        @layer
        def get(self, item: int, *, scale: int = 1) -> None:
            self.fail()

        @layer
        async def aget(self, item: int, *, scale: int = 1) -> None:
            self.fail()

        @layer
        def lines(self, item: int, *, scale: int = 1) -> Iterator[int]:
            self.fail()
            yield item

        @layer
        async def alines(self, item: int, *, scale: int = 1) -> AsyncIterator[int]:
            self.fail()
            yield item

        async def all_lines(self) -> list[int]:
            return [line async for line in self.alines(1, scale=2)]

        @layer
        @staticmethod
        def of_nobody(client: Failing) -> None:
            client.fail()

    return Client()


@pytest.mark.parametrize("name", ["payments", "all"])
def test_they_follow_what_is_in_force(colour: str, name: str) -> None:
    client = client_of(name)

    def blocking() -> list[int]:
        ways = (lambda: client.get(1), lambda: list(client.lines(1)), lambda: client.of_nobody(client))
        return [client.tried(way) for way in ways]

    async def waiting() -> list[int]:
        ways: tuple[Any, ...] = (lambda: client.aget(1, scale=2), client.all_lines)
        return [await client.atried(way) for way in ways]

    def tried() -> set[int]:
        return set(in_colour(colour, blocking, waiting))

    load(said(3))
    assert tried() == {3}
    assert reload(said(5)).ok
    assert tried() == {5}
    assert not reload({"policies": 7}).ok
    assert tried() == {5}
    load({"pipelines": {name: {"layers": []}}})
    assert tried() == {1}


def test_before_there_is_a_configuration(colour: str) -> None:
    client = client_of("payments")

    def blocking() -> None:
        with pytest.raises(ConfigError, match="no configuration is loaded yet"):
            client.get(1)
        with pytest.raises(ConfigError, match="no configuration is loaded yet"):
            next(client.lines(1))

    async def waiting() -> None:
        with pytest.raises(ConfigError, match="no configuration is loaded yet"):
            await client.aget(1)
        with pytest.raises(ConfigError, match="no configuration is loaded yet"):
            client.alines(1)

    in_colour(colour, blocking, waiting)
    assert client.attempts == 0


def test_they_look_as_they_did() -> None:
    client: Any = client_of("payments").__class__
    for name in ("get", "aget", "lines", "alines"):
        function = getattr(client, name)
        assert function.__name__ == name
        assert list(inspect.signature(function).parameters) == ["self", "item", "scale"]
        assert policy_of(function) is policies("payments")
    assert inspect.iscoroutinefunction(client.aget)
    assert inspect.isgeneratorfunction(client.lines)
    assert inspect.isasyncgenfunction(client.alines)
    load(said(1))
    with pytest.raises(TypeError, match=r"get\(\) got an unexpected keyword argument 'size'"):
        client().get(1, size=2)


def test_in_a_pipeline_of_code() -> None:
    """It is asked when a call begins, and not when the pipeline is made."""
    calls: list[int] = []
    pipeline = Timeout(9) | policies("payments") | CircuitBreaker(failures=99)

    @pipeline
    async def fail() -> None:
        calls.append(1)
        raise Boom

    for attempts in (3, 1, 2):
        load(said(attempts))
        calls.clear()
        with pytest.raises(Boom):
            in_colour("asyncio", list, fail)
        assert len(calls) == attempts
    assert policy_of(fail) is pipeline


def test_a_function_that_it_cannot_wrap_is_refused_when_it_is_decorated() -> None:
    load({"policies": {"payments": {"attempt_timeout": 1}}})
    with pytest.raises(TypeError, match="attempt_timeout= cannot stop"):
        policies("payments")(print)
    assert reload({"policies": {"payments": {"attempt_timeout": 2}}}).ok, "nobody goes by it"


def test_what_a_generator_sends_and_returns_goes_through() -> None:
    load(said(3))

    @policies("payments")
    def echo() -> Any:
        yield (yield 1)
        return "over"

    items = echo()
    assert [next(items), items.send(5)] == [1, 5]
    with pytest.raises(StopIteration) as over:
        next(items)
    assert over.value.value == "over"
