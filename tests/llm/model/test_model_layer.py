"""A model among other layers: its description, its shared objects, and policies around and inside it."""

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
    run_in_virtual_time,
    text_of,
)

LOST = ConnectionResetError
NAME = ContextVar("NAME", default="nobody")
POLICY = Retry(attempts=4, backoff=Backoff.exponential(0.2).maximum(2).full_jitter())


def test_explain_describes_a_model() -> None:
    drawn = (Bulkhead(3) | model_of(policy=POLICY, timeouts=20)).explain()
    assert "openai/gpt-5: up to 4 attempts, delays of 1.4 s in all, within 20 s" in drawn
    assert "at worst: 4 calls, 21 s" in drawn  # one second more: the wait of the bulkhead


def test_check_reports_conflicts_with_other_layers() -> None:
    model = model_of(policy=POLICY, spend=Spend(tokens=9), reserve=1)
    assert Pipeline(model).check() == []
    assert any("their attempts multiply" in found for found in (POLICY | model).check())
    assert any("the same Spend is in the pipeline twice" in found for found in (model | model).check())
    assert any("always reached first" in found for found in (model | Timeout(90)).check())
    assert (model | Fallback(value="later", on=KeyError)).check() == []
    hidden = model_of(policy=replace(POLICY, on=KeyError)) | Fallback(value="later", on=KeyError)
    assert hidden.check() == []  # the errors that a model handles are not known in advance: its rule decides
    budget = presets.llm(timeout=None)
    twice = Retry(budget=budget.budget) | model_of(policy=budget)
    assert any("the same RetryBudget in nested policies" in found for found in twice.check())


@every_shape
def test_policy_of_returns_the_model_of_a_decorated_function(colour: str, shape: str) -> None:
    model, service = model_of(), Service(LOST(), text_of(shape, "hi"))
    functions = (service.ask, service.aask, service.chunks, service.achunks)
    decorated: list[Any] = [model(function) for function in functions]
    for mine, theirs in zip(decorated, functions, strict=True):
        assert redouble.policy_of(mine) is model
        assert (mine.__name__, mine.__doc__) == (theirs.__name__, theirs.__doc__)
    assert ask(colour, shape, model, service).error is None


@every_shape
def test_a_model_works_in_a_pipeline(colour: str, shape: str) -> None:
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
def test_a_call_that_an_inner_policy_gave_up_is_not_retried(colour: str, shape: str) -> None:
    """The reason is ``nested``, and the labels are those of the model."""
    service = Service(LOST())
    inner = Retry(attempts=2, backoff=[0])

    def blocking() -> None:
        with pytest.raises(LOST) as caught:
            model_of().call(inner(service.ask))
        found = report(caught.value)
        assert found is not None
        assert (found.reason, found.labels, service.calls) == ("nested", LABELS, 2)

    async def waiting() -> None:
        with pytest.raises(LOST) as caught:
            await model_of().call(inner(service.aask))
        found = report(caught.value)
        assert found is not None
        assert (found.reason, found.labels, service.calls) == ("nested", LABELS, 2)

    run_in_virtual_time(colour, blocking, waiting)


def test_a_policy_around_a_model_logs_that_attempts_multiply(
    colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``nested="stop"`` the outer policy does not retry."""
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
def test_the_rejection_of_an_inner_model_is_not_retried(colour: str, shape: str) -> None:
    """Waiting would not help: the `Spend` has no window."""
    spend = Spend(requests=1)
    spend.reserve().commit()
    inner, service = model_of(spend=spend), Service(text_of(shape, "hi"))
    service.inside = lambda: inner.call(lambda: "never")
    seen = ask(colour, shape, model_of(), service)
    assert isinstance(seen.error, SpendRefused)
    assert (service.calls, seen.report.reason, seen.report.labels) == (1, "stopped", LABELS)


@every_shape
def test_no_retries_applies_to_models(colour: str, shape: str) -> None:
    service = Service(LOST())
    with no_retries():
        assert ask(colour, shape, model_of(), service).report.attempts == 1
    assert service.calls == 1


# --------------------------------------------------------------------------------- shared


@every_shape
def test_copies_with_other_limits_share_the_budget(colour: str, shape: str) -> None:
    """`within` copies the model and keeps its policy and its worker."""
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


def test_within_accepts_what_timeouts_accepts(colour: str) -> None:
    model = model_of(timeouts=100)
    assert [model.within(found).timeouts for found in (3, None, Timeouts(1, 2, 3))] == [
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
def test_blocking_code_runs_on_a_worker_or_in_place(shape: str, worker: bool) -> None:
    """On a worker with the context of the caller or, without a worker, on the thread of the caller."""
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
def test_keyboard_interrupt_ends_a_call_and_releases_its_reservation(shape: str, worker: bool) -> None:
    options: dict[str, Any] = {} if worker else {"worker": None}
    spend = Spend(tokens=100)
    service = Service(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        BLOCKING[shape](model_of(spend=spend, reserve=50, **options), service, (), {})
    assert service.calls == 1
    assert spend.snapshot()["tokens_reserved"] == spend.snapshot()["tokens"] == 0
