"""Spending limits of language model calls: llm-fiber's budget, and its decision record."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from typing import Any

import pytest

from redouble import Retry, report
from redouble.llm import Model, Spend, SpendExceeded, SpendRefused, Usage, current
from tests.conformance.flows import EVERY, in_colour

every_colour = pytest.mark.parametrize("colour", EVERY)
LIMITS: list[dict[str, Any]] = [{"tokens": 10}, {"cost": 10}, {"requests": 10}]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        pytest.param(lambda: Spend(tokens=-1), "tokens", id="LF-CODE-04.budget-tokens"),
        pytest.param(lambda: Spend(cost=-1), "cost", id="LF-CODE-04.budget-cost"),
        pytest.param(lambda: Spend(requests=-1), "requests", id="LF-CODE-04.budget-requests"),
        pytest.param(lambda: Spend(tokens=1, warn_at=0), "warn_at", id="LF-CODE-04.budget-threshold"),
    ],
)
def test_invalid_options_are_rejected(make: Callable[[], object], named: str) -> None:
    """The error names the option."""
    with pytest.raises(ValueError, match=f"^Spend {named}=.*: write "):
        make()


def one_of(limit: Mapping[str, Any]) -> dict[str, int]:
    """Return the arguments that reserve one unit of the limit."""
    return {"requests": 0, **dict.fromkeys(limit, 1)}


@pytest.mark.parametrize("limit", LIMITS)
def test_lf_code_07_up_to_the_limit(limit: dict[str, Any]) -> None:
    """LF-CODE-07: the whole limit can be spent, and no unit more."""
    spend = Spend(**limit)
    for _ in range(10):
        spend.reserve(**one_of(limit)).commit()
    with pytest.raises(SpendRefused) as caught:
        spend.reserve(**one_of(limit))
    assert [caught.value.what] == list(limit)


@pytest.mark.parametrize("limit", LIMITS)
def test_lf_code_07_soft_limit(limit: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    """LF-CODE-07: there is a warning at 80 percent; here only once."""
    spend, (what,) = Spend(**limit), limit
    warned: list[int] = []
    for _ in range(10):
        spend.reserve(**one_of(limit)).commit()
        warned.append(len([one for one in caplog.records if one.levelno == logging.WARNING]))
    assert warned == [0, 0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert caplog.messages == [f"Spend({what}=10): 8 of 10 are spent or reserved"]


def test_lf_code_07_negative_amount_deviates() -> None:
    """LF-CODE-07: a negative amount is no refund: only `release` returns a reservation, and no more."""
    spend = Spend(tokens=10)
    reservation = spend.reserve(tokens=10)
    with pytest.raises(ValueError, match="release"):
        spend.reserve(tokens=-10)
    with pytest.raises(ValueError, match="release"):
        reservation.commit(tokens=-10)
    reservation.release()
    reservation.release()
    assert spend.snapshot()["tokens_left"] == 10


# ------------------------------------------------------------------------------ LF-ADR-08


def model_of(spend: Spend, **options: Any) -> Model:
    at_once = Retry(on=Exception, backoff=[0, 0, 0])
    return Model("acme", "small", policy=at_once, spend=spend, reserve=4, worker=None, **options)


@every_colour
@pytest.mark.parametrize("stream", [False, True])
def test_lf_adr_08_preflight_refusal(colour: str, stream: bool) -> None:
    """LF-ADR-08: a call without allowance is rejected before any attempt, and not retried."""
    spend, calls = Spend(tokens=6, warn_at=None), list[None]()
    spend.reserve(tokens=3).commit()
    model = model_of(spend)

    def ask() -> None:
        calls.append(None)

    async def aask() -> None:
        calls.append(None)

    def chunks() -> Generator[str]:
        calls.append(None)
        yield "a"

    async def achunks() -> AsyncGenerator[str]:
        calls.append(None)
        yield "a"

    async def waiting() -> object:
        return [chunk async for chunk in model.stream(achunks)] if stream else await model.call(aask)

    def blocking() -> object:
        return list(model.stream(chunks)) if stream else model.call(ask)

    with pytest.raises(SpendRefused) as caught:
        in_colour(colour, blocking, waiting)
    told = report(caught.value)
    assert (calls, caught.value.what) == ([], "tokens")
    assert told is not None
    assert told.attempts == 0
    assert spend.snapshot()["tokens_left"] == 3


@every_colour
def test_lf_adr_08_mid_stream_refusal(colour: str) -> None:
    """LF-ADR-08: a stream that exceeds the rest is stopped and not retried; its usage is counted."""
    spend, calls, got = Spend(tokens=6, warn_at=None), list[None](), list[int]()
    model = model_of(spend, protocol=None)

    def chunks() -> Generator[int]:
        calls.append(None)
        yield from range(100)

    async def achunks() -> AsyncGenerator[int]:
        for chunk in chunks():
            yield chunk

    async def waiting() -> None:
        async for chunk in model.stream(achunks):
            got.append(chunk)

    def blocking() -> None:
        for chunk in model.stream(chunks):
            got.append(chunk)

    with pytest.raises(SpendExceeded) as caught:
        in_colour(colour, blocking, waiting)
    assert (caught.value.what, len(calls), got) == ("tokens", 1, list(range(6)))
    assert spend.snapshot()["tokens"] == 6


@every_colour
def test_lf_adr_08_idempotency_key(colour: str) -> None:
    """LF-ADR-08: the same key on every attempt of a call, and another one for the next call."""
    spend, keys = Spend(tokens=100), list[object]()

    def usage(_: object) -> Usage:
        return Usage(1, 1)

    model = model_of(spend, idempotency="auto", usage=usage)

    def ask() -> None:
        keys.append(current().key)
        if len(keys) % 3:
            raise ConnectionError

    async def aask() -> None:
        ask()

    async def waiting() -> None:
        await model.call(aask)

    for _ in range(2):
        in_colour(colour, lambda: model.call(ask), waiting)
    assert [len(keys), len(set(keys)), len(set(keys[:3]))] == [6, 2, 1]
    assert None not in keys
    assert spend.snapshot()["tokens"] == 4
