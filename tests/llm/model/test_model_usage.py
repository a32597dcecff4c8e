"""What a call has used, tokens and cost: in events, reports and metrics, with or without a `Spend`."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import redouble
from redouble.instruments import memory
from redouble.llm import Price, Spend, Usage
from redouble.llm._spend.meter import Meter
from redouble.types import Event
from tests.support.llm.scripted_model import (
    Service,
    always,
    ask,
    every_call,
    every_shape,
    every_stream,
    model_of,
    text_chunk,
    text_of,
)

PRICE = Price(input=2, output=10, cached=1)
ANSWER = {"text": "hi", "usage": {"prompt_tokens": 1000, "completion_tokens": 200}}
USED = {"input_tokens": 1000, "cached_tokens": 0, "output_tokens": 200, "cost": 0.004}
CACHED = {"prompt_tokens": 1000, "completion_tokens": 200, "prompt_tokens_details": {"cached_tokens": 400}}


def answered_by(shape: str) -> Any:
    if shape in ("call", "function"):
        return ANSWER
    return [text_chunk("hi"), text_chunk("", finish="stop", usage=Usage(1000, 200))]


@every_shape
@pytest.mark.parametrize("spend", [None, Spend()], ids=["alone", "with a spend"])
def test_a_success_has_what_it_used(colour: str, shape: str, spend: Spend | None) -> None:
    events: list[Event] = []
    model = model_of(price=PRICE, spend=spend)
    with redouble.observe(events.append), memory.instrument() as metrics:
        ask(colour, shape, model, Service(ConnectionError("reset"), answered_by(shape)))
    assert [(event.what, dict(event.usage)) for event in events if event.usage] == [("success", USED)]
    for kind, tokens in (("input", 1000), ("cached", 0), ("output", 200)):
        assert metrics.counter("tokens", type=kind, provider="openai", model="gpt-5") == tokens
    assert metrics.counter("cost", model="gpt-5") == 0.004


@every_shape
def test_without_a_price_there_is_no_cost(colour: str, shape: str) -> None:
    with memory.instrument() as metrics:
        ask(colour, shape, model_of(), Service(answered_by(shape)))
    assert metrics.counter("tokens", type="input") == 1000
    assert "cost" not in metrics.series()


@every_shape
def test_without_a_reported_usage_nothing_is_recorded(colour: str, shape: str) -> None:
    events: list[Event] = []
    with redouble.observe(events.append), memory.instrument() as metrics:
        ask(colour, shape, model_of(price=PRICE), Service(text_of(shape, "hi")))
    assert not any(event.usage for event in events)
    assert metrics.series().keys().isdisjoint({"tokens", "cost"})


@every_call
def test_an_answer_that_is_refused_counts_too(colour: str, shape: str) -> None:
    """The provider has generated it, so it is paid for."""
    events: list[Event] = []
    policy = redouble.Retry(until=lambda answer: False, attempts=3, backoff=[0, 0])
    with redouble.observe(events.append), memory.instrument() as metrics:
        seen = ask(colour, shape, model_of(price=PRICE, policy=policy), Service(ANSWER))
    three = {name: 3 * amount for name, amount in USED.items()}
    assert seen.report.usage == pytest.approx(three)
    assert pickle.loads(pickle.dumps(seen.error)).report.usage == pytest.approx(three)
    assert metrics.counter("tokens", type="output") == 600
    assert metrics.counter("cost") == pytest.approx(0.012)
    failures = [event.usage["output_tokens"] for event in events if event.what == "failure"]
    assert failures == [200, 400, 600]  # an event keeps the amounts of its moment
    assert pickle.loads(pickle.dumps(events[-1])).usage == pytest.approx(three)
    assert "'output_tokens': 600" in repr(events[-1])


@every_stream
def test_a_stream_that_breaks_has_what_it_reported(colour: str, shape: str) -> None:
    chunks = [text_chunk("a", usage=Usage(10, 3)), ConnectionError("reset")]
    with memory.instrument() as metrics:
        seen = ask(colour, shape, model_of(price=PRICE), Service(chunks))
    used = {"input_tokens": 10, "cached_tokens": 0, "output_tokens": 3, "cost": 0.00005}
    assert (seen.report.reason, seen.report.usage) == ("committed", used)
    assert metrics.counter("tokens", type="input") == 10


@every_call
def test_tokens_from_a_cache_have_a_price_of_their_own(colour: str, shape: str) -> None:
    spend = Spend(cost=1)
    model = model_of(price=PRICE, spend=spend, reserve=Usage(2000, 500))
    with memory.instrument() as metrics:
        ask(colour, shape, model, Service({"usage": CACHED}))
    cost = (600 * 2 + 400 * 1 + 200 * 10) / 1e6
    assert metrics.counter("tokens", type="cached") == 400
    assert metrics.counter("cost") == spend.snapshot()["cost"] == cost


@every_call
def test_a_usage_function_that_fails_costs_nothing_but_the_count(colour: str, shape: str) -> None:
    more_cached_than_read = always(Usage(5, 1, 6))
    model = model_of(price=PRICE, usage=more_cached_than_read)
    with memory.instrument() as metrics:
        assert ask(colour, shape, model, Service("hi")).value == "hi"
    assert metrics.series().keys().isdisjoint({"tokens", "cost"})


def test_an_event_outside_of_a_model_has_no_usage() -> None:
    events: list[Event] = []
    with redouble.observe(events.append):
        redouble.Retry().call(int)
        redouble.retry(lambda: 1)()
    assert [event.usage for event in events] == [{}] * 4


def test_the_price_of_cached_tokens_is_that_of_others_unless_given() -> None:
    usage = Usage(1_000_000, 0, 400_000)
    assert Price(2, 10).of(usage) == 2
    assert Price(2, 10, cached=0.5).of(usage) == pytest.approx(0.6 * 2 + 0.4 * 0.5)
    with pytest.raises(TypeError, match="Price cached='free': write what a million tokens cost"):
        Price(2, 10, cached="free")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  wrong on purpose


def test_a_reservation_with_more_from_the_cache_than_there_is_raises() -> None:
    with pytest.raises(ValueError, match="Model reserve cached=3: write a part of input=2"):
        model_of(spend=Spend(tokens=9), reserve=Usage(2, 1, 3))


def test_the_repr_of_a_usage_shows_cached_tokens_if_there_are_any() -> None:
    assert [repr(Usage(2, 1)), repr(Usage(2, 1, 1))] == [
        "Usage(input=2, output=1)",
        "Usage(input=2, output=1, cached=1)",
    ]


def test_the_meter_of_a_call_shows_what_was_used() -> None:
    meter = Meter()
    assert meter.read({"usage": {"prompt_tokens": 1}}) == Usage(1, 0)
    assert repr(meter) == "Meter({'input_tokens': 1, 'cached_tokens': 0, 'output_tokens': 0})"
