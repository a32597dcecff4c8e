"""The engine, as tables: its methods receive what happened and when, and return seconds or None."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from redouble import Kind, Retry, Verdict, errors, report
from redouble._engine import run as _run
from redouble._engine.options import MAX_RECORDS
from redouble._engine.run import Run
from redouble.types import Event
from tests.support.fakes import Boom, Draws, Ledger, Virtual, always
from tests.support.fakes import options as defaults
from tests.support.runs import run_of

HOOKS = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")


def play(run: Run, attempts: Sequence[tuple[float, float]]) -> tuple[list[float], str | None, int]:
    """Fail at the given (start, end) times, until the run gives up; return delays, reason and attempts."""
    delays: list[float] = []
    for begun, ended in attempts:
        if run.start(begun) is not None:
            break
        delay = run.failed(Boom("e"), ended)
        if delay is None:
            break
        delays.append(delay)
    return delays, run.reason, run.attempt


LIMITS: list[tuple[dict[str, Any], list[tuple[float, float]], tuple[list[float], str | None, int]]] = [
    # attempts: the first included
    ({"attempts": 1}, [(0, 0)], ([], "attempts", 1)),
    ({"attempts": 3}, [(0, 0), (1, 1), (2, 2)], ([1, 1], "attempts", 3)),
    ({"attempts": None}, [(i, i) for i in range(29)], ([1] * 29, None, 29)),
    # a backoff that ends, also at once
    ({"backoff": [3, 4]}, [(0, 0), (3, 3), (7, 7)], ([3, 4], "backoff_ended", 3)),
    ({"backoff": []}, [(0, 0)], ([], "backoff_ended", 1)),
    ({"backoff": [3], "attempts": 2}, [(0, 0), (3, 3)], ([3], "attempts", 2)),
    # a delay must end before the limit: reaching it is too late
    ({"give_up_after": 6, "backoff": [5]}, [(0, 0.5)], ([5], None, 1)),
    ({"give_up_after": 6, "backoff": [5]}, [(0, 1)], ([], "timeout", 1)),
    ({"timeout": 6, "backoff": [5]}, [(0, 0.5)], ([5], None, 1)),
    ({"timeout": 6, "backoff": [5]}, [(0, 1)], ([], "timeout", 1)),
    ({"timeout": 6, "backoff": [0]}, [(0, 6)], ([], "timeout", 1)),
    ({"timeout": 50, "give_up_after": 6, "backoff": [5]}, [(0, 1)], ([], "timeout", 1)),
    ({"timeout": 6, "give_up_after": 50, "backoff": [5]}, [(0, 1)], ([], "timeout", 1)),
    # the origin of the clock does not matter
    ({"give_up_after": 6, "backoff": [5], "started": -1000}, [(-1000, -999.5)], ([5], None, 1)),
    ({"give_up_after": 6, "backoff": [5], "started": 1000}, [(1000, 1001)], ([], "timeout", 1)),
    # an attempt must start before the limit
    ({"give_up_after": 6}, [(0, 0), (5.9, 5.9)], ([1], "timeout", 2)),
    ({"give_up_after": 6}, [(0, 0), (6, 6)], ([1], "timeout", 1)),
    ({"give_up_after": 6}, [(0, 0), (99, 99)], ([1], "timeout", 1)),
    ({"give_up_after": 0}, [(0, 0)], ([], "timeout", 0)),
    ({"timeout": 0}, [(0, 0)], ([], "timeout", 0)),
    ({"work_timeout": 0}, [(0, 0)], ([], "work_timeout", 0)),
    # work_timeout is the time inside attempts: delays do not count, and may exceed it
    ({"work_timeout": 6}, [(0, 3), (4, 6.5), (8, 8.5)], ([1, 1], "work_timeout", 3)),
    ({"work_timeout": 6}, [(0, 5.9), (10, 10.05)], ([1, 1], None, 2)),
    ({"work_timeout": 6, "backoff": [20]}, [(0, 5.9)], ([20], None, 1)),
    ({"work_timeout": 6}, [(0, 6)], ([], "work_timeout", 1)),
    # stop, then attempts, then work, then time: the first of these reasons is reported
    ({"on": KeyError, "attempts": 1, "timeout": 1}, [(0, 9)], ([], "stopped", 1)),
    ({"attempts": 1, "timeout": 1}, [(0, 9)], ([], "attempts", 1)),
    ({"timeout": 9, "work_timeout": 9}, [(0, 9)], ([], "work_timeout", 1)),
    ({"give_up_after": 5, "work_timeout": 9}, [(0, 9)], ([], "work_timeout", 1)),
    ({"timeout": 9, "work_timeout": 10}, [(0, 9)], ([], "timeout", 1)),
    ({"timeout": 9, "work_timeout": 5}, [(0, 4), (5, 9)], ([1], "work_timeout", 2)),
    ({"timeout": 0, "work_timeout": 0}, [(0, 0)], ([], "work_timeout", 0)),
    # time never runs backwards
    ({"give_up_after": 6}, [(0, 3), (1, 1), (0, 0), (6, 6)], ([1, 1], "timeout", 3)),
    # a sleep that returns early gains no time
    ({"attempts": None, "give_up_after": 3}, [(0, 0)] * 9, ([1, 1], "timeout", 3)),
]


@pytest.mark.parametrize(("options", "attempts", "expected"), LIMITS)
def test_limits(
    options: dict[str, Any], attempts: list[tuple[float, float]], expected: tuple[list[float], str, int]
) -> None:
    assert play(run_of(**options), attempts) == expected


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"timeout": 0}, "total"),
        ({"give_up_after": 0}, "give_up_after"),
        ({"work_timeout": 0}, "work"),
        ({"timeout": 5, "give_up_after": 0}, "give_up_after"),
    ],
)
def test_no_time_for_a_first_attempt_raises_deadline_exceeded(options: dict[str, Any], limit: str) -> None:
    """The operation has raised no error yet."""
    refusal = run_of(**options).start(0)
    assert isinstance(refusal, errors.DeadlineExceeded)
    assert isinstance(refusal, TimeoutError)
    assert refusal.report is not None
    assert (refusal.report.attempts, refusal.report.limit, refusal.last) == (0, limit, None)


def test_no_time_after_a_delay_returns_the_last_error() -> None:
    """With ``wrap`` it is a `DeadlineExceeded` from that error."""
    error = Boom("e")
    for wrap in (False, True):
        run = run_of(give_up_after=6, wrap=wrap)
        run.start(0)
        run.failed(error, 0)
        refusal = run.start(7)
        assert refusal is error if not wrap else isinstance(refusal, errors.DeadlineExceeded)
        assert refusal is not None
        assert (refusal.__cause__ is error) is wrap
        reported = report(refusal)
        assert reported is not None
        assert (reported.reason, reported.limit, reported.attempts, reported.elapsed) == (
            "timeout",
            "give_up_after",
            1,
            7,
        )
        assert [record.delay for record in reported.history] == [1]


def test_no_time_after_a_rejected_result_returns_not_accepted() -> None:
    run = run_of(give_up_after=6, until=bool)
    run.start(0)
    assert run.returned(0, 0) == 1
    refusal = run.start(7)
    assert isinstance(refusal, errors.NotAccepted)
    assert (refusal.last, refusal.reason) == (0, "timeout")


@pytest.mark.parametrize("until", [None, str.isalpha])
def test_a_late_success_is_a_success(until: Any) -> None:
    run = run_of(timeout=1, work_timeout=1, until=until)
    run.start(0)
    assert run.returned("late", 99) is None
    assert run.ok
    assert (run.report().reason, run.report().elapsed, run.report().work_elapsed) == (None, 99, 99)


def test_an_attempt_counts_when_it_starts() -> None:
    """An attempt that may not start does not count, and one that never ended does."""
    run = run_of(give_up_after=6)
    assert (run.attempt, run.start(0), run.attempt) == (0, None, 1)
    run.failed(Boom(), 5.5)
    assert (run.start(6) is None, run.attempt) == (False, 1)


class Traced:
    """Records everything that a run calls and emits, in one list."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def rule(self, error: Exception) -> bool:
        self.log.append("verdict")
        return True

    def until(self, value: object) -> bool:
        self.log.append("accepted?")
        return value == "done"

    def record(self, event: Event) -> None:
        self.log.append(event.what)

    def __iter__(self) -> Iterator[float]:
        while True:
            self.log.append("delay")
            yield 1.0

    def policy(self, **options: Any) -> Retry:
        hooks: dict[str, Any] = dict.fromkeys(HOOKS, self.record)
        budget = Ledger(lines=self.log)
        return Retry(
            on=self.rule, until=self.until, backoff=self, budget=budget, **defaults(**hooks) | options
        )


