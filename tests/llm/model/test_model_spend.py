"""A `Spend` in the calls of a model: rejected before the function is called, settled however a call ends."""

from __future__ import annotations

from typing import Any

import pytest

import redouble
from redouble.http import Idempotency
from redouble.llm import Context, Price, Spend, SpendRefused, Usage
from redouble.types import Event
from tests.support.llm.scripted_model import (
    LABELS,
    Service,
    always,
    ask,
    every_call,
    every_shape,
    model_of,
    status,
    text_of,
)
from tests.support.llm.spends import spent, tokens

PRICE = Price(input=2, output=10)


def answered(asked: int, written: int) -> dict[str, Any]:
    return {"text": "hi", "usage": {"prompt_tokens": asked, "completion_tokens": written}}


def counted(found: str) -> Usage:
    return Usage(len(found), 1)


def yes(error: Exception, attempt: int, context: Context) -> bool:
    return True


# ------------------------------------------------------------------------------- rejections


@every_shape
def test_without_enough_allowance_nothing_is_called(colour: str, shape: str) -> None:
    events: list[Event] = []
    spend = Spend(tokens=100, name="purse")
    spent(spend, 60)
    service = Service(text_of(shape, "hi"))
    with redouble.observe(events.append), redouble.bind(run_id="r-1"):
        seen = ask(colour, shape, model_of(spend=spend, reserve=50), service)
    assert isinstance(seen.error, SpendRefused)
    assert (seen.error.what, seen.error.retry_after, service.calls, seen.delays) == ("tokens", None, 0, [])
    assert (seen.report.attempts, seen.report.reason, seen.report.labels) == (0, "stopped", LABELS)
    assert seen.report.name.startswith("Service.")
    assert [(event.what, event.name, event.by) for event in events] == [("rejected", "purse", "spend")]
    assert events[0].bound == {"run_id": "r-1"}
    assert tokens(spend) == (60, 0, 40, 0)  # nothing is spent


@every_shape
def test_retry_if_is_not_called_for_a_rejection(colour: str, shape: str) -> None:
    """No attempt was made, so there is none to repeat."""
    spend = Spend(requests=1)
    spend.reserve().commit()
    service = Service(text_of(shape, "hi"))
    seen = ask(colour, shape, model_of(spend=spend, retry_if=yes), service)
    assert isinstance(seen.error, SpendRefused)
    assert (seen.error.what, service.calls) == ("requests", 0)


@every_shape
def test_reserve_may_be_a_function_of_the_arguments(colour: str, shape: str) -> None:
    received: list[Any] = []
    spend = Spend(tokens=100)

    def reserve(*args: object, **kwargs: Any) -> int | None:
        received.append((args, kwargs))
        return kwargs.get("max_tokens")

    model = model_of(spend=spend, reserve=reserve)
    service = Service(text_of(shape, "hi"))
    service.inside = lambda: tokens(spend)[1]
    ask(colour, shape, model, service, "hello", max_tokens=30)
    assert (received, service.seen[0]) == ([(("hello",), {"max_tokens": 30})], 30)
    seen = ask(colour, shape, model, service, max_tokens=101)
    assert isinstance(seen.error, SpendRefused)
    ask(colour, shape, model, service)  # `reserve` returns None: the call is admitted while anything is left
    assert len(received) == 3


@every_shape
@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ("many", TypeError, "reserve='many': write the most tokens that a call takes"),
        (-1, ValueError, "reserve=-1: write the most tokens that a call takes"),
        (Usage(-3, 4), ValueError, "reserve input=-3: write the most tokens that a call takes"),
    ],
)
def test_a_wrong_result_of_reserve_raises(
    colour: str, shape: str, answer: Any, kind: type[Exception], message: str
) -> None:
    service = Service(text_of(shape, "hi"))
    seen = ask(colour, shape, model_of(spend=Spend(tokens=9), reserve=always(answer)), service)
    assert isinstance(seen.error, kind)
    assert str(seen.error).startswith(message)
    assert service.calls == 0


