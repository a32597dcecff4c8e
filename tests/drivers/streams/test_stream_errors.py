"""Streams and context managers used wrongly, and errors that are not failures of the stream."""

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


def test_a_stream_must_be_closed_in_the_colour_it_is_read_in() -> None:
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
def test_usage_errors_are_never_retried(way: str) -> None:
    """Whatever `on` is: a usage error is no failure of an attempt."""
    seen: list[Event] = []
    with pytest.raises(TypeError, match=r"opened 'int'|made 'int'|opened 'list'|made 'lock'.*: write `with`"):
        MISTAKES[way](Retry(on=Exception, backoff=[0] * 9, on_failure=seen.append))
    assert seen == []


def test_positional_options_are_refused() -> None:
    for wrong in (transient, Boom):
        with pytest.raises(TypeError, match="options are keywords"):
            retry(wrong)


class Lines:
    """A class to decorate, such as a class of tests."""


def test_contexts_for_tests_refuse_to_decorate_a_class() -> None:
    """The class would become a function, and pytest would not collect its tests."""
    for context in (no_retries(), virtual_time()):
        with pytest.raises(TypeError, match="cannot decorate the class Lines: decorate its tests"):
            context(Lines)


# --------------------------------------------------------- context managers made of streams


def test_an_error_of_the_body_is_no_failure_of_the_stream() -> None:
    """It is neither emitted nor stamped, and an outer policy retries it like any other error."""
    events: list[str] = []
    policy = Retry(
        on=Boom, on_success=lambda e: events.append(e.what), on_give_up=lambda e: events.append(e.what)
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
    reported = report(caught.value)
    assert reported is not None
    assert (reported.reason, events) == ("attempts", ["success"] * 3)

    async def main() -> None:
        error = Boom("body")
        with pytest.raises(Boom):
            async with aconnection():
                raise error
        assert (report(error), getattr(error, "__notes__", None)) == (None, None)

    asyncio.run(main())


def test_a_stream_that_was_never_retried_does_not_stop_the_outer_policy() -> None:
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
    """A gate with its own wrapper for generators, which does not refer to the gate."""

    def around_stream(self, fn: Callable[..., Generator[Any, Any, Any]], /) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            yield from fn(*args, **kwargs)

        return counted


def test_policy_of_returns_a_gate_with_its_own_wrapper() -> None:
    def rows() -> Iterator[int]:
        yield 1

    assert isinstance(policy_of(Counted()(rows)), Counted)
