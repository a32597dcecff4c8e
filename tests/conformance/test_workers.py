"""Blocking code on workers: qubit-retry 0.9 (Q) and 0.19 (N), whose workers are threads too."""

from __future__ import annotations

from typing import Any

import pytest

from redouble import Backoff, Reason, Retry, Worker, errors, remaining
from redouble.testing import virtual_time
from tests.conformance.flows import WORKERS, Flow, answers, check, drive, in_every_colour, limited, takes
from tests.conformance.limited_flows import AGAIN, CUT, MS, OVER, STOP, STUCK, worked
from tests.conformance.observables import asserts
from tests.support.scripted import Operation, Panic, ScriptedError, Step, VirtualTimeView, fail, ok

CRASH = fail(Panic("p"))
NO_TIME: list[tuple[str, Reason, str, dict[str, Any]]] = [
    ("Q-R10.4", Reason.work_timeout, "work", {"work_timeout": 0}),
    ("Q-R10.5", Reason.timeout, "total", {"total": 0}),
    ("Q-R16.worker", Reason.timeout, "total", {"total": 20, "observers": {"before_attempt": takes(40)}}),
]


def approx(milliseconds: float) -> Any:
    return pytest.approx(milliseconds * MS)


def stuck(fact: str, reason: Reason, kind: type[BaseException], elapsed: float, **options: Any) -> Flow:
    """Return a row of a worker that ignores its cancellation."""
    expected = {
        "type": kind,
        "reason": reason,
        "attempts": 1,
        "calls": 1,
        "stopped": [True],
        "workers_left": 1,
        "elapsed": approx(elapsed),
        **options.pop("expected", {}),
    }
    return worked(fact, STUCK, expected=expected, **options)


OWN: dict[str, Any] = {"attempt_timeout": 5 * MS, "grace": 5 * MS}
STILL, LEFT = Reason.worker_still_running, errors.WorkerStillRunning

FLOWS = [
    worked(
        "Q-A07.worker",
        fail("temporary"),
        ok("done"),
        attempts=2,
        backoff=Backoff.constant(2),
        expected={"ok": "done", "calls": 2, "sleeps": [2]},
    ),
    *(
        worked(
            fact,
            ok("never-reached"),
            attempts=2,
            expected={
                "type": OVER,
                "reason": reason,
                "limit": limit,
                "attempts": 0,
                "calls": 0,
                "last": None,
            },
            **options,
        )
        for fact, reason, limit, options in NO_TIME
    ),
    worked("N-04.3", fail("matrix"), attempts=1, expected={"raises": "matrix", "reason": Reason.attempts}),
    stuck(
        "Q-W02.1",
        Reason.work_timeout,
        OVER,
        20,
        attempts=1,
        grace=0,
        work_timeout=20 * MS,
        expected={"limit": "work", "cuts": [("work", 20 * MS)], "last": None},
    ),
    stuck(
        "Q-W02.2",
        Reason.timeout,
        OVER,
        20,
        attempts=1,
        grace=0,
        total=20 * MS,
        expected={"limit": "total", "cuts": [("total", 20 * MS)], "last": None},
    ),
    stuck(
        "Q-W03",
        Reason.stopped,
        CUT,
        20,
        attempts=2,
        grace=0,
        work_timeout=20 * MS,
        attempt_timeout=20 * MS,
        **STOP,
        expected={"limit": "attempt", "cuts": [("attempt", 20 * MS)]},
    ),
    # Rules are never called for a BaseException, nor on a worker (in qubit a rule may retry it).
    *(
        worked(
            fact,
            CRASH,
            ok("done"),
            attempts=2,
            rules=[answers({"*": answer})],
            expected={"type": Panic, "calls": 1, "sleeps": [], "events": ["before:1"]},
        )
        for fact, answer in [("Q-W05-deviates", True), ("Q-W12-deviates", 5), ("N-19.2-deviates", None)]
    ),
    worked(
        "Q-W06",
        Step(error="cancelled", takes=1 * MS, stops="when cancelled"),
        attempts=3,
        attempt_timeout=5 * MS,
        grace=60,
        **STOP,
        expected={
            "type": CUT,
            "reason": Reason.stopped,
            "attempts": 1,
            "stopped": [True],
            "workers_left": 0,
            "cuts": [("attempt", 5 * MS)],
            "elapsed": approx(6),
        },
    ),
    stuck(
        "Q-W08",
        STILL,
        LEFT,
        10,
        attempts=3,
        **OWN,
        **AGAIN,
        expected={
            "cause": "attempt 1 took longer than 0.005 s",
            "events": ["before:1", "failure:1", "error:worker_still_running"],
        },
    ),
    stuck("Q-W09.1", Reason.stopped, CUT, 10, attempts=3, **OWN, **STOP),
    stuck("Q-W09.2", Reason.attempts, CUT, 10, attempts=1, **OWN, **AGAIN),
    stuck("Q-W09.3", Reason.work_timeout, CUT, 10, attempts=3, work_timeout=8 * MS, **OWN, **AGAIN),
    stuck("Q-W09.4", Reason.timeout, CUT, 10, attempts=3, total=9 * MS, **OWN, **AGAIN),
    stuck("Q-W09.5", STILL, LEFT, 10, attempts=3, rules=[answers({"*": True})], **OWN),
    stuck("N-18.1", STILL, LEFT, 1, attempts=3, grace=0, attempt_timeout=1 * MS),
    # The reason of a call that a limit ended is the limit (qubit 0.19: a worker that is still running).
    stuck("N-18.2-deviates", Reason.timeout, OVER, 1, attempts=3, grace=0, total=1 * MS),
]


