"""A `Spend` shared by models, by copies with other limits, by nested calls, and by calls that wait for it."""

from __future__ import annotations

from typing import Any

from redouble import Retry
from redouble.llm import Spend, SpendRefused, current
from tests.support.llm.scripted_model import (
    STREAMS,
    Service,
    ask,
    every_shape,
    model_of,
    run_in_virtual_time,
    text_chunk,
    text_of,
)
from tests.support.llm.spends import tokens


@every_shape
def test_models_and_copies_with_other_limits_share_a_spend(colour: str, shape: str) -> None:
    spend = Spend(requests=3)
    model = model_of(spend=spend)
    for one in (model, model.within(3), model_of(spend=spend, policy=Retry(attempts=1))):
        assert ask(colour, shape, one, Service(text_of(shape, "hi"))).error is None
    assert isinstance(ask(colour, shape, model.within(9), Service()).error, SpendRefused)


def test_a_rejected_call_is_retried_after_retry_after(colour: str) -> None:
    """By a policy around the model; no attempts multiply, because the function was not called."""
    spend = Spend(requests=1, per=60)
    waits = Retry(on=SpendRefused, timeout=120, give_up_after=None) | model_of(spend=spend)
    service = Service("hi")

    def blocking() -> None:
        assert [waits.call(service.ask), waits.call(service.ask)] == ["hi", "hi"]

    async def waiting() -> None:
        assert [await waits.call(service.aask), await waits.call(service.aask)] == ["hi", "hi"]

    if colour != "uvloop":  # uvloop has its own clock
        _, delays = run_in_virtual_time(colour, blocking, waiting)
        assert (service.calls, [60 < delay < 70 for delay in delays]) == (2, [True])


@every_shape
def test_a_nested_call_has_its_own_key_and_reservation(colour: str, shape: str) -> None:
    """After the inner call, `current()` returns the outer one again."""
    spend = Spend(tokens=100)
    inner = model_of(spend=spend, reserve=20, idempotency="auto")
    keys: list[Any] = []

    def ask_inside() -> None:
        before = current().key
        inner.call(lambda: keys.append(current().key))
        assert current().key == before
        keys.append(before)

    service = Service([text_chunk("a", finish="stop")] if shape in STREAMS else "hi")
    service.inside = ask_inside
    assert ask(colour, shape, model_of(spend=spend, reserve=30, idempotency="auto"), service).error is None
    assert keys[0] != keys[1]
    assert tokens(spend)[1] == 0
