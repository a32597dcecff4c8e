"""A limit of the layers around one function, since Python's stack is limited: an error at construction."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from redouble import (
    AdaptiveConcurrency,
    AdaptiveRate,
    Bulkhead,
    Chaos,
    CircuitBreaker,
    Fallback,
    Gate,
    Hedge,
    Keyed,
    Layer,
    Pipeline,
    RateLimit,
    Retry,
    Throttle,
    Timeout,
    config,
    policy_of,
)
from redouble.errors import ConfigError

MOST = 50
USED = 400  # frames of a caller, such as a web framework
TOO_MANY = (
    rf"{MOST + 1} layers.*: a call through that many can exceed the recursion limit of Python; use {MOST}"
)


class Own(Gate):
    """A gate of the user's."""

    def admit(self, now: float, /) -> None: ...


def plain() -> list[int]:
    return [1, 2]


async def coroutine() -> list[int]:
    return [1, 2]


def generator() -> Iterator[int]:
    yield from (1, 2)


async def agenerator() -> AsyncIterator[int]:
    yield 1
    yield 2


async def drained(items: AsyncIterator[int]) -> list[int]:
    return [item async for item in items]


KINDS: list[tuple[Callable[[], Any], Callable[[Any], Any]]] = [
    (plain, lambda called: called),
    (coroutine, asyncio.run),
    (generator, list),
    (agenerator, lambda items: asyncio.run(drained(items))),
]
LAYERS: list[Callable[[], Layer]] = [
    Retry,
    lambda: Retry(timeout=60),
    CircuitBreaker,
    lambda: Bulkhead(1000),
    lambda: RateLimit(1e6, burst=1000),
    AdaptiveConcurrency,
    AdaptiveRate,
    Throttle,
    lambda: Fallback(value=1, on=KeyError),
    lambda: Chaos(fault=KeyError, rate=0),
    Own,
    lambda: Timeout(60),
    lambda: Hedge(60),
]


def below(frames: int, call: Callable[[], Any]) -> Any:
    """Call a function with this many frames below it."""
    return below(frames - 1, call) if frames else call()


@pytest.mark.stress  # measuring makes each call use more of the stack
@pytest.mark.parametrize("make", LAYERS)
@pytest.mark.parametrize(("fn", "run"), KINDS)
def test_the_most_layers_work(make: Callable[[], Layer], fn: Callable[[], Any], run: Any) -> None:
    """Around every kind of function, also with the frames of a caller below them."""
    pipeline = Pipeline(*(make() for _ in range(MOST)))
    try:
        decorated = pipeline(fn)
    except TypeError:
        assert isinstance(pipeline.layers[0], Timeout | Hedge)  # they cannot wrap each kind
        return
    assert below(USED, lambda: run(decorated())) == [1, 2]


def test_one_more_is_refused() -> None:
    layers = [Own() for _ in range(MOST + 1)]
    with pytest.raises(ValueError, match=TOO_MANY):
        Pipeline(*layers)
    whole = Pipeline(*layers[1:])
    with pytest.raises(ValueError, match=TOO_MANY):
        _ = layers[0] | whole
    with pytest.raises(ValueError, match=TOO_MANY):
        _ = whole | layers[0]


@pytest.mark.parametrize("fn", [kind[0] for kind in KINDS])
@pytest.mark.parametrize("step", [1, 25])
def test_nested_decorators_are_counted(fn: Callable[[], Any], step: int) -> None:
    decorated: Any = fn
    for _ in range(MOST // step):
        decorated = Pipeline(*(Own() for _ in range(step)))(decorated)
    with pytest.raises(ValueError, match=rf"{MOST + 1} layers around {fn.__name__}: "):
        Own()(decorated)
    assert policy_of(decorated) is not None
    assert Own()(fn) is not fn


def behind_a_decorator(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper() -> Any:
        return fn()

    return wrapper


class Owner:
    """An object whose method is decorated."""

    @Pipeline(*(Own() for _ in range(MOST)))
    def fn(self) -> int:
        """Return a number."""
        return 1


FULL = Pipeline(*(Own() for _ in range(MOST)))(plain)
HIDDEN: list[Any] = [behind_a_decorator(behind_a_decorator(FULL)), functools.partial(FULL), Owner().fn]


@pytest.mark.parametrize("fn", HIDDEN)
def test_layers_behind_other_decorators_are_counted(fn: Any) -> None:
    with pytest.raises(ValueError, match=f"{MOST + 1} layers around "):
        Own()(fn)


def test_a_call_counts_the_layers_of_its_function() -> None:
    with pytest.raises(ValueError, match=TOO_MANY):
        Pipeline(Own()).call(FULL)
    assert CircuitBreaker().call(plain) == [1, 2]


def test_layers_inside_a_proxy_are_counted() -> None:
    keyed: Keyed[Layer] = Keyed(lambda: 1, lambda: Pipeline(*(Own() for _ in range(MOST))))
    with pytest.raises(ValueError, match=TOO_MANY):
        keyed(plain)


def test_a_function_that_wraps_itself_is_decorated() -> None:
    def cycle() -> int:
        return 3

    cycle.__dict__["__wrapped__"] = cycle
    assert Own()(cycle)() == 3


def test_a_pipeline_of_a_configuration_is_refused_with_its_path() -> None:
    layers = [{"type": "timeout", "seconds": number + 1} for number in range(MOST + 1)]
    document: dict[str, Any] = {"pipelines": {"deep": {"layers": layers}}}
    with pytest.raises(ConfigError, match=r"pipelines\.deep.*51 layers"):
        config.from_mapping(document)
