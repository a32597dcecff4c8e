"""Answers that ``until`` rejects are paid for: each one counts, and the next attempt needs an allowance."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Retry
from redouble.errors import NotAccepted
from redouble.llm import Price, Spend, SpendExceeded
from tests.support.llm.scripted_model import Service, always, ask, every_call, model_of
from tests.support.llm.spends import tokens


def answer(text: str, took: int | None = 30) -> Any:
    used = {} if took is None else {"usage": {"prompt_tokens": took, "completion_tokens": 0}}
    return {"text": text, **used}


def policy(**more: Any) -> Retry:
    return Retry(attempts=4, backoff=[0, 0, 0], until=lambda found: found["text"] == "good", **more)


@every_call
@pytest.mark.parametrize(
    ("answers", "spent"),
    [
        ([answer("good")], 30),
        ([answer("bad"), answer("good")], 60),
        ([answer("bad"), answer("bad", 7), answer("good", 1)], 38),
        ([answer("bad", None), answer("good")], 80),  # no usage reported: the whole reservation
        ([answer("bad"), ConnectionResetError(), answer("good")], 60),
    ],
)
def test_rejected_answers_count_too(colour: str, shape: str, answers: list[Any], spent: int) -> None:
    spend = Spend(tokens=1000, requests=9)
    seen = ask(colour, shape, model_of(spend=spend, reserve=50, policy=policy()), Service(*answers))
    assert seen.value == answers[-1]
    assert tokens(spend) == (spent, 0, 1000 - spent, 0)
    assert spend.snapshot()["requests"] == 1


@every_call
def test_rejected_answers_count_if_none_is_accepted(colour: str, shape: str) -> None:
    spend = Spend(tokens=1000)
    seen = ask(
        colour, shape, model_of(spend=spend, reserve=50, policy=policy()), Service(*[answer("bad")] * 4)
    )
    assert isinstance(seen.error, NotAccepted)
    assert tokens(spend) == (120, 0, 880, 0)


@every_call
@pytest.mark.parametrize(
    ("spend", "what"), [({"tokens": 120}, "tokens"), ({"cost": 0.000120}, "cost"), ({"tokens": 99}, "tokens")]
)
def test_there_is_no_further_attempt_without_an_allowance(
    colour: str, shape: str, spend: dict[str, Any], what: str
) -> None:
    """Each answer uses 30 and reserves 50: with 120 the fourth is too much, with 99 the third."""
    allowance = Spend(**spend)
    model = model_of(spend=allowance, reserve=50, price=Price(1, 1), policy=policy(), retry_if=always(True))
    service = Service(*[answer("bad")] * 4)
    seen = ask(colour, shape, model, service)
    assert isinstance(seen.error, SpendExceeded)
    assert seen.error.what == what
    assert service.calls == (2 if spend == {"tokens": 99} else 3)
    snapshot = allowance.snapshot()
    assert snapshot[what] == pytest.approx(30 * service.calls * (1 if what == "tokens" else 1e-6))
    assert snapshot[f"{what}_reserved"] == 0


@every_call
def test_no_more_is_reserved_than_one_answer_may_use(colour: str, shape: str) -> None:
    """In addition, a rejected answer keeps what it used reserved, and a failed attempt keeps nothing."""
    spend, service = Spend(tokens=150), Service(answer("bad", 20), ConnectionResetError(), answer("good", 20))
    service.inside = lambda: tokens(spend)[1]
    seen = ask(colour, shape, model_of(spend=spend, reserve=100, policy=policy()), service)
    assert seen.value == answer("good", 20)
    assert service.seen == [100, 120, 120]
    assert tokens(spend) == (40, 0, 110, 0)
