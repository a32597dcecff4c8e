"""qubit-retry 0.9: the choice of the delay, delays that do not fit, and independent calls of one policy."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from redouble import Backoff, Reason, Retry
from tests.conformance.flows import INSTEAD, SYNC, Flow, answers, check, drive, fails, flow, in_every_colour
from tests.conformance.observables import OBSERVABLES, asserts
from tests.support.scripted import Operation, Virtual, fail, ok

FIXED_20 = Backoff.constant(20)


def selection(row: str, sleeps: list[float], hint: float | None, **options: Any) -> Flow:
    expected = {"reason": Reason.attempts, "attempts": 2, "sleeps": sleeps, "hints": [hint, hint]}
    return flow(row, fail(), attempts=2, hints=INSTEAD, expected=expected, **options)


def admission(
    row: str, sleeps: list[float], refused: float | None = None, script: float = 0, **options: Any
) -> Flow:
    """Return the row of a delay that fits into the time left, or of one that is ``refused``."""
    expected: dict[str, Any] = {"reason": Reason.attempts, "attempts": 2, "next_delay": None}
    if refused is not None:
        expected = {"reason": Reason.timeout, "attempts": 1, "next_delay": refused}
    expected["sleeps"] = sleeps
    return flow(row, fail(takes=script), attempts=2, total=100, hints=INSTEAD, expected=expected, **options)


CAPPED = Backoff.exponential(10).maximum(80).jitter(1)

TIME = [
    selection("Q-X02.1", [500], 500, backoff=FIXED_20, rules=[answers({"*": 500})]),
    selection("Q-X02.2", [20], None, backoff=FIXED_20, rules=[answers({"*": True}), answers({"*": 500})]),
    selection("Q-X02.3", [20], None, backoff=FIXED_20, rules=[answers({"e": True}), answers({"*": 500})]),
    selection("Q-X02.4", [3], 3, backoff=FIXED_20, rules=[answers({"*": 3}), answers({"*": 500})]),
    selection("Q-X04.1", [5000], 5000, backoff=CAPPED, rules=[answers({"*": 5000})]),
    selection("Q-X04.2", [5000], 5000, backoff=CAPPED, rules=[answers({"e": 5000}), answers({"*": 1})]),
    admission("Q-X07.1", [], 100, backoff=Backoff.constant(100)),
    admission("Q-X07.2", [99], backoff=Backoff.constant(99)),
    admission("Q-X07.3", [], script=49),
    admission("Q-X07.4", [], 200, rules=[answers({"*": 200})]),
    *(
        flow(
            f"Q-X06.{number}",
            ok("slow but fine", takes=50),
            attempts=3,
            expected={"ok": "slow but fine", "calls": 1, "events": ["before:1", "success:1"]},
            colours=SYNC,
            **{limit: 10},
        )
        for number, limit in enumerate(("work_timeout", "timeout", "give_up_after"), 1)
    ),
    flow(
        "Q-X10",
        fail(),
        attempts=2,
        rules=[answers({"*": False})],
        observers={"on_failure": fails},
        expected={"reason": Reason.stopped, "attempts": 1},
    ),
    flow("Q-X11", ok("v"), attempts=1, observers={"on_success": fails}, expected={"ok": "v", "calls": 1}),
]


@in_every_colour(TIME)
def test_the_delay_of_a_retry(colour: str, row: Flow) -> None:
    """The chosen delay, one that does not fit, and observers that do not affect it."""
    check(colour, row)


@pytest.mark.parametrize("threads", [1, 8], ids=["Q-X12.alone", "Q-X12.together"])
def test_a_policy_keeps_no_state_between_calls(threads: int) -> None:
    """Attempts, delays and limits restart with every call."""
    policy = Retry(on=OSError, attempts=3, backoff=[0, 0, 0], give_up_after=100, clock=Virtual())

    def twice_failing() -> int:
        calls: list[int] = []

        def operation() -> int:
            calls.append(1)
            if len(calls) < 3:
                raise OSError
            return len(calls)

        return policy.call(operation)

    with ThreadPoolExecutor(threads) as pool:
        assert [future.result() for future in [pool.submit(twice_failing) for _ in range(20)]] == [3] * 20


@asserts("Q-V01", *OBSERVABLES["Q-V01"])
def test_q_v01_the_fields_of_an_event() -> None:
    """Q-V01: attempts count from 1, fields that do not apply are None, and the elapsed time is zero.

    The configured numbers are those of the policy, as the report has the durations.
    """
    told = drive("sync", flow("Q-V01", fail(), attempts=2, expected={})).events
    said = [(event.attempt, event.elapsed, event.attempt_elapsed, event.delay, event.hint) for event in told]
    first = [(1, 0, None, None, None), (1, 0, 0, None, None), (1, 0, 0, 0, None)]
    second = [(2, 0, None, None, None), (2, 0, 0, None, None), (2, 0, 0, None, None)]
    assert said == [*first, *second]
    policy = Retry(on=Exception, attempts=5, give_up_after=None)
    assert (policy.attempts, policy.work_timeout, policy.timeout) == (5, None, None)
    assert policy.attempt_timeout is None
    clock = Virtual()
    report = Retry(attempts=1, clock=clock).run(Operation([fail()], clock)).report
    assert (report.attempts, report.history[-1].delay, report.history[-1].hint) == (1, None, None)
    assert (report.limit, report.workers_left, report.work_elapsed, clock.time) == (None, 0, 0, 0)
