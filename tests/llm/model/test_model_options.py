"""The options of a model: an error names the wrong one."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from math import inf, nan
from typing import Any

import pytest

from redouble import Retry, Worker
from redouble.http import Idempotency
from redouble.llm import Model, Price, Spend, Timeouts, Usage
from tests.support.fakes import stable_repr
from tests.support.llm.scripted_model import LABELS, model_of

TOKENS = "the most tokens that a call takes, such as 4000, or Usage(input=3000, output=1000)"
MILLION = "what a million tokens cost, such as 2.5"


async def awaited(*_: object) -> Any: ...


def plain(*_: object) -> Any: ...


make: Callable[..., Model] = Model
WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"provider": ""}, TypeError, "Model provider='': write its name, such as 'openai' and 'gpt-5'"),
    ({"provider": None}, TypeError, "Model provider=None: write its name"),
    ({"model": ""}, TypeError, "Model model='': write its name, such as 'openai' and 'gpt-5'"),
    ({"model": 5}, TypeError, "Model model=5: write its name"),
    (
        {"policy": Retry},
        TypeError,
        "Model policy=<class 'redouble.Retry'>: write a redouble.Re",
    ),
    ({"policy": 4}, TypeError, "Model policy=4: write a redouble.Retry, or None"),
    ({"retry_if": True}, TypeError, "Model retry_if=True: write a function (error, attempt, context)"),
    ({"retry_if": awaited}, TypeError, "Model retry_if=awaited is a coroutine function"),
    ({"spend": 100}, TypeError, "Model spend=100: write Spend(tokens=100_000, per=60)"),
    ({"spend": Spend}, TypeError, "Model spend=<class 'redouble.llm.Spend'>: write Spend(tokens="),
    ({"spend": Spend(tokens=5)}, TypeError, "Model spend limits tokens: write reserve=4000 too, the most"),
    (
        {"spend": Spend(cost=5), "reserve": 3},
        TypeError,
        "Model spend limits the cost: write price=Price(input=2.5, output=10) too",
    ),
    (
        {"spend": Spend(cost=5), "price": Price(1, 2)},
        TypeError,
        "Model spend limits tokens: write reserve=4000 too, the most that a call takes",
    ),
    ({"reserve": "many"}, TypeError, f"Model reserve='many': write {TOKENS}"),
    ({"reserve": -1}, ValueError, f"Model reserve=-1: write {TOKENS}"),
    ({"reserve": True}, TypeError, f"Model reserve=True: write {TOKENS}"),
    ({"reserve": Usage(-1, 2)}, ValueError, f"Model reserve input=-1: write {TOKENS}"),
    ({"reserve": Usage(1, -2)}, ValueError, f"Model reserve output=-2: write {TOKENS}"),
    ({"reserve": awaited}, TypeError, "Model reserve=awaited is a coroutine function"),
    ({"price": 2.5}, TypeError, "Model price=2.5: write Price(input=2.5, output=10)"),
    ({"usage": 5}, TypeError, "Model usage=5: write a function"),
    ({"usage": awaited}, TypeError, "Model usage=awaited is a coroutine function"),
    ({"protocol": "openia"}, ValueError, "protocol='openia': write 'auto', 'openai', 'anthropic' or 'sse'"),
    (
        {"idempotency": "always"},
        TypeError,
        "idempotency='always': write 'auto', None, or redouble.http.I",
    ),
    ({"worker": "thread"}, TypeError, "Model worker='thread': write Worker()"),
    (
        {"worker": Worker(kind="process")},
        ValueError,
        "Model worker: a connection cannot leave its process, so write Worker()",
    ),
    (
        {"policy": Retry(worker=Worker(kind="process"))},
        ValueError,
        "Model policy worker: a connection cannot leave its process, so write Worker()",
    ),
]


@pytest.mark.parametrize(("options", "kind", "message"), WRONG, ids=[stable_repr(row[0]) for row in WRONG])
def test_a_wrong_option_raises_with_its_name(
    options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match="^" + re.escape(message)):
        make(**{**LABELS, **options})


@pytest.mark.parametrize("option", ["input", "output"])
@pytest.mark.parametrize(
    ("value", "kind"),
    [(-1, ValueError), (nan, ValueError), (inf, ValueError), (True, TypeError), ("2.5", TypeError)],
)
def test_a_price_must_be_a_finite_number(option: str, value: Any, kind: type[Exception]) -> None:
    prices: dict[str, Any] = {"input": 1, "output": 2, option: value}
    with pytest.raises(kind, match=rf"^Price {option}={value!r}: write {MILLION}"):
        Price(**prices)


def test_valid_options_are_attributes() -> None:
    keys = Idempotency(header="X-Key", make=lambda: "k")
    spend = Spend(tokens=9, cost=1)
    model = Model(
        "anthropic",
        "claude",
        timeouts=9,
        policy=Retry(attempts=2),
        retry_if=plain,
        spend=spend,
        reserve=plain,
        price=Price(1, 2),
        usage=plain,
        protocol=None,
        idempotency=keys,
        worker=None,
    )
    assert (model.provider, model.model, model.timeouts) == ("anthropic", "claude", Timeouts(5, 9, 9))
    assert (model.policy, model.spend, model.price) == (Retry(attempts=2), spend, Price(1, 2))
    assert (model.retry_if, model.reserve, model.usage) == (plain, plain, plain)
    assert (model.protocol, model.idempotency, model.worker) == (None, keys, None)


def test_price_and_reserve_do_not_need_a_spend() -> None:
    assert model_of(price=Price(1, 2), reserve=Usage(1, 2)).spend is None
    assert model_of(spend=Spend(requests=3)).reserve is None


# ---------------------------------------------------------------------------------- mistakes


def test_stream_refuses_what_it_cannot_stream() -> None:
    def chunks() -> Generator[int]:
        yield 1

    for wrong in ([1], chunks()):
        with pytest.raises(TypeError, match=r"^cannot stream .*: it is not callable"):
            model_of().stream(wrong)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(TypeError, match=r"until= judges a result, and .*chunks has none"):
        model_of(policy=Retry(until=bool)).stream(chunks)


def test_a_reservation_above_the_limit_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^Model reserve=11 is more than Spend\(tokens=10.*\) ever allows: write"
    ):
        model_of(spend=Spend(tokens=10), reserve=11)
    with pytest.raises(ValueError, match=r"^Model reserve=Usage\(input=6, output=5\) is more than"):
        model_of(spend=Spend(tokens=10), reserve=Usage(6, 5))
    assert model_of(spend=Spend(tokens=10), reserve=Usage(5, 5)).reserve == Usage(5, 5)


def takes_one(error: Exception) -> bool:
    return True


def takes_two(error: Exception, attempt: int) -> bool:
    return True


@pytest.mark.parametrize("wrong", [takes_one, takes_two, lambda: None])
def test_retry_if_must_accept_three_arguments(wrong: Any) -> None:
    """Otherwise the rule would raise at the first failure, and hide the error of the call."""
    with pytest.raises(TypeError, match=r"^Model retry_if=.* takes \(.*: write a function \(error, at"):
        model_of(retry_if=wrong)
    assert model_of(retry_if=plain).retry_if is plain


def test_retry_if_must_not_be_a_class() -> None:
    wrong: Any = ConnectionError
    with pytest.raises(TypeError, match=r"^Model retry_if=ConnectionError is a class: write a function \("):
        model_of(retry_if=wrong)
