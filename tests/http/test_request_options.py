"""The options of one request: parsing them, and the plan for them."""

from __future__ import annotations

from collections import UserDict
from threading import Thread
from types import MappingProxyType
from typing import Any

import pytest

from redouble import Retry, Timeout
from redouble.http._plan import MAX_VARIANTS, HttpPlan
from redouble.http._request_options import NO_RETRIES, request_options
from tests.support.fakes import Ledger
from tests.support.thread_switching import switching

NONE: dict[str, Any] = {}
RETRY = Retry(attempts=3, name="mine")


def send(exchange: Any) -> Any:
    return exchange


def plan_of(*layers: Any) -> HttpPlan:
    return HttpPlan(layers or (RETRY,), "client", send, aio=False)


def variant(plan: HttpPlan, value: object) -> HttpPlan:
    options = request_options(value)
    return plan.variant(options.policy, options.options)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, (None, None, NO_RETRIES, NONE)),
        (False, (None, None, NO_RETRIES, NONE)),
        (RETRY, (None, None, RETRY, NONE)),
        (NONE, (None, None, None, NONE)),
        ({"policy": None}, (None, None, NO_RETRIES, NONE)),
        ({"policy": RETRY}, (None, None, RETRY, NONE)),
        ({"idempotent": True}, (True, None, None, NONE)),
        ({"idempotent": False}, (False, None, None, NONE)),
        ({"idempotency_key": "k"}, (None, "k", None, NONE)),
        ({"attempts": 2, "timeout": 5}, (None, None, None, {"attempts": 2, "timeout": 5})),
        (
            {"idempotent": True, "idempotency_key": "k", "policy": RETRY, "attempts": 2},
            (True, "k", RETRY, {"attempts": 2}),
        ),
        (MappingProxyType({"attempts": 2}), (None, None, None, {"attempts": 2})),
        (UserDict({"attempts": 2}), (None, None, None, {"attempts": 2})),
    ],
)
def test_every_form_of_options_is_parsed(value: Any, expected: object) -> None:
    assert request_options(value) == expected


def test_parsing_does_not_change_the_options() -> None:
    value = {"idempotent": True, "attempts": 2, "policy": None}
    request_options(value)
    assert value == {"idempotent": True, "attempts": 2, "policy": None}


@pytest.mark.parametrize("value", [True, 0, 1, 3, "none", b"x", [], ["attempts"], Retry, object()])
def test_wrong_options_raise(value: Any) -> None:
    with pytest.raises(TypeError, match=r"extensions\['redouble'\].*: write a policy, None for no retries"):
        request_options(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"atempts": 2}, r"has no option 'atempts': write one of attempt_timeout, attempts, backoff"),
        ({5: 2}, r"has no option 5: write one of"),
        ({"_total": 2}, r"has no option '_total'"),
        ({"idempotent": 1}, r"idempotent=1: write True or False"),
        ({"idempotent": "yes"}, r"idempotent='yes': write True or False"),
        ({"idempotency_key": ""}, r"idempotency_key='': write a text"),
        ({"idempotency_key": 5}, r"idempotency_key=5: write a text"),
        ({"idempotency_key": b"k"}, r"idempotency_key=b'k': write a text"),
        ({"policy": 5}, r"policy=5: write a Retry, or None"),
        ({"policy": Retry}, r"policy=<class .*: write a Retry, or None"),
        ({"policy": False}, r"policy=False: write a Retry, or None"),
    ],
)
def test_a_wrong_option_raises_with_its_name(value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        request_options(value)


# ----------------------------------------------------------------------------------- plans


def attempts(plan: HttpPlan) -> list[int | None]:
    return [layer.attempts for layer in plan.layers if isinstance(layer, Retry)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, []),
        ({"policy": None}, []),
        ({"attempts": 2}, [2]),
        (Retry(attempts=7), [7]),
        (Timeout(1) | Retry(attempts=7), [7]),
        ({"policy": Retry(attempts=7), "attempts": 5}, [5]),
    ],
)
def test_options_determine_the_plan(value: Any, expected: list[int]) -> None:
    assert attempts(variant(plan_of(), value)) == expected


@pytest.mark.parametrize("value", [{}, {"idempotent": True}, {"idempotency_key": "k"}])
def test_the_plan_is_unchanged_without_options_of_a_policy(value: Any) -> None:
    plan = plan_of()
    assert variant(plan, value) is plan
    assert len(plan._variants) == 0


def test_missing_options_are_those_of_the_plan() -> None:
    budget = Ledger()
    plan = plan_of(Retry(attempts=3, name="mine", budget=budget))
    (layer,) = variant(plan, {"attempts": 2}).layers
    assert isinstance(layer, Retry)
    assert (layer.attempts, layer.name, layer.budget) == (2, "mine", budget)


def test_equal_options_share_a_plan() -> None:
    plan = plan_of()
    first, second, other = (variant(plan, {"attempts": n, "timeout": 5}) for n in (2, 2, 5))
    assert first is second
    assert first is not other
    assert variant(plan, RETRY) is variant(plan, RETRY)


def test_a_plan_for_unhashable_options_is_not_cached() -> None:
    plan = plan_of()
    for _ in range(2):
        assert attempts(variant(plan, {"attempts": 2, "labels": {"a": "b"}, "backoff": [0]})) == [2]
    assert len(plan._variants) == 0


def test_the_number_of_cached_plans_is_limited() -> None:
    """The oldest plan is evicted; the others stay the same objects."""
    plan = plan_of()
    made = [variant(plan, {"attempts": n}) for n in range(1, MAX_VARIANTS + 51)]
    assert len(plan._variants) == MAX_VARIANTS
    assert variant(plan, {"attempts": MAX_VARIANTS + 50}) is made[-1]
    assert variant(plan, {"attempts": 1}) is not made[0]
    assert len(plan._variants) == MAX_VARIANTS


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"attempts": 0}, ValueError, "attempts"),
        ({"attempts": True}, TypeError, "attempts"),
        ({"attempts": "2"}, TypeError, "attempts"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"backoff": iter([0])}, TypeError, "backoff"),
        ({"policy": None, "attempts": 2}, TypeError, "attempts: the policy has no Retry"),
        (
            {"policy": Timeout(1), "timeout": 2, "attempts": 2},
            TypeError,
            "attempts, timeout: the policy has no Retry",
        ),
    ],
)
def test_options_that_make_no_plan_raise(value: Any, error: type[Exception], message: str) -> None:
    """The error names the option, and is raised again for the next request."""
    plan = plan_of()
    for _ in range(2):
        with pytest.raises(error, match=message):
            variant(plan, value)
    assert len(plan._variants) == 0


def test_a_wrong_option_does_not_find_the_plan_of_an_equal_one() -> None:
    """True equals 1, for which a plan is cached."""
    plan = plan_of()
    assert attempts(variant(plan, {"attempts": 1})) == [1]
    with pytest.raises(TypeError, match="attempts"):
        variant(plan, {"attempts": True})


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
def test_threads_may_use_different_options_concurrently() -> None:
    plan, errors = plan_of(), list[Exception]()

    def work(own: int) -> None:
        try:
            for n in range(400):
                number = 1 + own + 8 * n
                assert attempts(variant(plan, {"attempts": number})) == [number]
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(plan._variants) == MAX_VARIANTS
