"""qubit-retry 0.9: one call, its limits, hints and observers.

qubit's budget for the operation is ``work_timeout`` here, its total budget ``timeout`` or ``give_up_after``.
In qubit a hint replaces the backoff, which here is ``Hints(mode="instead")``.
"""

from __future__ import annotations

from redouble import Backoff, Reason, errors
from tests.conformance.flows import INSTEAD, Flow, answers, check, fails, flow, in_every_colour, takes
from tests.support.scripted import Panic, fail, ok

FLOWS = [
    flow(
        "Q-R03.1",
        fail("hinted"),
        ok("done"),
        attempts=2,
        rules=[answers({"hinted": 0})],
        expected={
            "ok": "done",
            "calls": 2,
            "sleeps": [],
            "hints": [0],
            "events": ["before:1", "failure:1", "retry:1:0", "before:2", "success:2"],
        },
    ),
    flow(
        "Q-R03.2",
        fail("plain"),
        fail("terminal"),
        attempts=2,
        rules=[answers({"hinted": 0})],
        expected={
            "reason": Reason.attempts,
            "attempts": 2,
            "raises": "terminal",
            "hints": [None, None],
            "events": ["before:1", "failure:1", "retry:1:0", "before:2", "failure:2", "error:attempts"],
        },
    ),
    flow(
        "Q-R04",
        fail("fatal"),
        attempts=3,
        rules=[answers({"fatal": False})],
        expected={
            "reason": Reason.stopped,
            "attempts": 1,
            "calls": 1,
            "raises": "fatal",
            "events": ["before:1", "failure:1", "error:stopped"],
        },
    ),
    flow(
        "Q-R05",
        fail("still-failing"),
        attempts=2,
        backoff=Backoff.constant(10000),
        rules=[answers({"*": 1})],
        hints=INSTEAD,
        expected={
            "reason": Reason.attempts,
            "attempts": 2,
            "sleeps": [1],
            "next_delay": None,
            "events": ["before:1", "failure:1", "retry:1:1", "before:2", "failure:2", "error:attempts"],
        },
    ),
    flow(
        "Q-R06",
        fail("limited"),
        attempts=2,
        rules=[answers({"limited": 1})],
        hints=INSTEAD,
        expected={
            "reason": Reason.attempts,
            "attempts": 2,
            "sleeps": [1],
            "hints": [1, 1],
            "next_delay": None,
            "events": ["before:1", "failure:1", "retry:1:1", "before:2", "failure:2", "error:attempts"],
        },
    ),
    flow(
        "Q-R10.1",
        ok("never-reached"),
        attempts=2,
        work_timeout=0,
        expected={
            "type": errors.DeadlineExceeded,
            "reason": Reason.work_timeout,
            "attempts": 0,
            "calls": 0,
            "last": None,
            "cuts": [],
            "events": ["error:work_timeout"],
        },
    ),
    flow(
        "Q-R10.2",
        ok("never-reached"),
        attempts=2,
        total=0,
        expected={
            "type": errors.DeadlineExceeded,
            "reason": Reason.timeout,
            "attempts": 0,
            "calls": 0,
            "last": None,
            "cuts": [],
            "events": ["error:timeout"],
        },
    ),
    flow(
        "Q-R12",
        fail("slow-listener"),
        attempts=2,
        work_timeout=10,
        backoff=Backoff.constant(25),
        observers={"on_retry": takes(25)},
        expected={
            "reason": Reason.attempts,
            "attempts": 2,
            "calls": 2,
            "sleeps": [25],
            "raises": "slow-listener",
            "elapsed": 50,
            "next_delay": None,
        },
    ),
    flow(
        "Q-R14",
        fail("too-large"),
        attempts=2,
        total=50,
        rules=[answers({"*": 200})],
        expected={
            "reason": Reason.timeout,
            "attempts": 1,
            "calls": 1,
            "sleeps": [],
            "hints": [200],
            "next_delay": 200,
        },
    ),
    flow(
        "Q-R17",
        fail("slow-on-retry"),
        attempts=2,
        total=20,
        observers={"on_retry": takes(40)},
        expected={
            "reason": Reason.timeout,
            "attempts": 1,
            "calls": 1,
            "raises": "slow-on-retry",
            "elapsed": 40,
            "next_delay": 0,
            "events": ["before:1", "failure:1", "retry:1:0", "error:timeout"],
        },
    ),
    flow(
        "Q-R18",
        fail("late"),
        attempts=2,
        total=80,
        backoff=Backoff.constant(50),
        observers={"on_retry": takes(40)},
        expected={
            "reason": Reason.timeout,
            "attempts": 1,
            "calls": 1,
            "sleeps": [],
            "elapsed": 40,
            "next_delay": 50,
            "events": ["before:1", "failure:1", "retry:1:50", "error:timeout"],
        },
    ),
    flow(
        "Q-B01",
        fail("retry"),
        fail("stop"),
        attempts=3,
        rules=[answers({"retry": True, "stop": False})],
        expected={"reason": Reason.stopped, "attempts": 2, "calls": 2, "raises": "stop"},
    ),
    flow(
        "Q-B04",
        fail("isolated"),
        attempts=2,
        observers=dict.fromkeys(("before_attempt", "on_failure", "on_retry", "on_give_up"), fails),
        expected={"reason": Reason.attempts, "attempts": 2, "calls": 2, "raises": "isolated"},
    ),
    flow(
        "Q-A01",
        fail(Panic("operation panic")),
        attempts=2,
        expected={"type": Panic, "same": True, "reason": None, "calls": 1, "events": ["before:1"]},
    ),
    flow(
        "Q-A07",
        fail("temporary"),
        ok("done"),
        attempts=2,
        backoff=Backoff.constant(1),
        expected={"ok": "done", "calls": 2, "sleeps": [1]},
    ),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """Attempts, delays, observers and results."""
    check(colour, row)
