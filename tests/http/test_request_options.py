"""The options of one request: parsing, and the plan that they make."""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from threading import Thread
from types import MappingProxyType
from typing import Any

import pytest

from redouble import Retry, Timeout
from redouble._internal.bounded_cache import BoundedCache
from redouble.http._client import NO_RETRIES, request_options
from redouble.http._plan import HttpPlan
from tests.support.fakes import Ledger

MOST = 100
NONE: dict[str, Any] = {}
RETRY = Retry(attempts=3, name="mine")


def send(exchange: Any) -> Any:
    return exchange


def plan_of(*layers: Any) -> HttpPlan:
    return HttpPlan(layers or (RETRY,), "client", send, aio=False)


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
def test_every_way_to_say_it(value: Any, expected: object) -> None:
    assert request_options(value) == expected


def test_what_was_said_is_not_changed() -> None:
    value = {"idempotent": True, "attempts": 2, "policy": None}
    request_options(value)
    assert value == {"idempotent": True, "attempts": 2, "policy": None}


@pytest.mark.parametrize("value", [True, 0, 1, 3, "none", b"x", [], ["attempts"], Retry, object()])
def test_what_cannot_be_said(value: Any) -> None:
    with pytest.raises(TypeError, match=r"extensions\['redouble'\].*: write a policy, None for no retries"):
        request_options(value)


@pytest.mark.parametrize(
    ("value", "says"),
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
def test_what_is_wrong_with_one_option(value: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
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
def test_the_plan_that_comes_of_it(value: Any, expected: list[int]) -> None:
    assert attempts(request_options(value).plan_for(plan_of(), BoundedCache[HttpPlan](MOST))) == expected


@pytest.mark.parametrize("value", [{}, {"idempotent": True}, {"idempotency_key": "k"}])
def test_the_plan_stays_if_nothing_is_said_about_it(value: Any) -> None:
    plan, kept = plan_of(), BoundedCache[HttpPlan](MOST)
    assert request_options(value).plan_for(plan, kept) is plan
    assert len(kept) == 0


def test_all_other_options_stay() -> None:
    budget = Ledger()
    plan = plan_of(Retry(attempts=3, name="mine", budget=budget))
    (layer,) = request_options({"attempts": 2}).plan_for(plan, BoundedCache[HttpPlan](MOST)).layers
    assert isinstance(layer, Retry)
    assert (layer.attempts, layer.name, layer.budget) == (2, "mine", budget)


def test_whoever_says_the_same_has_the_same_plan() -> None:
    plan, kept = plan_of(), BoundedCache[HttpPlan](MOST)
    first, second, other = (
        request_options({"attempts": n, "timeout": 5}).plan_for(plan, kept) for n in (2, 2, 5)
    )
    assert first is second
    assert first is not other
    assert request_options(RETRY).plan_for(plan, kept) is request_options(RETRY).plan_for(plan, kept)


def test_what_has_no_hash_is_not_kept() -> None:
    plan, kept = plan_of(), BoundedCache[HttpPlan](MOST)
    for _ in range(2):
        assert attempts(
            request_options({"attempts": 2, "labels": {"a": "b"}, "backoff": [0]}).plan_for(plan, kept)
        ) == [2]
    assert len(kept) == 0


def test_no_more_plans_are_kept_than_so_many() -> None:
    """The oldest plan is evicted; the others stay the same objects."""
    plan, kept = plan_of(), BoundedCache[HttpPlan](MOST)
    made = [request_options({"attempts": n}).plan_for(plan, kept) for n in range(1, MOST + 51)]
    assert len(kept) == MOST
    assert request_options({"attempts": MOST + 50}).plan_for(plan, kept) is made[-1]
    assert request_options({"attempts": 1}).plan_for(plan, kept) is not made[0]
    assert len(kept) == MOST


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ({"attempts": 0}, ValueError, "attempts"),
        ({"attempts": True}, TypeError, "attempts"),
        ({"attempts": "2"}, TypeError, "attempts"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"backoff": iter([0])}, TypeError, "backoff"),
        ({"policy": None, "attempts": 2}, TypeError, "attempts: there is no Retry in the policy"),
        (
            {"policy": Timeout(1), "timeout": 2, "attempts": 2},
            TypeError,
            "attempts, timeout: there is no Retry",
        ),
    ],
)
def test_a_plan_that_cannot_be_made(value: Any, error: type[Exception], says: str) -> None:
    """The error names the option, each time."""
    plan, kept = plan_of(), BoundedCache[HttpPlan](MOST)
    for _ in range(2):
        with pytest.raises(error, match=says):
            request_options(value).plan_for(plan, kept)
    assert len(kept) == 0


def test_what_is_wrong_is_not_taken_for_what_is_right() -> None:
    """True equals 1, and a plan for one attempt is kept."""
    plan, kept = plan_of(), BoundedCache[HttpPlan](MOST)
    assert attempts(request_options({"attempts": 1}).plan_for(plan, kept)) == [1]
    with pytest.raises(TypeError, match="attempts"):
        request_options({"attempts": True}).plan_for(plan, kept)


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_switch_often")
def test_many_threads_say_different_things_at_once() -> None:
    plan, kept, errors = plan_of(), BoundedCache[HttpPlan](MOST), list[Exception]()

    def work(own: int) -> None:
        try:
            for n in range(400):
                number = 1 + own + 8 * n
                assert attempts(request_options({"attempts": number}).plan_for(plan, kept)) == [number]
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(kept) == MOST