@in_every_colour(FLOWS)
def test_one_call(colour: str, row: Flow) -> None:
    """The result, the cancellation of the worker, and whether it was abandoned."""
    check(colour, row)


@asserts("Q-W07", "ok")
@pytest.mark.parametrize("colour", WORKERS)
def test_q_w07_a_cancelled_attempt_is_retried(colour: str) -> None:
    """Q-W07: the number of attempts is not compared, because a thread may start too slowly."""
    script = [Step(error="cancelled", stops="when cancelled"), ok("done")]
    row = limited(
        "", *script, attempts=None, total=60, attempt_timeout=50 * MS, worker=Worker(grace=60), expected={}
    )
    words = drive(colour, row).words()
    assert (words["ok"], words["stopped"]) == ("done", [True])
    assert words["events"][:4] == ["before:1", "failure:1", "retry:1:0", "before:2"]


@asserts("Q-W10", "calls", "ok", "operation_elapsed", "unreaped")
@pytest.mark.parametrize("colour", WORKERS)
def test_q_w10_a_late_result_is_discarded(colour: str) -> None:
    """Q-W10: the attempt is a timeout, and its whole duration counts as work."""
    script = [ok("too-late", takes=60), ok("second")]
    worker = Worker(grace=100)
    words = drive(
        colour, limited("", *script, attempts=2, attempt_timeout=50, worker=worker, expected={})
    ).words()
    assert (words["ok"], words["calls"], words["cuts"]) == ("second", 2, [("attempt", 50)])

    with virtual_time() as clock:
        operation = Operation(script, VirtualTimeView(clock))
        said = Retry(backoff=[0], give_up_after=None, attempt_timeout=50, worker=worker).run(operation).report
    assert (said.attempts, said.work_elapsed, said.workers_left) == (2, 60, 0)


@pytest.mark.parametrize(
    ("total", "delay", "taken", "budgets"),
    [
        pytest.param(150, 0, [10, 100, 0], [100, 100, 40], id="timeout.deadline_math.finagle-worker"),
        pytest.param(250, 5, [100, 100, 0], [100, 100, 40], id="timeout.deadline_math.derived-worker"),
    ],
)
def test_the_time_left_for_each_attempt(
    total: float, delay: float, taken: list[float], budgets: list[float]
) -> None:
    """The operation can read it with `remaining`."""
    seen: list[float | None] = []

    def operation() -> None:
        seen.append(remaining())
        clock.advance(taken[len(seen) - 1])
        raise ScriptedError

    policy = Retry(
        on=ScriptedError,
        attempts=3,
        timeout=total,
        give_up_after=None,
        attempt_timeout=100,
        backoff=[delay] * 2,
        worker=Worker(),
    )
    with virtual_time() as clock, pytest.raises(ScriptedError):
        policy.call(operation)
    assert seen == budgets


def test_q_v03_the_error_of_a_worker_still_running() -> None:
    """Q-V02, Q-V03: it names the running worker, the number of attempts, and the last error."""
    error = drive("worker", stuck("", STILL, LEFT, 1, attempts=3, grace=0, attempt_timeout=MS)).error
    named = ("1 attempt ", "its worker is still running", "took longer than 0.001 s")
    assert [words for words in named if words not in str(error)] == []


def test_q_d04_the_grace_of_a_worker() -> None:
    """Q-D03, Q-D04, Q-B05: 0.1 s by default, and none if it is 0."""
    assert Worker().grace == 0.1
    assert Worker(grace=0).grace == 0
