"""qubit-retry 0.19, a redesign of 0.9 that Redouble mostly follows."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Backoff, Reason, Retry
from tests.conformance.flows import (
    ASYNC,
    EVERY,
    Flow,
    answers,
    check,
    drive,
    fails,
    flow,
    in_every_colour,
    takes,
)
from tests.conformance.observables import asserts
from tests.support.scripted import Operation, Virtual, fail, ok

FLOWS = [
    flow(
        "N-04.1",
        fail("matrix"),
        attempts=2,
        rules=[answers({"*": False})],
        expected={"reason": Reason.stopped, "attempts": 1, "raises": "matrix"},
    ),
    flow(
        "N-04.2",
        fail("matrix"),
        attempts=1,
        expected={"reason": Reason.attempts, "attempts": 1, "raises": "matrix"},
    ),
    flow(
        "N-05.1",
        fail("matrix", takes=1000),
        attempts=2,
        work_timeout=1000,
        expected={
            "reason": Reason.work_timeout,
            "limit": "work",
            "attempts": 1,
            "raises": "matrix",
            "work_elapsed": 1000,
            "took": 1000,
        },
    ),
    flow(
        "N-05.2",
        fail("matrix", takes=1000),
        attempts=2,
        total=1000,
        expected={"reason": Reason.timeout, "attempts": 1, "raises": "matrix", "elapsed": 1000},
    ),
    flow(
        "N-06",
        ok("late but fine", takes=500),
        attempts=2,
        give_up_after=10,
        colours=ASYNC,
        expected={"ok": "late but fine", "calls": 1},
    ),
    flow(
        "N-13.1",
        ok("never-reached"),
        attempts=2,
        total=1000,
        observers={"before_attempt": takes(2000)},
        expected={"reason": Reason.timeout, "attempts": 0, "calls": 0, "last": None},
    ),
    flow(
        "N-13.2",
        fail("first"),
        attempts=2,
        total=1000,
        observers={"before_attempt": takes(1000, attempt=2)},
        expected={"reason": Reason.timeout, "attempts": 1, "calls": 1, "raises": "first", "same": True},
    ),
    # qubit stops at a callback that fails; here the error of an observer is logged and changes nothing.
    *(
        flow(
            f"N-03.{hook}-deviates",
            fail("matrix"),
            attempts=2,
            observers={hook: fails},
            expected={"reason": Reason.attempts, "attempts": 2, "raises": "matrix"},
        )
        for hook in ("before_attempt", "on_failure", "on_retry")
    ),
    # qubit sleeps up to the limit and times out; here a delay that does not fit ends the call at once.
    flow(
        "N-11-deviates",
        fail(),
        attempts=2,
        backoff=Backoff.constant(30000),
        timeout=1000,
        expected={
            "reason": Reason.timeout,
            "attempts": 1,
            "calls": 1,
            "sleeps": [],
            "elapsed": 0,
            "limit": "total",
        },
    ),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """Endings, limits, and observers that take time or fail."""
    check(colour, row)


class Counted:
    """A rule that counts its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked = 0

    def __call__(self, error: Exception) -> Any:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asserts("N-02", "rule_calls", "terminal")
@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize(
    ("first", "second", "reason", "asked"),
    [
        pytest.param(True, False, Reason.attempts, [1, 0], id="N-02.1"),
        pytest.param(None, False, Reason.stopped, [1, 1], id="N-02.2"),
    ],
)
def test_the_first_rule_with_an_opinion_decides(
    colour: str, first: Any, second: Any, reason: Reason, asked: list[int]
) -> None:
    """Later rules are not called."""
    rules = [Counted(first), Counted(second)]
    words = drive(colour, flow("N-02", fail(), attempts=1, rules=rules, expected={})).words()
    assert words["reason"] == reason
    assert [rule.asked for rule in rules] == asked


@asserts("N-03", "rule_calls")
@asserts("Q-R07", "calls", "escapes", "events")
@pytest.mark.parametrize("colour", EVERY)
@pytest.mark.parametrize("fact", ["N-03.rule", "Q-R07"])
def test_the_error_of_a_rule_is_raised(colour: str, fact: str) -> None:
    """With the error of the operation as its context; later rules are not called."""
    rules = [Counted(LookupError("rule")), Counted(True)]
    words = drive(colour, flow(fact, fail("matrix"), attempts=2, rules=rules, expected={})).words()
    assert (words["type"], words["context"]) == (LookupError, "matrix")
    assert (words["calls"], words["events"]) == (1, ["before:1"])
    assert [rule.asked for rule in rules] == [1, 0]


@asserts("N-14", "attempts", "seen_elapsed", "terminal", "total_elapsed")
@pytest.mark.parametrize("colour", EVERY)
def test_n_14_time_is_read_again_between_the_phases(colour: str) -> None:
    """N-14: rule, failure and retry each take 1000 of 3000. Here the rule is called before the observer."""
    clocks: list[Virtual] = []
    seen_by_rule: list[float] = []

    class Slow:
        def judge(self, ended: Any) -> bool:
            seen_by_rule.append(ended.elapsed)
            clocks[0].time += 1000
            return True

    def failed(event: Any, clock: Virtual) -> None:
        clock.time += 1000

    def before(event: Any, clock: Virtual) -> None:
        clocks.append(clock)

    observers = {"before_attempt": before, "on_failure": failed, "on_retry": failed}
    seen = drive(
        colour,
        flow(
            "N-14", fail("elapsed"), attempts=2, total=3000, rules=[Slow()], observers=observers, expected={}
        ),
    )
    words = seen.words()
    assert (words["reason"], words["attempts"], words["elapsed"]) == (Reason.timeout, 1, 3000)
    assert seen_by_rule == [0]
    assert words["at"] == [("before_attempt", 0), ("failure", 1000), ("retry", 2000), ("give_up", 3000)]


def test_n_14_a_slow_rule_leaves_less_time_for_the_delay() -> None:
    """N-14: without observers too, a delay that does not fit ends the call."""
    clock = Virtual()

    def slow(error: Exception) -> bool:
        clock.time += 2
        return True

    policy = Retry(on=slow, backoff=[2], give_up_after=3, clock=clock)
    outcome = policy.run(Operation([fail()], clock))
    assert (outcome.report.reason, clock.waits, clock.time) == (Reason.timeout, [], 2)
