"""Where Redouble does otherwise on purpose: each row bears the id of the fact it departs from.

The reasons are in docs/conformance.md. Other deviations stand next to their facts, marked in their ids.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redouble import Backoff, Reason, Retry

from .flows import Flow, answers, check, flow, in_every_colour, takes
from .support import fail, ok, series

RETRY, STOP, AFTER_7 = answers({"*": True}), answers({"*": False}), answers({"*": 7})
NO_OPINION = answers({})


def first(fact: str, *rules: object, reason: Reason, sleeps: list[float]) -> Flow:
    attempts = 1 if reason is Reason.stopped else 2
    expected = {"reason": reason, "attempts": attempts, "sleeps": sleeps}
    return flow(fact, fail(), attempts=2, rules=rules, expected=expected)


FLOWS = [
    # An attempt that never began is not counted (qubit 0.9: 1).
    flow(
        "Q-R16",
        ok("never-reached"),
        attempts=2,
        total=20,
        observers={"before_attempt": takes(40)},
        expected={
            "reason": Reason.timeout,
            "attempts": 0,
            "calls": 0,
            "last": None,
            "elapsed": 40,
            "events": ["before:1", "error:timeout"],
        },
    ),
    # The first opinion decides (qubit 0.9: the last).
    first("Q-X01.1", STOP, RETRY, reason=Reason.stopped, sleeps=[]),
    first("Q-X01.2", RETRY, STOP, reason=Reason.attempts, sleeps=[]),
    first("Q-X01.3", STOP, NO_OPINION, reason=Reason.stopped, sleeps=[]),
    first("Q-X01.4", AFTER_7, RETRY, reason=Reason.attempts, sleeps=[7]),
    first("Q-X01.5", RETRY, AFTER_7, reason=Reason.attempts, sleeps=[]),
    first("Q-X01.6", STOP, RETRY, reason=Reason.stopped, sleeps=[]),
    # By default a hint only lengthens the backoff (qubit 0.9: it replaces it).
    flow(
        "Q-R05",
        fail(),
        attempts=2,
        backoff=Backoff.constant(10000),
        rules=[answers({"*": 1})],
        expected={"sleeps": [10000]},
    ),
    flow(
        "Q-X02.4",
        fail(),
        attempts=2,
        backoff=Backoff.constant(20),
        rules=[answers({"*": 3})],
        expected={"sleeps": [20]},
    ),
    # An error that no rule knows is not retried (qubit: retried).
    flow("Q-V06", fail(), on=[NO_OPINION], expected={"reason": Reason.stopped, "calls": 1}),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """What ours does."""
    check(colour, row)


@pytest.mark.parametrize(
    ("make", "first"),
    [
        pytest.param(lambda: Backoff.constant(0), 0, id="Q-D03.fixed-0"),
        pytest.param(lambda: Backoff.random(0, 1), 0.5, id="Q-D03.random-0"),
        pytest.param(lambda: Backoff.exponential(0).maximum(1000), 0, id="Q-D03.initial-0"),
        pytest.param(lambda: Backoff.exponential(1000, 1).maximum(2000), 1000, id="Q-D03.factor-1"),
        pytest.param(lambda: Backoff.exponential(2000).maximum(1000), 1000, id="Q-D03.cap-below-initial"),
        pytest.param(lambda: Backoff.exponential(2000).maximum(1000), 1000, id="N-09.cap-below-initial"),
        pytest.param(lambda: Backoff.exponential(0), 0, id="LF-CODE-04.base-0"),
        pytest.param(lambda: Backoff.exponential(5).maximum(1), 1, id="LF-CODE-04.cap-below-base"),
    ],
)
def test_recipes_that_others_refuse(make: Callable[[], Backoff], first: float) -> None:
    """Zero delays are useful, and modifiers are each judged alone."""
    assert series(make(), 1, 0.5) == [first]


def test_q_d04_and_q_b05_defaults() -> None:
    """Q-D04, Q-B05: fewer attempts, shorter delays, full jitter, and a limit of time."""
    policy = Retry()
    assert policy.attempts == 4
    assert policy.give_up_after == 30
    assert (policy.timeout, policy.work_timeout) == (None, None)
    assert isinstance(policy.backoff, Backoff)
    assert series(policy.backoff, 6, 1) == [0.2, 0.4, 0.8, 1.6, 2, 2]
    assert series(policy.backoff, 6, 0) == [0] * 6
