"""The time limits of a call: their values, and the timeouts that a client receives."""

from __future__ import annotations

import re
from datetime import timedelta
from math import inf, nan
from typing import Any

import httpx2
import pytest

from redouble import SYSTEM, Retry, deadline
from redouble._runtime.backend import backend
from redouble.errors import AttemptTimeout, DeadlineExceeded
from redouble.llm import Model, Timeouts, current
from tests.support.fakes import ASYNC
from tests.support.llm.scripted_model import (
    BLOCKING,
    Service,
    ask,
    every_shape,
    model_of,
    run_in_virtual_time,
)

WANTED = "more than 0 seconds, or None for no limit"


def test_the_defaults_are_those_of_the_decision_record() -> None:
    assert Timeouts() == Timeouts(connect=5, read=30, total=30, first=None)
    assert model_of().timeouts == Timeouts()


@pytest.mark.parametrize("values", [(5, 30, 60), (10, 60, 120), (2, 10, 30)])
def test_values_are_attributes(values: tuple[float, float, float]) -> None:
    made = Timeouts(*values)
    assert (made.connect, made.read, made.total) == values


def test_none_has_no_limits() -> None:
    made = Timeouts.none()
    assert (made.connect, made.read, made.total, made.first) == (None, None, None, None)
    assert (made.silence, made.opening) == (inf, inf)
    assert made.within(inf) == dict.fromkeys(("connect", "read", "write", "pool"))


def test_a_timedelta_is_seconds() -> None:
    assert Timeouts(total=timedelta(minutes=2)).total == 120
    assert model_of(timeouts=timedelta(minutes=2)).timeouts == Timeouts(read=120, total=120)


def test_the_first_chunk_may_take_longer_than_the_others() -> None:
    assert (Timeouts(read=3).opening, Timeouts(read=3).silence) == (3, 3)
    assert (Timeouts(read=3, first=20).opening, Timeouts(read=3, first=20).silence) == (20, 3)
    assert Timeouts(read=None, first=20).silence == inf


@pytest.mark.parametrize("option", ["connect", "read", "total", "first"])
@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (0, ValueError, f"write {WANTED}"),
        (timedelta(0), ValueError, f"write {WANTED}"),
        (-1, ValueError, "write "),
        (nan, ValueError, "write "),
        (inf, ValueError, "write "),
        (True, TypeError, "write seconds as a number"),
        ("30s", TypeError, "write seconds as a number"),
    ],
)
def test_a_wrong_value_raises_with_its_name(
    option: str, value: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=rf"^Timeouts {option}=.*: {message}"):
        Timeouts(**{option: value})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (60, Timeouts(5, 60, 60)),
        (10, Timeouts(5, 10, 10)),
        (3, Timeouts(3, 3, 3)),
        (None, Timeouts.none()),
        (Timeouts(1, 2, 3), Timeouts(1, 2, 3)),
    ],
)
def test_a_number_is_the_total_and_bounds_the_other_limits(given: Any, expected: Timeouts) -> None:
    assert model_of(timeouts=given).timeouts == expected
    assert model_of().within(given).timeouts == expected


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (0, ValueError, f"Model timeouts=0: write {WANTED}"),
        (timedelta(0), ValueError, "Model timeouts=datetime.timedelta(0): write "),
        (-1, ValueError, "Model timeouts=-1: write "),
        (nan, ValueError, "Model timeouts=nan: write "),
        (
            "60",
            TypeError,
            "Model timeouts='60': write seconds for the whole call, or Timeouts(connect=5, read=30, ",
        ),
        (True, TypeError, "Model timeouts=True: write seconds for the whole call"),
        ((5, 30, 60), TypeError, "Model timeouts=(5, 30, 60): write seconds for the whole call"),
    ],
)
def test_a_wrong_timeouts_option_raises(given: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match="^" + re.escape(message)):
        Model("openai", "gpt-5", timeouts=given)
    with pytest.raises(kind, match="^" + re.escape(message)):
        model_of().within(given)


