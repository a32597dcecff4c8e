"""Functions decorated with a named policy follow the active configuration, and keep their signature."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from redouble import CircuitBreaker, Timeout, policy_of
from redouble.config._reload import load, policies, reload
from redouble.errors import ConfigError
from tests.support.config.named_policies import Failing, pipeline_document
from tests.support.fakes import Boom, in_colour


def client_of(name: str) -> Any:
    """Return a client with methods of every kind, decorated with the named policy."""
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
        def static(client: Failing) -> None:
            client.fail()

    return Client()


@pytest.mark.parametrize("name", ["payments", "all"])
def test_decorated_functions_follow_the_active_configuration(colour: str, name: str) -> None:
    client = client_of(name)

    def blocking() -> list[int]:
        ways = (lambda: client.get(1), lambda: list(client.lines(1)), lambda: client.static(client))
        return [client.attempts_of(way) for way in ways]

    async def waiting() -> list[int]:
        ways: tuple[Any, ...] = (lambda: client.aget(1, scale=2), client.all_lines)
        return [await client.aattempts_of(way) for way in ways]

    def tried() -> set[int]:
        return set(in_colour(colour, blocking, waiting))

    load(pipeline_document(3))
    assert tried() == {3}
    assert reload(pipeline_document(5)).ok
    assert tried() == {5}
    assert not reload({"policies": 7}).ok
    assert tried() == {5}
    load({"pipelines": {name: {"layers": []}}})
    assert tried() == {1}


def test_a_call_without_a_configuration_raises(colour: str) -> None:
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


def test_decorated_functions_keep_name_signature_and_kind() -> None:
    client: Any = client_of("payments").__class__
    for name in ("get", "aget", "lines", "alines"):
        function = getattr(client, name)
        assert function.__name__ == name
        assert list(inspect.signature(function).parameters) == ["self", "item", "scale"]
        assert policy_of(function) is policies("payments")
    assert inspect.iscoroutinefunction(client.aget)
    assert inspect.isgeneratorfunction(client.lines)
    assert inspect.isasyncgenfunction(client.alines)
    load(pipeline_document(1))
    with pytest.raises(TypeError, match=r"get\(\) got an unexpected keyword argument 'size'"):
        client().get(1, size=2)


def test_a_named_policy_inside_a_pipeline_follows_reloads() -> None:
    """The policy is looked up when a call begins, not when the pipeline is created."""
    calls: list[int] = []
    pipeline = Timeout(9) | policies("payments") | CircuitBreaker(failures=99)

    @pipeline
    async def fail() -> None:
        calls.append(1)
        raise Boom

    for attempts in (3, 1, 2):
        load(pipeline_document(attempts))
        calls.clear()
        with pytest.raises(Boom):
            in_colour("asyncio", list, fail)
        assert len(calls) == attempts
    assert policy_of(fail) is pipeline


def test_decorating_a_function_that_does_not_fit_the_policy_raises() -> None:
    load({"policies": {"payments": {"attempt_timeout": 1}}})
    with pytest.raises(TypeError, match="attempt_timeout= cannot stop"):
        policies("payments")(print)
    assert reload({"policies": {"payments": {"attempt_timeout": 2}}}).ok, "no function uses it"


def test_a_generator_keeps_send_and_its_return_value() -> None:
    load(pipeline_document(3))

    @policies("payments")
    def echo() -> Any:
        yield (yield 1)
        return "over"

    items = echo()
    assert [next(items), items.send(5)] == [1, 5]
    with pytest.raises(StopIteration) as over:
        next(items)
    assert over.value.value == "over"
