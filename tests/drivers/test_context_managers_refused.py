"""Objects that `Retry.enter` cannot enter, and the messages of their errors."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from redouble import Retry
from tests.support.drivers.context_managers import ConnectionFactory, entered
from tests.support.fakes import ASYNC, SYNC


class OnlyIn:
    def __enter__(self) -> None: ...
    async def __aenter__(self) -> None: ...


@contextmanager
def plain() -> Generator[None]:
    yield


@asynccontextmanager
async def aplain() -> AsyncGenerator[None]:
    yield


@pytest.mark.parametrize(
    ("colours", "make", "message"),
    [
        (SYNC, int, r"int made 'int', which has no __enter__ and __exit__$"),
        (SYNC, OnlyIn, r"OnlyIn made 'OnlyIn', which has no __enter__ and __exit__"),
        (SYNC, aplain, r"aplain made '_AsyncGeneratorContextManager', .*: write `async with`$"),
        (ASYNC, int, r"int made 'int', which has no __aenter__ and __aexit__$"),
        (ASYNC, OnlyIn, r"OnlyIn made 'OnlyIn', which has no __aenter__ and __aexit__"),
        (ASYNC, plain, r"plain made '_GeneratorContextManager', .*: write `with`$"),
    ],
)
def test_enter_refuses_what_is_no_context_manager(
    colours: tuple[str, ...], make: Callable[..., Any], message: str
) -> None:
    for colour in colours:
        with pytest.raises(TypeError, match=message):
            entered(colour, ConnectionFactory().policy.enter(make), pytest.fail)


def test_a_coroutine_function_in_a_blocking_with_is_refused() -> None:
    """Without a warning about a coroutine that was never awaited."""
    factory = ConnectionFactory()
    manager: Any = factory.policy.enter(factory.aconnect)
    with pytest.raises(TypeError, match="made 'coroutine', which has no __enter__"), manager:
        pytest.fail("entered")


def test_until_is_refused_by_enter() -> None:
    factory = ConnectionFactory(until=bool)
    with pytest.raises(TypeError, match=r"until= judges a result, and ConnectionFactory\.connect has none"):
        factory.policy.enter(factory.connect)


def test_an_existing_context_manager_is_refused() -> None:
    factory = ConnectionFactory()
    with pytest.raises(TypeError, match="callable"):
        factory.policy.enter(factory.connect())  # type: ignore[arg-type]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_manager_whose_enter_raises_stop_iteration_is_not_entered() -> None:
    class Empty:
        def __enter__(self) -> None:
            raise StopIteration

        def __exit__(self, *_: object) -> None:
            raise AssertionError

    with pytest.raises(StopIteration), Retry(attempts=1).enter(Empty):
        pass
