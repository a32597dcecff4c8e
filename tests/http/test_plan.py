"""`Plan`: any layer is accepted, each host has a budget, time limits become deadlines."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any

import pytest

import redouble
from redouble import (
    Bulkhead,
    CircuitBreaker,
    Fallback,
    Gate,
    Layer,
    Pipeline,
    Retry,
    Timeout,
    Worker,
    presets,
    report,
)
from redouble.http import IDEMPOTENT, rule
from redouble.http._plan import _default
from redouble.http._rule import FAILING
from tests.support.fakes import ASYNC, Boom, in_colour
from tests.support.http.offline_clients import RecordingSender, new_call, retrying

# ------------------------------------------------------------------------------- layers


class Noted(Gate):
    """A user-defined gate that records the error of each call."""

    def __init__(self) -> None:
        self.ended_with: list[BaseException | None] = []

    def admit(self, now: float, /) -> None: ...

    def ended(self, ticket: None, error: BaseException | None, now: float, /) -> None:
        self.ended_with.append(error)


@pytest.mark.parametrize(
    ("policy", "sends"),
    [
        (retrying(), 3),
        (retrying() | retrying(), 3),
        (Bulkhead(1), 1),
        (CircuitBreaker(), 1),
        (Timeout(60), 1),
        (Timeout(60, worker=Worker()), 1),
        (Pipeline(), 1),
        (Bulkhead(1) | retrying(), 3),
        (Timeout(60) | Bulkhead(1) | retrying(attempt_timeout=9) | CircuitBreaker() | Timeout(60), 3),
        (Fallback(value="no", on=Boom) | retrying(attempts=2), 2),
        (retrying(worker=Worker()), 3),
        (Noted() | retrying() | Noted(), 3),
    ],
)
def test_any_layer_or_pipeline_is_accepted(colour: str, policy: Layer, sends: int) -> None:
    sender = RecordingSender(fails=2)
    try:
        found = sender.call(colour, policy)
    except Boom as error:
        found = str(error)
    assert (len(sender.sent), found) == (sends, {1: "1", 2: "no", 3: "x"}[sends])


@pytest.mark.parametrize(
    "wrong",
    [5, "retry", True, Retry, redouble.retry, redouble, [Retry()], (Retry(), Timeout(2)), {}, presets.http],
)
def test_a_wrong_policy_raises(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^policy=.* is no layer: write .*, or None for the default"):
        RecordingSender().plan(wrong)


def test_clients_without_a_policy_share_the_default() -> None:
    assert _default() is _default()
    assert _default().attempts == presets.http().attempts
    one, other = RecordingSender(), RecordingSender()
    assert one.plan(None).layers[0] is other.plan(None).layers[0]


def test_a_class_instead_of_a_layer_raises() -> None:
    with pytest.raises(TypeError, match="Bulkhead"):
        RecordingSender().plan(Bulkhead)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("name", "expected"), [(None, "client"), ("mine", "mine")])
def test_the_report_has_the_name_of_the_policy_or_the_client(
    colour: str, name: str | None, expected: str
) -> None:
    with pytest.raises(Boom) as caught:
        RecordingSender(fails=9).call(colour, retrying(name=name) if name else retrying())
    call_report = report(caught.value)
    assert call_report is not None
    assert call_report.name == expected


# ------------------------------------------------------------- facts about a policy


@pytest.mark.parametrize(
    ("policy", "failing", "methods"),
    [
        (Retry(), set[int](), IDEMPOTENT),
        (Timeout(2), set[int](), IDEMPOTENT),
        (Retry(on=rule()), set[int](), IDEMPOTENT),
        (Retry(on=rule({404, 503})), {404}, IDEMPOTENT),
        (Retry(on=[rule({404}, {"post"}), rule({409}, ())]), {404, 409}, {"POST"}),
        (Retry(on=rule(methods=())), set[int](), set[str]()),
        (
            Retry(on=rule({404})) | Timeout(1) | Retry(on=rule({410}, {"PATCH"})),
            {404, 410},
            {*IDEMPOTENT, "PATCH"},
        ),
    ],
)
def test_failing_statuses_and_resendable_methods_come_from_the_rules(
    policy: Layer, failing: set[int], methods: set[str]
) -> None:
    plan = RecordingSender().plan(policy)
    assert plan.failing == FAILING | failing
    assert plan.methods == methods


@pytest.mark.parametrize(
    ("policy", "total"),
    [
        (Pipeline(), inf),
        (Timeout(2), 2),
        (Timeout(2) | Retry(timeout=5), 2),
        (Retry(), inf),
        (Retry(timeout=5), 5),
        (Retry(timeout=50), 50),
        (Retry(give_up_after=None), inf),
        # An inner limit restarts with each attempt of the outer layer.
        (Retry(give_up_after=None) | Retry(timeout=1), inf),
        (Retry(timeout=9) | Timeout(2) | Retry(timeout=1), 9),
        (Retry(timeout=9) | Retry(), 9),
    ],
)
def test_the_maximum_of_time(policy: Layer, total: float) -> None:
    assert RecordingSender().plan(policy).total == total


def test_until_needs_the_bodies() -> None:
    assert RecordingSender().plan(Timeout(2) | Retry(until=bool)).reads_bodies
    assert not RecordingSender().plan(Timeout(2) | Retry()).reads_bodies


# --------------------------------------------------------------- options of one request


def test_options_and_policies_of_one_request_make_another_plan(colour: str) -> None:
    sender = RecordingSender(fails=99)
    aio = colour in ASYNC
    plan = sender.plan(Bulkhead(3) | retrying(attempts=5, name="mine"), aio=aio)
    for other in (plan.variant(None, {"attempts": 2}), plan.variant(retrying(attempts=2, name="mine"), {})):
        sender.sent.clear()
        send = partial(other.call_for("a"), new_call())
        with pytest.raises(Boom) as caught:
            in_colour(colour, send, send)
        call_report = report(caught.value)
        assert call_report is not None
        assert (len(sender.sent), call_report.attempts, call_report.name) == (2, 2, "mine")
    assert plan.outermost is not None
    assert plan.outermost.attempts == 5


def test_options_need_a_retry_in_the_policy() -> None:
    with pytest.raises(
        TypeError, match=r"^attempts, timeout: the policy has no Retry whose options could vary"
    ):
        RecordingSender().plan(Timeout(2)).variant(None, {"timeout": 2, "attempts": 3})
    with pytest.raises(ValueError, match="attempts"):
        RecordingSender().plan(Retry()).variant(None, {"attempts": 0})
