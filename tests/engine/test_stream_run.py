"""`StreamRun` alone: its methods receive what happened and when; no clock, no source, no colour."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Retry, TokenBucket, Verdict, errors, report
from redouble._drivers.calls import begin_run
from redouble._engine.stream_run import StreamRun
from redouble.types import Event
from tests.support.fakes import Boom, Ledger, Virtual, always
from tests.support.streams import HOOKS


class Engine:
    """A run of a stream and everything that it emits."""

    def __init__(self, **options: Any) -> None:
        self.ledger = Ledger()
        self.emitted: list[str] = []
        self.events: list[Event] = []
        hooks: dict[str, Any] = dict.fromkeys(HOOKS, self.record)
        given: dict[str, Any] = {"on": Boom, "backoff": [1, 2], "give_up_after": 10}
        self.clock = Virtual()
        policy = Retry(**given | hooks | options, budget=self.ledger, clock=self.clock)
        self.run = begin_run(StreamRun, policy, "stream", aio=False)

    def record(self, event: Event) -> None:
        self.emitted.append(event.what)
        self.events.append(event)

    def commit(self, now: float = 0.0) -> None:
        """Proceed to the first item."""
        assert self.run.start(now) is None
        assert self.run.returned("item", now) is None
        assert self.run.ok
        self.run.committed = True


def test_the_first_item_is_credited() -> None:
    """Nothing is emitted, since the stream may still break."""
    engine = Engine()
    engine.commit(3)
    assert engine.ledger.lines == ["start", "credit None"]
    assert engine.ledger.times == [0, 3]
    assert engine.emitted == ["before_attempt"]
    assert engine.run.now == 3


def test_the_end_is_emitted() -> None:
    """It is not credited again."""
    engine = Engine()
    engine.commit()
    engine.run.ended(5)
    assert engine.ledger.lines == ["start", "credit None"]
    assert engine.emitted == ["before_attempt", "success"]
    assert (engine.events[1].attempt, engine.events[1].elapsed, engine.events[1].value) == (1, 5, None)
    assert engine.run.report().reason is None


def test_an_error_before_the_first_item_is_retried() -> None:
    engine = Engine()
    assert engine.run.start(0) is None
    assert engine.run.failed(Boom(), 1) == 1
    assert engine.run.start(2) is None
    assert engine.run.failed(Boom(), 2) == 2
    assert engine.emitted == ["before_attempt", "failure", "retry"] * 2
    assert "spend unknown" in engine.ledger.lines


@pytest.mark.parametrize("error", [Boom("late"), KeyError("late")])
@pytest.mark.parametrize("attempts", [1, 4, None])
def test_an_error_after_the_first_item_is_given_up(error: Exception, attempts: int | None) -> None:
    """Whatever `on` is: no delay is drawn, nothing is spent, and no limit is checked."""
    engine = Engine(attempts=attempts)
    engine.commit()
    assert engine.run.failed(error, 99) is None
    assert not engine.run.ok
    assert engine.ledger.lines == ["start", "credit None", "failed unknown"]
    assert engine.emitted == ["before_attempt", "failure", "give_up"]
    assert [event.reason for event in engine.events] == [None, None, "committed"]
    assert engine.run.delays is None
    reported = report(error)
    assert reported is not None
    assert (reported.reason, reported.attempts, reported.elapsed, reported.limit) == (
        "committed",
        1,
        99,
        None,
    )
    assert [record.error_text for record in reported.history] == [str(error)]
    notes = ["redouble: gave up after 1 attempt in 99.0 s (items had been handed out)"]
    assert getattr(error, "__notes__", None) == notes


def test_an_error_after_the_first_item_of_a_later_attempt() -> None:
    engine = Engine()
    assert engine.run.start(0) is None
    assert engine.run.failed(Boom("first"), 0) == 1
    engine.commit(1)
    late = Boom("late")
    assert engine.run.failed(late, 2) is None
    reported = report(late)
    assert reported is not None
    assert [(record.number, record.error_text, record.delay) for record in reported.history] == [
        (1, "first", 1),
        (2, "late", None),
    ]
    assert engine.ledger.lines[-2:] == ["credit 1", "failed unknown"]


def test_an_accepted_error_after_the_first_item_is_a_success() -> None:
    """It is emitted as a success, and not credited again."""
    engine = Engine(on=always(Verdict.accept()))
    engine.commit()
    late = Boom("late")
    assert engine.run.failed(late, 1) is None
    assert engine.run.ok
    assert engine.ledger.lines == ["start", "credit None"]
    assert engine.emitted == ["before_attempt", "success"]
    assert engine.events[1].error is late
    assert report(late) is None


def test_an_accepted_error_before_the_first_item_is_a_success() -> None:
    engine = Engine(on=always(Verdict.accept()))
    assert engine.run.start(0) is None
    assert engine.run.failed(Boom(), 1) is None
    assert engine.run.ok
    assert engine.ledger.lines == ["start", "credit None"]
    assert engine.emitted == ["before_attempt", "success"]


def test_a_rule_that_raises_on_a_late_error() -> None:
    """Its error is raised, and both errors have the report."""
    broken, late = ZeroDivisionError(), Boom("late")

    def rule(error: Exception) -> bool:
        raise broken

    engine = Engine(on=rule)
    engine.commit()
    with pytest.raises(ZeroDivisionError) as caught:
        engine.run.failed(late, 1)
    assert caught.value is broken
    for error in (broken, late):
        reported = report(error)
        assert reported is not None
        assert reported.reason == "stopped"


@pytest.mark.parametrize("now", [float("nan"), float("inf"), -1.0])
def test_invalid_times_are_ignored(now: float) -> None:
    """Times that go back, NaN and infinity."""
    engine = Engine()
    assert engine.run.start(5) is None
    assert engine.run.returned("item", now) is None
    engine.run.committed = True
    assert engine.run.now == 5
    engine.run.ended(now)
    assert engine.run.now == 5
    assert engine.ledger.times == [0, 5]


def test_a_stream_run_works_without_observers_and_budget() -> None:
    policy = Retry(on=Boom)
    for late in (None, Boom(), KeyError()):
        run = begin_run(StreamRun, policy, "stream", aio=False)
        assert run.start(0) is None
        assert run.returned(1, 0) is None
        run.committed = True
        if late is None:
            run.ended(0)
        else:
            assert run.failed(late, 0) is None
        assert run.ok is (late is None)
    accepting = begin_run(StreamRun, Retry(on=always(Verdict.accept())), "stream", aio=False)
    assert accepting.start(0) is None
    accepting.committed = True
    assert accepting.failed(Boom(), 0) is None
    assert accepting.ok


@pytest.mark.parametrize(("error", "left"), [(Boom(), 9), (KeyError(), 10)])
def test_a_late_error_counts_for_the_budget_as_any_other(error: Exception, left: int) -> None:
    """`TokenBucket.grpc` ignores errors that no rule would retry: they are no signs of overload."""
    budget = TokenBucket.grpc(tokens=10)
    run = begin_run(StreamRun, Retry(on=Boom, budget=budget), "stream", aio=False)
    assert run.start(0) is None
    assert run.returned(1, 0) is None
    run.committed = True
    assert run.failed(error, 0) is None
    assert budget.snapshot()["tokens"] == left


def test_wrap_raises_stopped_for_a_late_error() -> None:
    from redouble._engine.run_results import error_of

    engine = Engine(wrap=True)
    engine.commit()
    late = Boom("late")
    engine.run.failed(late, 1)
    error = error_of(engine.run, late)
    assert type(error) is errors.Stopped
    assert (error.reason, error.last) == ("committed", late)
    assert str(error) == "gave up after 1 attempt in 1.0 s (items had been handed out): ScriptedError: late"


@given(
    fails=st.integers(0, 2),
    end=st.sampled_from(["end", "retried", "stopped", "accepted"]),
    times=st.lists(st.floats(0, 100), min_size=8, max_size=8).map(sorted),
)
def test_every_stream_is_credited_once_and_emits_one_end(fails: int, end: str, times: list[float]) -> None:
    """Its reason is ``committed`` if and only if it failed after the first item."""
    verdicts = {"accepted": Verdict.accept(), "stopped": Verdict.stop()}

    def rule(error: Exception) -> Any:
        return verdicts.get(str(error), True)

    engine = Engine(on=rule, backoff=[0, 0], give_up_after=None)
    clock = iter(times)
    for _ in range(fails):
        assert engine.run.start(next(clock)) is None
        assert engine.run.failed(Boom(), next(clock)) == 0
    engine.commit(next(clock))
    last = next(clock)
    if end == "end":
        engine.run.ended(last)
    else:
        assert engine.run.failed(Boom(end), last) is None
    lines = engine.ledger.lines
    assert sum(line.startswith("credit") for line in lines) == 1
    assert sum(line.startswith("spend") for line in lines) == fails
    assert not any(line.startswith("refund") for line in lines)
    assert engine.ledger.times == sorted(engine.ledger.times)
    failed = end in ("retried", "stopped")
    assert engine.emitted[-2:] == (["failure", "give_up"] if failed else [engine.emitted[-2], "success"])
    assert engine.run.reason == ("committed" if failed else None)
