"""Streams and entrances used wrongly, and whose error is whose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Lock
from typing import Any

import pytest

from redouble import Gate, Retry, policy_of, report, retry, transient
from redouble.testing import no_retries, virtual_time
from redouble.types import Event
from tests.support.fakes import Boom

POLICY = Retry(on=Boom, backoff=[0] * 9)


# ------------------------------------------------------------------------ the wrong colour


def test_a_stream_is_closed_as_it_is_read() -> None:
    def numbers() -> Iterator[int]:
        yield from (1, 2, 3)

    async def anumbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def main() -> None:
        stream, other = POLICY.stream(anumbers), POLICY.stream(numbers)
        with pytest.raises(TypeError, match="read by `async for`: write `async with`"), stream:
            async for _ in stream:
                break
        await stream.aclose()
        with pytest.raises(TypeError, match="read by `for`: write `with`"):
            async with other:
                for _ in other:
                    break
        other.close()

    asyncio.run(main())


THREE: Any = 3
MISTAKES: dict[str, Callable[[Retry], object]] = {
    "for": lambda policy: next(policy.stream(lambda: THREE)),
    "with": lambda policy: policy.enter(lambda: THREE).__enter__(),
    "async for": lambda policy: asyncio.run(anext(policy.stream(lambda: [1]))),  # pyright: ignore[reportArgumentType]
    "async with": lambda policy: asyncio.run(policy.enter(Lock).__aenter__()),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("way", MISTAKES)
def test_mistakes_are_never_retried(way: str) -> None:
    """Whatever `on` says: they are no failure of an attempt."""
    seen: list[Event] = []
    with pytest.raises(TypeError, match=r"opened 'int'|made 'int'|opened 'list'|made 'lock'.*: write `with`"):
        MISTAKES[way](Retry(on=Exception, backoff=[0] * 9, on_failure=seen.append))
    assert seen == []


def test_options_without_their_names() -> None:
    for wrong in (transient, Boom):
        with pytest.raises(TypeError, match="options are keywords"):
            retry(wrong)


class Lines:
    """A class, such as one of tests."""


def test_switches_do_not_decorate_classes() -> None:
    """It would become a function, and its tests would vanish."""
    for switch in (no_retries(), virtual_time()):
        with pytest.raises(TypeError, match="cannot decorate the class Lines: decorate its tests"):
            switch(Lines)


# --------------------------------------------------------- context managers made of streams


def test_an_error_of_the_body_is_not_the_streams() -> None:
    """Neither is it told, nor marked: an outer policy retries it like any other."""
    told: list[str] = []
    policy = Retry(
        on=Boom, on_success=lambda e: told.append(e.what), on_give_up=lambda e: told.append(e.what)
    )

    @contextmanager
    @policy
    def connection() -> Generator[int]:
        yield 1

    @asynccontextmanager
    @policy
    async def aconnection() -> AsyncGenerator[int]:
        yield 1

    calls = 0

    @Retry(on=Boom, backoff=[0] * 9, attempts=3, nested="stop")
    def work() -> None:
        nonlocal calls
        calls += 1
        with connection():
            raise Boom("body")

    with pytest.raises(Boom) as caught:
        work()
    assert calls == 3
    said = report(caught.value)
    assert said is not None
    assert (said.reason, told) == ("attempts", ["success"] * 3)

    async def main() -> None:
        error = Boom("body")
        with pytest.raises(Boom):
            async with aconnection():
                raise error
        assert (report(error), getattr(error, "__notes__", None)) == (None, None)

    asyncio.run(main())


def test_a_stream_that_broke_at_its_first_attempt_multiplies_nothing() -> None:
    calls = 0

    @POLICY
    def rows() -> Iterator[int]:
        yield 1
        raise Boom

    @Retry(on=Boom, backoff=[0] * 9, attempts=3, nested="stop")
    def work() -> None:
        nonlocal calls
        calls += 1
        list(rows())

    with pytest.raises(Boom):
        work()
    assert calls == 3


class Counted(Gate):
    """Wraps generators in a way of its own, which does not hold it."""

    def around_stream(self, fn: Callable[..., Generator[Any, Any, Any]], /) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            yield from fn(*args, **kwargs)

        return counted


def test_a_gate_with_wrappers_of_its_own_is_held() -> None:
    def rows() -> Iterator[int]:
        yield 1

    assert isinstance(policy_of(Counted()(rows)), Counted)
