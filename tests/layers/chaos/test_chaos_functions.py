"""A decorated async generator function is still an async generator function to `inspect`."""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from redouble import Chaos, Retry
from tests.support.fakes import ASYNC, Boom, in_colour

NEVER = Chaos(fault=Boom, rate=0)


@NEVER
@NEVER
async def numbers(first: int, /, second: int = 2, *, third: int = 3) -> AsyncGenerator[int, None]:
    """Count."""
    for number in (first, second, third):
        yield number


class Counter:
    """Numbers as every kind of method that a class may have."""

    @NEVER
    async def method(self, first: int) -> AsyncGenerator[int, None]:
        yield first

    @classmethod
    @NEVER
    async def of_class(cls, first: int) -> AsyncGenerator[int, None]:
        yield first

    @NEVER
    @staticmethod
    async def static(first: int) -> AsyncGenerator[int, None]:
        yield first

    async def __call__(self, first: int) -> AsyncGenerator[int, None]:
        yield first

    async def bare(self, first: int) -> AsyncGenerator[int, None]:
        yield first


SIGNATURE = "(first: 'int', /, second: 'int' = 2, *, third: 'int' = 3) -> 'AsyncGenerator[int, None]'"

FUNCTIONS: list[Callable[[int], AsyncGenerator[int, None]]] = [
    Counter().method,
    Counter.of_class,
    Counter().of_class,
    Counter.static,
    NEVER(Counter().bare),
    NEVER(Counter()),
    NEVER(functools.partial(numbers, second=5)),
    NEVER(functools.partial(Counter().bare)),
    numbers,
    (Retry() | NEVER)(numbers),
]


@pytest.mark.parametrize("fn", FUNCTIONS)
@pytest.mark.parametrize("colour", ASYNC)
def test_it_is_an_async_generator_function(colour: str, fn: Callable[[int], AsyncGenerator[int]]) -> None:
    async def main() -> int:
        stream = fn(7)
        first = await anext(stream)
        await stream.aclose()
        return first

    assert inspect.isasyncgenfunction(fn)
    assert in_colour(colour, lambda: None, main) == 7


def test_it_keeps_its_name_signature_and_identity() -> None:
    assert (numbers.__name__, numbers.__doc__) == ("numbers", "Count.")
    assert str(inspect.signature(numbers)) == SIGNATURE
    assert repr(numbers) == "<function numbers>"
    assert pickle.loads(pickle.dumps(numbers)) is numbers
    assert Counter.__dict__["method"].__get__(None, Counter) is Counter.method


def test_wrong_arguments_are_an_error_at_once() -> None:
    wrong: Any = numbers
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        wrong()
    with pytest.raises(TypeError, match="unexpected keyword argument 'fourth'"):
        wrong(1, fourth=4)
