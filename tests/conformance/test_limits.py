"""Time limits that cancel async code: qubit-retry (Q, N), smithy-kotlin (KT), Finagle."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Backoff, Kind, Reason, Retry, Verdict, errors
from tests.conformance.flows import Flow, answers, check, in_every_colour, limited, takes
from tests.conformance.limited_flows import AGAIN, CUT, OVER, STOP, timeouts
from tests.conformance.observables import asserts
from tests.support.scripted import Bucket, fail, ok

LONG = 100_000.0
LATE = ok("late", takes=LONG)


def arbitrated(fact: str, limit: str, reason: Reason, attempts: int, **options: Any) -> Flow:
    kind = CUT if limit == "attempt" else OVER
    expected = {"type": kind, "limit": limit, "reason": reason, "attempts": attempts, "calls": attempts}
    return limited(fact, LATE, attempts=3, expected=expected, **options)


UNJUDGED: dict[str, Any] = {"on": [answers({})]}

FLOWS = [
    # A rule that stops at everything stops at timeouts too (in qubit they have their own policy).
    limited(
        "Q-B02-deviates",
        ok("late", takes=10),
        attempts=1,
        attempt_timeout=1,
        rules=[answers({"*": False})],
        expected={"type": CUT, "reason": Reason.stopped, "attempts": 1},
    ),
    limited(
        "Q-B03",
        ok("late", takes=10),
        attempts=2,
        attempt_timeout=1,
        backoff=Backoff.constant(1),
        expected={
            "type": CUT,
            "reason": Reason.attempts,
            "attempts": 2,
            "calls": 2,
            "sleeps": [1],
            "now": 3,
            "events": ["before:1", "failure:1", "retry:1:1", "before:2", "failure:2", "error:attempts"],
        },
    ),
    limited(
        "Q-A02",
        ok("late", takes=20),
        attempts=3,
        attempt_timeout=1,
        **STOP,
        expected={
            "type": CUT,
            "reason": Reason.stopped,
            "attempts": 1,
            "limit": "attempt",
            "cuts": [("attempt", 1)],
            "events": ["before:1", "failure:1", "error:stopped"],
        },
    ),
    limited(
        "Q-A09",
        fail("e", takes=50),
        ok("late", takes=500),
        attempts=5,
        work_timeout=100,
        attempt_timeout=80,
        expected={
            "type": OVER,
            "cause": "e",
            "reason": Reason.work_timeout,
            "attempts": 2,
            "calls": 2,
            "limit": "work",
            "cuts": [("work", 50)],
            "work_elapsed": 100,
        },
    ),
    limited(
        "Q-A10",
        ok("late", takes=120),
        attempts=2,
        work_timeout=20,
        total=20,
        expected={"reason": Reason.work_timeout, "limit": "work", "cuts": [("work", 20)], "now": 20},
    ),
    limited(
        "Q-R10.3",
        ok("never-reached"),
        attempts=2,
        work_timeout=0,
        attempt_timeout=1,
        expected={"type": OVER, "reason": Reason.work_timeout, "limit": "work", "calls": 0, "last": None},
    ),
    # Of an explicit "retry" and a hint the first decides, as everywhere (Q-X02); a hint alone is used.
    limited(
        "Q-X03",
        ok("late", takes=100),
        attempts=2,
        attempt_timeout=10,
        backoff=Backoff.constant(20),
        rules=[timeouts(True), timeouts(500)],
        expected={"reason": Reason.attempts, "sleeps": [20]},
    ),
    limited(
        "Q-X03-deviates",
        ok("late", takes=100),
        attempts=2,
        attempt_timeout=10,
        backoff=Backoff.constant(20),
        rules=[timeouts(500)],
        expected={"reason": Reason.attempts, "sleeps": [500], "hints": [500, 500]},
    ),
    # Without a verdict an attempt that exceeded its limit is retried (qubit 0.9 too; 0.19 stops).
    arbitrated("Q-V06.timeout", "attempt", Reason.attempts, 3, attempt_timeout=10, **UNJUDGED),
    arbitrated("N-10.1-deviates", "attempt", Reason.attempts, 3, attempt_timeout=10, **UNJUDGED),
    arbitrated("N-10.2", "total", Reason.timeout, 1, total=10),
    arbitrated("N-10.3", "total", Reason.timeout, 1, attempt_timeout=10, total=5),
    arbitrated("N-10.4", "attempt", Reason.stopped, 1, attempt_timeout=5, total=10, **STOP),
    arbitrated("N-10.5", "attempt", Reason.stopped, 1, attempt_timeout=5, total=5, **STOP),
    arbitrated("N-10.5-retried", "attempt", Reason.timeout, 1, attempt_timeout=5, total=5, **AGAIN),
    arbitrated("N-10.6", "attempt", Reason.attempts, 3, attempt_timeout=10, **AGAIN),
    # In qubit two time budgets cancel nothing; here `work_timeout` cancels like `timeout`.
    limited("N-06", ok("late", takes=500), give_up_after=10, expected={"ok": "late", "calls": 1}),
    arbitrated("N-06-deviates", "work", Reason.work_timeout, 1, work_timeout=10),
    # The deadline is fixed when the call starts, so the time that an observer takes is missing at the end.
    limited(
        "N-23.fixed",
        LATE,
        total=10,
        observers={"before_attempt": takes(4)},
        expected={"type": OVER, "cuts": [("total", 6)], "now": 10, "attempts": 1},
    ),
    limited(
        "N-23.reached",
        LATE,
        total=10,
        observers={"before_attempt": takes(10)},
        expected={"type": OVER, "calls": 0, "attempts": 0, "last": None, "limit": "total"},
    ),
    limited(
        "Q-V04.timeout",
        LATE,
        attempts=1,
        attempt_timeout=1,
        wrap=True,
        expected={"type": errors.AttemptsExhausted, "cause": "attempt 1 took longer than 1 s"},
    ),
    limited(
        "KT-TIME-01",
        ok("never", takes=2),
        total=1,
        budget=Bucket,
        expected={"type": OVER, "attempts": 1, "last": None, "cause": None, "trail": [], "now": 1},
    ),
    # The error of the previous attempt is the cause (smithy-kotlin raises it unchanged).
    limited(
        "KT-TIME-02-deviates",
        fail("Flaky", takes=1, verdict=Verdict.retry(kind=Kind.client)),
        attempts=3,
        total=1.5,
        budget=Bucket,
        expected={"type": OVER, "cause": "Flaky", "calls": 2, "trail": ["retry.client"], "now": 1.5},
    ),
    limited(
        "KT-TIME-03",
        ok("late", takes=0.3),
        ok("late", takes=0.3),
        ok("ok", takes=0.1),
        attempts=3,
        attempt_timeout=0.2,
        expected={"ok": "ok", "calls": 3, "cuts": [("attempt", 0.2)] * 2},
    ),
    limited(
        "KT-TIME-04", ok("late", takes=0.3), attempts=3, total=0.2, expected={"type": OVER, "attempts": 1}
    ),
    # The time left for each attempt; in Finagle's fact the first one takes 10 of 100.
    *(
        limited(
            f"timeout.deadline_math.{name}",
            *script,
            attempt_timeout=100,
            total=total,
            backoff=Backoff.constant(delay),
            expected={"cuts": cuts, "attempts": 3, "limit": "total", "now": total},
        )
        for name, total, delay, script, cuts in [
            ("finagle", 150, 0, [fail(takes=10), LATE], [("attempt", 100), ("total", 40)]),
            ("derived", 250, 5, [LATE], [("attempt", 100), ("attempt", 100), ("total", 40)]),
        ]
    ),
]


@asserts("N-23", "deadline_reached_while_arming_the_timer", "timeout_deadline")
@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """The limit that is reached, the decision about it, and the result."""
    check(colour, row)


@asserts("Q-R09", "attempts", "calls")
@pytest.mark.parametrize("rules", [AGAIN, STOP], ids=["Q-R09.retry", "Q-R09.abort"])
def test_blocking_code_without_a_worker_cannot_be_limited(rules: dict[str, Any]) -> None:
    """Q-R09, Q-V03: nothing is called, and the message names the alternatives."""
    calls: list[int] = []
    policy = Retry(on=rules["rules"], attempts=1, attempt_timeout=1)
    for way in (policy.call, policy.run, policy):
        with pytest.raises(
            TypeError, match=r"^attempt_timeout= cannot .*worker=Worker\(\).*policy\.acall\("
        ) as raised:
            way(lambda: calls.append(1))
        assert "timeout= and give_up_after=" in str(raised.value)
    assert calls == []


@asserts("Q-V06", "timeout_option_of_zero")
def test_the_values_of_attempt_timeout() -> None:
    """Q-D03, Q-D04, Q-B05, Q-V06: zero is refused, and by default there is no limit."""
    with pytest.raises(ValueError, match="attempt_timeout=0"):
        Retry(attempt_timeout=0)
    assert Retry().attempt_timeout is None
