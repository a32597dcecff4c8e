"""A named policy can be used like the policy or pipeline it refers to, and its hooks return the same."""

from __future__ import annotations

import copy
import pickle
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from redouble import Bulkhead, Pipeline, Timeout
from redouble._layers.analysis import Traits, WorstCase
from redouble._layers.layer import LayerProxy
from redouble.config._reload import load, policies
from tests.support.config.named_policies import Failing, pipeline_document
from tests.support.fakes import ASYNC, in_colour


class Service(Failing):
    """Has a function, a generator and a context manager of each colour; all of them fail."""

    def items(self) -> Iterator[int]:
        self.fail()
        yield 1

    @contextmanager
    def door(self) -> Generator[None]:
        self.fail()
        yield

    async def afail(self) -> None:
        self.fail()

    async def aitems(self) -> AsyncIterator[int]:
        self.fail()
        yield 1

    @asynccontextmanager
    async def adoor(self) -> AsyncGenerator[None]:
        self.fail()
        yield


@pytest.mark.parametrize("attempts", [1, 4])
def test_every_way_of_calling_follows_the_policy(attempts: int) -> None:
    load(pipeline_document(attempts))
    payments, service = policies("payments"), Service()

    def entered() -> None:
        with payments.enter(service.door):
            pass

    def looped() -> None:
        for attempt in payments:
            with attempt:
                service.fail()

    ways = (
        lambda: payments.call(service.fail),
        lambda: payments.run(service.fail).unwrap(),
        lambda: list(payments.stream(service.items)),
        entered,
        looped,
    )
    assert [service.attempts_of(way) for way in ways] == [attempts] * 5


@pytest.mark.parametrize("colour", ASYNC)
def test_every_async_way_of_calling_follows_the_policy(colour: str) -> None:
    load(pipeline_document(3))
    payments, service = policies("payments"), Service()

    async def entered() -> None:
        async with payments.enter(service.adoor):
            pass

    async def looped() -> None:
        async for attempt in payments:
            with attempt:
                service.fail()

    async def streamed() -> list[int]:
        return [item async for item in payments.stream(service.aitems)]

    async def ran() -> None:
        (await payments.run(service.afail)).unwrap()

    async def waiting() -> list[int]:
        called, threaded = lambda: payments.call(service.afail), lambda: payments.acall(service.fail)
        return [await service.aattempts_of(way) for way in (called, threaded, entered, looped, streamed, ran)]

    assert in_colour(colour, list, waiting) == [3] * 6


def test_a_named_pipeline_has_call_and_refuses_what_needs_a_policy() -> None:
    load(pipeline_document(3))
    pipeline, service = policies("all"), Service()
    assert service.attempts_of(lambda: pipeline.call(service.fail)) == 3
    ways: dict[str, Callable[[], object]] = {
        "run": lambda: pipeline.run(service.fail),
        "stream": lambda: pipeline.stream(service.items),
        "enter": lambda: pipeline.enter(service.door),
        "acall": lambda: pipeline.acall(service.fail).send(None),
        "a `for` loop": lambda: iter(pipeline),
        "an `async for` loop": lambda: aiter(pipeline),
    }
    for what, use in ways.items():
        with pytest.raises(TypeError, match=rf"\('all'\) is a pipeline, and {what} is for a single policy"):
            use()


def test_options_are_attributes() -> None:
    config = load(pipeline_document(3))
    payments, every = policies("payments"), policies("all")
    assert (payments.attempts, payments.name) == (3, "payments")
    assert every.layers == (payments.current,)
    assert every.check() == config.pipelines["all"].check()
    for layer, name in ((payments, "atempts"), (payments, "_attempts"), (every, "attempts")):
        with pytest.raises(AttributeError, match=name):
            getattr(layer, name)


def test_before_load_a_named_policy_has_no_private_attributes() -> None:
    """`hasattr` returns False rather than raising that no configuration is loaded."""
    payments = policies("payments")
    assert not hasattr(payments, "__wrapped__")
    assert not hasattr(payments, "_is_coroutine_marker")


def test_a_named_policy_is_never_copied_nor_pickled() -> None:
    payments = policies("payments")
    assert copy.copy(payments) is copy.deepcopy([payments])[0] is payments
    with pytest.raises(TypeError, match="a Named is shared by the calls of one process"):
        pickle.dumps(payments)
    assert repr(payments) == "redouble.policies('payments')"


# --------------------------------------------------------------------- hooks among other layers


def results_of(layer: Any) -> list[object]:
    """Return the results of the hooks that layers call on each other."""
    return [
        layer.worst_case(WorstCase()),
        layer.traits(),
        list(layer.lint((Timeout(1),), (Bulkhead(1),), WorstCase())),
    ]


def test_before_load_the_hooks_return_neutral_values() -> None:
    nothing: list[object] = [WorstCase(), Traits(), list[str]()]
    assert results_of(policies("payments")) == results_of(LayerProxy()) == results_of(Pipeline()) == nothing
    assert policies("payments").describe() == "payments: not loaded yet"


@pytest.mark.parametrize(
    "policy",
    [{}, {"attempts": 1}, {"timeout": 3, "attempt_timeout": 1, "budget": "shared"}, {"give_up_after": 99}],
)
def test_the_hooks_return_what_the_policy_returns(policy: dict[str, Any]) -> None:
    config = load({"budgets": {"shared": {}}, "policies": {"payments": policy}})
    payments, current = policies("payments"), config.policies["payments"]
    assert results_of(payments) == results_of(current)
    assert payments.describe() == f"payments: Retry ({current.describe()})"
    assert Pipeline(payments, Timeout(9)).check() == Pipeline(current, Timeout(9)).check()


def test_the_hooks_return_what_the_pipeline_returns() -> None:
    layers = [
        {"type": "timeout", "seconds": 3},
        "gates.db",
        {"type": "retry", "timeout": 2},
        {"type": "hedge", "delay": 1},
    ]
    gates = {"db": {"type": "bulkhead", "limit": 3}}
    config = load({"gates": gates, "pipelines": {"all": {"layers": layers}}})
    every, current = policies("all"), config.pipelines["all"]
    inner = WorstCase()
    for layer in reversed(current.layers):
        inner = layer.worst_case(inner)
    assert results_of(every) == results_of(current)
    assert results_of(every)[0] == inner
    assert every.describe().startswith("all: Timeout (at most 3 s) | Bulkhead (3 at once, ")
    assert every.traits() == Traits(
        retries=True,
        concurrent=True,
        time_limit=2,
        each_call_limit=3,
        handles=None,
        shared=(config.gates["db"], current.layers[-1]),
    )
    assert Pipeline(every, Bulkhead(1)).check() == Pipeline(current, Bulkhead(1)).check()
    assert (
        Pipeline(config.gates["db"], every)
        .check()[-1]
        .startswith("the same Bulkhead is in the pipeline twice")
    )
