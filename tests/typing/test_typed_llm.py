"""Calls of language models keep their types, checked by two type checkers and at run time."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from decimal import Decimal
from typing import Any, assert_type

import pytest

from redouble import Bulkhead, Pipeline, Retry, Verdict, Worker
from redouble.http import Idempotency
from redouble.llm import (
    Answer,
    Call,
    Context,
    CutShort,
    ErrorEvent,
    Model,
    Price,
    Protocol,
    Reservation,
    Spend,
    SpendRefused,
    Timeouts,
    Usage,
    current,
    table,
)

pytestmark = pytest.mark.one_python

MODEL = Model("acme", "large", policy=Retry(backoff=[0] * 9), protocol=None)


def run(main: Coroutine[Any, Any, object]) -> None:
    asyncio.run(main)


# ------------------------------------------------------------------------------- calls


def ask(prompt: str, *, times: int = 1) -> bytes:
    return prompt.encode() * times


async def aask(prompt: str, *, times: int = 1) -> bytes:
    return prompt.encode() * times


@MODEL
def asked(prompt: str, *, times: int = 1) -> bytes:
    return prompt.encode() * times


@MODEL
async def aasked(prompt: str, *, times: int = 1) -> bytes:
    return prompt.encode() * times


@MODEL
def spoken(prompt: str, *, times: int = 1) -> Iterator[str]:
    yield from [prompt] * times


@MODEL
async def aspoken(prompt: str, *, times: int = 1) -> AsyncIterator[str]:
    for _ in range(times):
        yield prompt


class Client:
    @MODEL
    def ask(self, prompt: str) -> bytes:
        return prompt.encode()

    @MODEL
    async def aask(self, prompt: str) -> bytes:
        return prompt.encode()


def test_calls_keep_their_types() -> None:
    async def main() -> None:
        assert_type(await MODEL.call(aask, "a", times=2), bytes)
        assert_type(await aasked("a", times=2), bytes)
        assert_type(await Client().aask("a"), bytes)

    assert_type(MODEL.call(ask, "a", times=2), bytes)
    assert_type(MODEL.call(lambda: 3), int)
    assert_type(MODEL.within(3).call(ask, "a"), bytes)
    assert_type(asked("a", times=2), bytes)
    assert_type(Client().ask("a"), bytes)
    assert_type(MODEL(ask)("a"), bytes)
    assert_type(MODEL | Bulkhead(3), Pipeline)
    assert_type((Bulkhead(3) | MODEL).call(ask, "a"), bytes)
    run(main())


def test_generators_keep_their_types() -> None:
    async def main() -> None:
        assert_type(aspoken("a"), AsyncIterator[str])
        assert_type([word async for word in aspoken("a", times=2)], list[str])

    assert_type(spoken("a"), Iterator[str])
    assert_type(list(spoken("a", times=2)), list[str])
    run(main())


def test_wrong_calls_are_reported() -> None:
    with pytest.raises(TypeError):
        MODEL.call(ask)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        MODEL.call(ask, "a", size=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        asked()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        list(spoken("a", size=3))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUnknownArgumentType]


# ----------------------------------------------------------------------------- streams


def numbers(most: int = 2) -> Iterator[int]:
    yield from range(most)


async def anumbers(most: int = 2) -> AsyncIterator[int]:
    for number in range(most):
        yield number


async def opens() -> AsyncIterator[int]:
    return anumbers()


@contextmanager
def manages() -> Generator[list[int]]:
    yield [1]


@asynccontextmanager
async def amanages() -> AsyncGenerator[AsyncIterator[int]]:
    yield anumbers()


def test_streams() -> None:
    assert_type(MODEL.stream(numbers), Answer[int])
    assert_type(MODEL.stream(numbers, most=3), Answer[int])
    assert_type(MODEL.stream(lambda: [1, 2]), Answer[int])
    assert_type(MODEL.stream(manages), Answer[Any])
    assert_type(MODEL.stream(amanages), Answer[Any])
    assert_type(list(MODEL.stream(numbers)), list[int])
    assert_type(next(MODEL.stream(numbers)), int)
    with MODEL.stream(numbers) as answer:
        assert_type(answer, Answer[int])
        for number in answer:
            assert_type(number, int)
    assert_type(answer.usage, Usage | None)
    answer.close()


def test_async_streams() -> None:
    async def main() -> None:
        assert_type([number async for number in MODEL.stream(anumbers)], list[int])
        assert_type([number async for number in MODEL.stream(opens)], list[int])
        assert_type(await anext(MODEL.stream(anumbers, 3)), int)
        async with MODEL.stream(opens) as answer:
            assert_type(answer, Answer[int])
            async for number in answer:
                assert_type(number, int)
            await answer.aclose()

    assert_type(MODEL.stream(anumbers), Answer[int])
    run(main())


def test_wrong_streams_are_reported() -> None:
    with pytest.raises(TypeError):
        MODEL.stream([1])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    MODEL.stream(numbers, size=3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        list(MODEL.stream(lambda: 3))  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownArgumentType]


# ----------------------------------------------------------------------------- options


def again(error: Exception, attempt: int, context: Context) -> bool | None:
    assert_type(context.provider, str)
    assert_type(context.stream, bool)
    return None


def longest(prompt: str, *, times: int = 1) -> int:
    return len(prompt) * times


class Lines(Protocol):
    def read(self, chunk: object, /) -> ErrorEvent | None:
        self.ended = chunk == "END"
        return None

    def cut_short(self) -> str:
        return "the stream ended without END"


def test_options() -> None:
    made = Model(
        "acme",
        "large",
        timeouts=Timeouts(total=timedelta(minutes=2)),
        policy=Retry(attempts=2),
        retry_if=again,
        spend=Spend(
            tokens=9, cost=Decimal("0.5"), requests=3, per=timedelta(minutes=1), warn_at=0.5, name="x"
        ),
        reserve=longest,
        price=Price(input=2.5, output=10),
        usage=lambda found: Usage(input=1, output=2),
        protocol=Lines,
        idempotency=Idempotency(),
        worker=Worker(),
    )
    assert_type(made, Model)
    assert_type(made.within(3), Model)
    assert_type(made.within(timedelta(seconds=3)), Model)
    assert_type(made.within(None), Model)
    assert_type(made.within(Timeouts(connect=1, read=2, total=3, first=4)), Model)
    for timeouts in (3, 2.5, timedelta(seconds=3), None, Timeouts()):
        assert_type(Model("acme", "large", timeouts=timeouts), Model)
    Model("acme", "large", protocol="openai", idempotency="auto", worker=None, reserve=Usage(1, 2))
    assert_type(table(CutShort()), Verdict | None)


def test_wrong_options_are_reported() -> None:
    with pytest.raises(TypeError):
        Model("acme")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError):
        Model("acme", "large", timeouts="3s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Model("acme", "large", spend=100)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Timeouts(total="3s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Spend(tokens="9")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        Spend(9)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# ------------------------------------------------------------------------- attributes


def test_spending() -> None:
    spend = Spend(tokens=100, per=60)
    with spend.reserve(tokens=3, cost=0.5) as reservation:
        assert_type(reservation, Reservation)
        assert_type(reservation.more(tokens=3), bool)
        reservation.commit(tokens=5)
    reservation.release()
    assert_type(spend.snapshot(), Mapping[str, float])
    with pytest.raises(SpendRefused) as caught:
        spend.reserve(tokens=101)
    assert_type(caught.value.what, str | None)
    assert_type(caught.value.retry_after, float | None)
    assert_type(Usage(1, 2).total, int)


def test_the_types_of_current() -> None:
    @MODEL
    def inside() -> Call:
        call = current()
        assert_type(call.timeout, dict[str, float | None])
        assert_type(call.headers, Mapping[str, str])
        assert_type(call.key, str | None)
        assert_type(call.left(), float)
        return call

    assert_type(inside(), Call)
    error = ErrorEvent("no", type="overloaded_error", said={})
    assert_type(error.type, str | None)
    assert_type(error.said, object)