# ------------------------------------------------------------------------- limits for a client


@pytest.mark.parametrize(
    ("timeouts", "rest", "connect", "read"),
    [
        (Timeouts(), 30, 5, 29.99),
        (Timeouts(), 1000, 5, 30),
        (Timeouts(), 1, 0.99, 0.99),
        (Timeouts(), 0.04, 0.032, 0.032),  # of a short rest a fifth is subtracted
        (Timeouts(), 0, 0.001, 0.001),  # for some clients zero means no limit
        (Timeouts.none(), 4, 3.99, 3.99),
        (Timeouts(connect=None), inf, None, 30),
        (Timeouts(read=None), inf, 5, None),
    ],
)
def test_a_client_receives_a_little_less_than_is_left(
    timeouts: Timeouts, rest: float, connect: float | None, read: float | None
) -> None:
    received = timeouts.within(rest)
    assert received == pytest.approx({"connect": connect, "read": read, "write": read, "pool": connect})
    assert httpx2.Timeout(**received).connect == received["connect"]


@every_shape
def test_the_time_left_decreases_with_each_attempt(colour: str, shape: str) -> None:
    service = Service(ConnectionError(), ConnectionError(), [])
    service.inside = lambda: current().left()
    ask(colour, shape, model_of(policy=Retry(backoff=[10, 10]), protocol=None), service)
    assert service.seen == pytest.approx([30, 20, 10])


@every_shape
def test_an_outer_deadline_limits_the_time_left(shape: str) -> None:
    service = Service([])
    service.inside = lambda: (current().left(), current().timeout["read"])
    with deadline(3):
        BLOCKING[shape](model_of(protocol=None), service, (), {})
    [(left, read)] = service.seen
    assert left <= 3
    assert read <= 2.99


# ------------------------------------------------------------------------- limits in effect


@pytest.mark.parametrize("colour", ASYNC[:1] + ASYNC[-1:])
@pytest.mark.parametrize("timeouts", [7, Timeouts(read=None, total=7), Timeouts(first=20, total=7)])
def test_the_total_limits_attempts_and_delays_together(colour: str, timeouts: Any) -> None:
    """Two attempts of 2.5 s and delays of 0.5 s; the third attempt is cancelled."""

    async def slow() -> None:
        await backend().sleep(2.5)
        raise ConnectionError

    async def waiting() -> tuple[float, Any]:
        model, began = model_of(timeouts=timeouts, policy=Retry(backoff=[0.5] * 9)), SYSTEM.anow()
        with pytest.raises(DeadlineExceeded) as caught:
            await model.call(slow)
        return SYSTEM.anow() - began, caught.value

    (took, error), _ = run_in_virtual_time(colour, lambda: None, waiting)
    assert took == pytest.approx(7)
    assert (error.report.attempts, error.report.limit) == (3, "total")
    assert isinstance(error.last, ConnectionError)


@pytest.mark.parametrize("colour", ASYNC[:1] + ASYNC[-1:])
@pytest.mark.parametrize(("timeouts", "each"), [(Timeouts(read=4), 4), (Timeouts(read=4, first=9), 9)])
def test_each_attempt_of_a_stream_has_a_limit_for_its_first_chunk(
    colour: str, timeouts: Timeouts, each: float
) -> None:
    async def silent() -> Any:
        await backend().sleep(100)
        yield b""

    async def waiting() -> tuple[float, Any]:
        model, began = model_of(timeouts=timeouts, policy=Retry(attempts=2, backoff=[1])), SYSTEM.anow()
        with pytest.raises(AttemptTimeout) as caught:
            await anext(aiter(model.stream(silent)))
        return SYSTEM.anow() - began, caught.value

    (took, error), _ = run_in_virtual_time(colour, lambda: None, waiting)
    assert took == pytest.approx(2 * each + 1)
    assert (error.limit, error.seconds) == ("attempt", each)