@every_shape
def test_an_invalid_key_releases_the_reservation(colour: str, shape: str) -> None:
    spend = Spend(tokens=100)
    keys = Idempotency(make=lambda: "")
    seen = ask(colour, shape, model_of(spend=spend, reserve=5, idempotency=keys), Service())
    assert isinstance(seen.error, TypeError)
    assert tokens(spend) == (0, 0, 100, 0)


# ------------------------------------------------------------------------- how calls end


@every_call
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ([answered(10, 5)], (15, 0, 85, 0)),
        ([answered(30, 40)], (70, 0, 30, 0)),  # more than was reserved
        ([answered(90, 40)], (100, 0, 0, 30)),  # more than the limit
        (["hi"], (50, 0, 50, 0)),  # unknown: the whole reservation
        ([answered(0, 0)], (0, 0, 100, 0)),
        ([ConnectionError(), answered(10, 5)], (15, 0, 85, 0)),  # once, whatever the number of attempts
        ([ConnectionError()], (0, 0, 100, 0)),
        ([status(400)], (0, 0, 100, 0)),
    ],
    ids=["less", "more", "too much", "unknown", "nothing", "retried", "given up", "denied"],
)
def test_the_usage_of_a_call_is_settled(
    colour: str, shape: str, script: list[Any], expected: tuple[float, ...]
) -> None:
    spend = Spend(tokens=100, requests=9)
    service = Service(*script)
    service.inside = lambda: tokens(spend)
    ask(colour, shape, model_of(spend=spend, reserve=50), service)
    assert tokens(spend) == expected
    assert (spend.snapshot()["requests"], spend.snapshot()["requests_reserved"]) == (1, 0)
    assert set(service.seen) == {(0, 50, 50, 0)}  # reserved once, for the whole call


@every_call
def test_costs_are_reserved_and_settled(colour: str, shape: str) -> None:
    spend = Spend(cost=1)
    model = model_of(spend=spend, price=PRICE, reserve=Usage(1000, 1000))
    service = Service(answered(500_000, 40_000))
    service.inside = lambda: spend.snapshot()["cost_reserved"]
    ask(colour, shape, model, service)
    assert service.seen == [0.012]
    assert spend.snapshot()["cost"] == 1
    assert spend.snapshot()["overdrawn_cost"] == 0.4
    seen = ask(colour, shape, model, service)
    assert isinstance(seen.error, SpendRefused)
    assert seen.error.what == "cost"


@every_call
def test_a_plain_number_of_tokens_is_charged_at_the_higher_price(colour: str, shape: str) -> None:
    spend = Spend(cost=1)
    service = Service("hi")
    ask(colour, shape, model_of(spend=spend, price=PRICE, reserve=1000), service)
    assert spend.snapshot()["cost"] == 0.01


@every_call
def test_usage_may_be_a_function_of_the_result(colour: str, shape: str) -> None:
    spend = Spend(tokens=100)
    model = model_of(spend=spend, reserve=50, usage=counted)
    ask(colour, shape, model, Service("four"))
    assert tokens(spend)[0] == 5
    ask(colour, shape, model_of(spend=spend, reserve=50, usage=always(None)), Service("four"))
    assert tokens(spend)[0] == 55


@every_call
@pytest.mark.parametrize("wrong", [7, Usage(-1, 2), "many", ZeroDivisionError])
def test_an_error_in_usage_is_logged_and_the_result_returned(
    colour: str, shape: str, wrong: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The whole reservation counts, because the call was made."""

    def usage(found: object) -> Any:
        return 1 / 0 if wrong is ZeroDivisionError else wrong

    spend = Spend(tokens=100)
    seen = ask(colour, shape, model_of(spend=spend, reserve=50, usage=usage), Service("hi"))
    assert seen.value == "hi"
    assert "the tokens of an answer could not be read" in caplog.text
    assert (": write " in caplog.text) == (wrong is not ZeroDivisionError)
    assert tokens(spend) == (50, 0, 50, 0)


def test_without_a_spend_usage_is_not_called(colour: str) -> None:
    assert ask(colour, "call", model_of(usage=always("many")), Service("hi")).value == "hi"