FAILED = ["before_attempt", "verdict", "failed unknown", "failure"]
REFUSED = ["before_attempt", "accepted?", "failed unknown", "failure"]
RETRIED = ["delay", "spend unknown", "retry"]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (["done"], ["start", "before_attempt", "accepted?", "credit None", "success"]),
        (
            [Boom(), "done"],
            ["start", *FAILED, *RETRIED, "before_attempt", "accepted?", "credit 1", "success"],
        ),
        (["no", "no"], ["start", *REFUSED, *RETRIED, *REFUSED, "give_up"]),
        ([Boom(), Boom()], ["start", *FAILED, *RETRIED, *FAILED, "give_up"]),
    ],
)
def test_the_order_of_one_call(script: list[object], expected: list[str]) -> None:
    """After the last attempt no delay is drawn, but the rule is called and ``failure`` is emitted."""
    from redouble._drivers.calls import begin_run

    traced, clock = Traced(), Virtual()
    run = begin_run(Run, traced.policy(attempts=2, clock=clock), "work", aio=False, started=0.0)
    for ending in script:
        assert run.start(clock.time) is None
        if isinstance(ending, Exception):
            run.failed(ending, clock.time)
        else:
            run.returned(ending, clock.time)
        clock.time += 1
    assert traced.log == expected


