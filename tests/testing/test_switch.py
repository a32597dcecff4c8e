"""`Switch`: a setting for a block that also decorates functions of every colour."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from inspect import iscoroutinefunction, signature
from typing import Any

import pytest

from redouble import SYSTEM, Retry
from redouble.testing import Script, attempts, no_retries, ok, recorded, virtual_time
from tests.support.fakes import in_colour

HOUR = 3600.0
POLICY = Retry(backoff=[HOUR], give_up_after=None)


@virtual_time()
def retried(word: str) -> tuple[str, object, float]:
    """Wait for an hour."""
    return word, POLICY.call(Script("fail", ok(3))), SYSTEM.now()


@virtual_time()
async def aretried(word: str) -> tuple[str, object, float]:
    """Wait for an hour."""
    return word, await POLICY.call(Script("fail", ok(3)).aio), SYSTEM.now()


@pytest.mark.parametrize("colour", ["sync", "thread", "asyncio", "uvloop"])
def test_every_call_of_a_decorated_function_is_its_own_block(colour: str) -> None:
    """In async code too, where a decorator of `contextlib` would end before the function runs."""
    for _ in range(2):
        assert in_colour(colour, lambda: retried("now"), lambda: aretried(word="now")) == ("now", 3, HOUR)


def test_a_decorated_function_keeps_its_metadata() -> None:
    assert retried.__doc__ == "Wait for an hour."
    assert str(signature(retried)) == "(word: 'str') -> 'tuple[str, object, float]'"
    assert iscoroutinefunction(aretried)
    assert not iscoroutinefunction(retried)


def test_attempts_and_no_retries_decorate_functions() -> None:
    @no_retries()
    def once() -> int:
        outcome: Any = POLICY.run(Script("fail", "fail"))
        return int(outcome.report.attempts)

    @attempts(2)
    @virtual_time()
    async def twice() -> int:
        return (await POLICY.run(Script("fail", "fail", "fail").aio)).report.attempts

    assert once() == 1
    assert in_colour("asyncio", lambda: None, twice) == 2


def test_generator_functions_are_refused() -> None:
    def fixture() -> Iterator[None]:
        yield

    async def afixture() -> AsyncIterator[None]:
        yield

    for fn in (fixture, afixture):
        with pytest.raises(TypeError, match=r"cannot decorate .*fixture, which is a generator: write"):
            virtual_time()(fn)


def test_a_context_is_reusable_and_reentrant() -> None:
    context = recorded()
    with context as outer:
        POLICY.call(Script(ok()))
        with context as inner:
            POLICY.call(Script(ok()))
    with context as again:
        pass
    assert [len(events) for events in (outer, inner, again)] == [4, 2, 0]


def test_async_with_is_refused() -> None:
    async def main() -> None:
        context: Any = virtual_time()
        async with context:
            raise AssertionError("it was entered")

    with pytest.raises(TypeError, match="write `with` also in async code"):
        in_colour("asyncio", lambda: None, main)
