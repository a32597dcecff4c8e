"""A model among other layers: its description, what it shares, and policies around and inside it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from threading import get_ident
from typing import Any

import pytest

import redouble
from redouble import Backoff, Bulkhead, Fallback, Pipeline, Retry, Timeout, presets, report
from redouble.llm import Spend, SpendRefused, Timeouts
from redouble.testing import no_retries
from tests.support.llm.scripted_model import (
    BLOCKING,
    LABELS,
    Service,
    ask,
    every_shape,
    model_of,
    played,
    text_of,
)

LOST = ConnectionResetError
NAME = ContextVar("NAME", default="nobody")
POLICY = Retry(attempts=4, backoff=Backoff.exponential(0.2).maximum(2).full_jitter())


def test_it_is_drawn_with_the_others() -> None:
    drawn = (Bulkhead(3) | model_of(policy=POLICY, timeouts=20)).explain()
    assert "openai/gpt-5: up to 4 attempts, delays of 1.4 s in all, within 20 s" in drawn
    assert "at worst: 4 calls, 21 s" in drawn  # with the second that is waited outside


def test_what_hurts_is_found() -> None:
    model = model_of(policy=POLICY, spend=Spend(tokens=9), reserve=1)
    assert Pipeline(model).check() == []
    assert any("their attempts multiply" in said for said in (POLICY | model).check())
    assert any("the same Spend is there twice" in said for said in (model | model).check())
    assert any("always reached first" in said for said in (model | Timeout(90)).check())
    assert (model | Fallback(value="later", on=KeyError)).check() == []
    hidden = model_of(policy=replace(POLICY, on=KeyError)) | Fallback(value="later", on=KeyError)
    assert hidden.check() == []  # the errors that a model handles are not known in advance: its rule decides
    budget = presets.llm(timeout=None)
    twice = Retry(budget=budget.budget) | model_of(policy=budget)
    assert any("is there twice" in said for said in twice.check())


@every_shape
def test_it_decorates_and_is_found_again(colour: str, shape: str) -> None:
    model, service = model_of(), Service(LOST(), text_of(shape, "hi"))
    functions = (service.ask, service.aask, service.chunks, service.achunks)
    decorated: list[Any] = [model(function) for function in functions]
    for mine, theirs in zip(decorated, functions, strict=True):
        assert redouble.policy_of(mine) is model
        assert (mine.__name__, mine.__doc__) == (theirs.__name__, theirs.__doc__)
    assert ask(colour, shape, model, service).error is None


@every_shape
def test_in_a_pipeline(colour: str, shape: str) -> None:
    gate = Bulkhead(1, wait=0)
    service = Service(LOST(), text_of(shape, "hi"))
    service.inside = lambda: gate.snapshot()["in_use"]
    pipeline: Any = gate | model_of()
    if shape in ("call", "function", "generator"):
        assert ask(colour, shape, pipeline, service).error is None
        assert set(service.seen) == {1}
    assert gate.snapshot()["in_use"] == 0


# -------------------------------------------------------------------------------- nesting


@every_shape
def test_a_policy_inside_has_had_its_attempts(colour: str, shape: str) -> None:
    """What an inner policy has given up on is not tried again."""
    service = Service(LOST())
    inner = Retry(attempts=2, backoff=[0])

    def blocking() -> None:
        with pytest.raises(LOST) as caught:
            model_of().call(inner(service.ask))
        said = report(caught.value)
        assert said is not None
        assert (said.reason, said.labels, service.calls) == ("nested", LABELS, 2)

    async def waiting() -> None:
        with pytest.raises(LOST) as caught:
            await model_of().call(inner(service.aask))
        said = report(caught.value)
        assert said is not None
        assert (said.reason, said.labels, service.calls) == ("nested", LABELS, 2)

    played(colour, blocking, waiting)


def test_a_policy_around_is_warned(colour: str, caplog: pytest.LogCaptureFixture) -> None:
    """Retries that are requested twice are reported."""
    service = Service(*(LOST() for _ in range(9)))
    outer = Retry(attempts=2, backoff=[0]) | model_of(policy=Retry(attempts=2, backoff=[0]))
    seen = ask(colour, "call", outer, service)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert isinstance(seen.error, LOST)
    assert service.calls == 4
    assert "attempts multiply" in caplog.text
    service = Service(*(LOST() for _ in range(9)))
    outer = Retry(attempts=2, backoff=[0], nested="stop") | model_of(policy=Retry(attempts=2, backoff=[0]))
    ask(colour, "call", outer, service)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert service.calls == 2


@every_shape
def test_a_model_inside_a_model(colour: str, shape: str) -> None:
    """Waiting does not help with that rejection, so there is no retry."""
    spend = Spend(requests=1)
    spend.reserve().commit()
    inner, service = model_of(spend=spend), Service(text_of(shape, "hi"))
    service.inside = lambda: inner.call(lambda: "never")
    seen = ask(colour, shape, model_of(), service)
    assert isinstance(seen.error, SpendRefused)
    assert (service.calls, seen.report.reason, seen.report.labels) == (1, "stopped", LABELS)


@every_shape
def test_in_tests_retries_can_be_turned_off(colour: str, shape: str) -> None:
    service = Service(LOST())
    with no_retries():
        assert ask(colour, shape, model_of(), service).report.attempts == 1
    assert service.calls == 1


# --------------------------------------------------------------------------------- shared


@every_shape
def test_other_limits_for_one_call_share_the_budget(colour: str, shape: str) -> None:
    """A model is made once; all copies of it share its budget."""
    budget = redouble.TokenBucket(capacity=20)  # two retries
    model = model_of(policy=Retry(attempts=9, backoff=[0] * 8, budget=budget))
    before = budget.snapshot()["tokens"]
    service = Service(LOST())
    ask(colour, shape, model.within(9).within(Timeouts(total=3)), service)
    assert budget.snapshot()["tokens"] < before
    left = budget.snapshot()["tokens"]
    ask(colour, shape, model, Service(LOST()))
    assert budget.snapshot()["tokens"] <= left
    assert model.within(9).policy is model.policy
    assert model.within(9).worker is model.worker


def test_limits_can_be_given_for_one_call(colour: str) -> None:
    model = model_of(timeouts=100)
    assert [model.within(said).timeouts for said in (3, None, Timeouts(1, 2, 3))] == [
        Timeouts(3, 3, 3),
        Timeouts.none(),
        Timeouts(1, 2, 3),
    ]
    with pytest.raises(TypeError, match=r"^Model timeouts='3s': write seconds for the whole call"):
        model.within("3s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert BLOCKING["call"](model.within(1), Service("hi"), (), {}) == "hi"


# ------------------------------------------------------------------------------- threads


@every_shape
@pytest.mark.parametrize("worker", [True, False], ids=["worker", "alone"])
def test_where_blocking_code_runs(shape: str, worker: bool) -> None:
    """On a thread of ours, with the context of its caller; or where it was called."""
    options: dict[str, Any] = {} if worker else {"worker": None}
    service = Service(LOST(), text_of(shape, "hi"))
    service.inside = lambda: (get_ident() == here, NAME.get())
    here, before = get_ident(), NAME.set("caller")
    try:
        BLOCKING[shape](model_of(**options), service, (), {})
    finally:
        NAME.reset(before)
    assert set(service.seen) == {(not worker, "caller")}


@every_shape
@pytest.mark.parametrize("worker", [True, False], ids=["worker", "alone"])
def test_a_signal_ends_a_call_at_once(shape: str, worker: bool) -> None:
    options: dict[str, Any] = {} if worker else {"worker": None}
    spend = Spend(tokens=100)
    service = Service(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        BLOCKING[shape](model_of(spend=spend, reserve=50, **options), service, (), {})
    assert service.calls == 1
    assert spend.snapshot()["tokens_reserved"] == spend.snapshot()["tokens"] == 0