def test_retries_without_delay_on_a_clock_that_stands_still_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stalls = 2 * MAX_RECORDS
    monkeypatch.setattr(_run, "MAX_STALLED", stalls)
    run = run_of(attempts=None, backoff=[0] * 10 + [1] + [0] * (2 * stalls))
    for _ in range(2 * stalls):
        run.start(0)
        if run.failed(Boom(), 0) is None:
            break
    assert (run.reason, run.attempt) == ("timeout", 11 + stalls + 2)
    assert len(run.report().history) == MAX_RECORDS + 1  # of a long call only the last records are kept
    assert run.report().history[-1].number == run.attempt


def test_an_error_whose_str_fails_has_a_placeholder() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    run = run_of(attempts=1)
    run.start(0)
    assert run.failed(Mute(), 0) is None
    assert run.report().history[0].error_text == "<no text: __str__ failed>"


def test_our_attempt_timeout_is_retried_if_no_rule_has_an_opinion() -> None:
    rows: list[tuple[Any, float | None]] = [
        (KeyError, 1),
        ([KeyError, always(None)], 1),
        (always(False), None),
    ]
    for on, delay in rows:
        run = run_of(on=on)
        run.start(0)
        assert run.failed(errors.AttemptTimeout("2 s"), 0) == delay


def test_the_same_draws_give_the_same_delays() -> None:
    run = run_of(backoff=[1, 2], random=Draws(0.25), on=always(Verdict.retry(kind=Kind.server)))
    assert play(run, [(0, 0), (1, 1)]) == ([1, 2], None, 2)
