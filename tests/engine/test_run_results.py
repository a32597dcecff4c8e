"""Outcomes, tracebacks, and no reference cycles after a call."""

from __future__ import annotations

import gc
import pickle
import traceback
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from redouble import Outcome, Reason, Retry, RetryBudget, Verdict, errors, report
from redouble._clients.client_call import PreviousHop
from redouble._engine.report import STAMP, ResendGuard
from redouble.types import Ended
from tests.support.call_shapes import SHAPES
from tests.support.fakes import Operation, Virtual, fail, in_colour
from tests.support.runs import run_of


class Plain(Exception):
    itself: Exception


def test_an_outcome_has_the_value_or_the_error() -> None:
    policy = Retry(on=Plain, attempts=2, backoff=[0], clock=Virtual())
    good = policy.run(lambda: None)
    assert good == Outcome(True, None, None, good.report)
    assert (good.report.reason, good.report.attempts, good.report.history[0].kind) == (None, 1, None)
    assert good.unwrap() is None
    error = Plain("x")

    def operation() -> None:
        raise error

    bad = policy.run(operation)
    assert (bad.ok, bad.value, bad.error) == (False, None, error)
    assert bad.report == report(error)
    with pytest.raises(Plain) as caught:
        bad.unwrap()
    assert caught.value is error


def test_the_repr_of_ended_leaves_out_the_value() -> None:
    ended = Ended(2, None, "secret", 1.5)
    assert repr(ended) == "Ended(attempt=2, error=None, elapsed=1.5)"


def test_until_must_not_return_an_awaitable(colour: str) -> None:
    """A plain function may return a coroutine, which would count as true."""

    async def later() -> bool:
        return True

    made: list[Any] = []

    def until(_: object) -> object:
        made.append(later())
        return made[-1]

    async def aoperation() -> int:
        return 1

    policy = Retry(until=until)
    with pytest.raises(TypeError, match=r"until=.* answered <coroutine .* rules are plain functions"):
        in_colour(colour, lambda: policy.call(lambda: 1), lambda: policy.call(aoperation))
    for coroutine in made:
        coroutine.close()


def test_the_error_of_a_rule_is_an_outcome(colour: str) -> None:
    answers = iter([True])

    def rule(error: Exception) -> bool:
        if not next(answers, False):
            raise ZeroDivisionError
        return True

    def operation() -> None:
        raise Plain("x")

    async def aoperation() -> None:
        operation()

    policy = Retry(on=rule, backoff=[0, 0])
    outcome = in_colour(colour, lambda: policy.run(operation), lambda: policy.run(aoperation))
    assert (outcome.ok, type(outcome.error)) == (False, ZeroDivisionError)
    assert isinstance(outcome.error.__context__, Plain)
    assert (outcome.report.reason, outcome.report.attempts) == ("stopped", 2)
    assert outcome.report.history[0].number == 1


@pytest.mark.parametrize("attempts", [1, 2, 50])
def test_the_traceback_has_the_frames_of_the_last_attempt_only(attempts: int) -> None:
    """The same instance is raised by every attempt."""
    error = Plain()

    @Retry(on=Plain, attempts=attempts, backoff=[0] * 50)
    def fetch() -> object:
        return deeper()

    def deeper() -> object:
        raise error

    with pytest.raises(Plain) as caught:
        fetch()
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["fetch", "deeper"]
    assert (frames.count("fetch"), frames.count("deeper")) == (1, 1)
    assert len(frames) <= 5


@contextmanager
def nothing_left_over() -> Generator[None]:
    """Check that no object of ours is left for the garbage collector."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        ours = [thing for thing in gc.garbage if type(thing).__module__.startswith(("redouble", __name__))]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert ours == []


def test_nothing_left_over_detects_a_cycle() -> None:
    with pytest.raises(AssertionError), nothing_left_over():
        error = Plain()
        error.itself = error
        del error


class Sleepy(Virtual):
    """A clock that sleeps too long, so that no time is left afterwards."""

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds * 2)


CALLS: dict[str, dict[str, Any]] = {
    "decorator": {},
    "call": {},
    "run": {},
    "wrap": {"wrap": True},
    "late": {"timeout": 5, "backoff": [4, 4]},
    "overslept": {"timeout": 5, "backoff": [4, 4], "clock": Sleepy()},
    "overslept wrap": {"timeout": 5, "backoff": [4, 4], "clock": Sleepy(), "wrap": True},
    "refused": {"until": bool},
}


@pytest.mark.parametrize("shape", CALLS)
def test_no_cycles_after_a_call_is_given_up(shape: str, colour: str) -> None:
    """Neither the frames nor the error, its report and its run form a cycle."""
    given: dict[str, Any] = {
        "on": Plain,
        "attempts": 3,
        "backoff": [0, 0],
        "clock": Virtual(),
        **CALLS[shape],
    }
    policy = Retry(**given)

    def operation() -> None:
        if shape != "refused":
            raise Plain

    async def aoperation() -> None:
        operation()

    def blocking() -> None:
        with nothing_left_over(), suppress(Plain, errors.RetryError):
            if shape == "run":
                policy.run(operation)
            elif shape == "call":
                policy.call(operation)
            else:
                policy(operation)()

    async def waiting() -> None:
        with nothing_left_over(), suppress(Plain, errors.RetryError):
            if shape == "run":
                await policy.run(aoperation)
            elif shape == "call":
                await policy.call(aoperation)
            else:
                await policy(aoperation)()

    in_colour(colour, blocking, waiting)


def test_a_report_keeps_no_reference_to_the_errors() -> None:
    """Its records hold the types and texts of errors, since an error may hold a connection."""
    seen: list[weakref.ref[Plain]] = []

    def made() -> Plain:
        error = Plain("x")
        seen.append(weakref.ref(error))
        return error

    def operation() -> None:
        raise made()

    outcome = Retry(on=Plain, attempts=3, backoff=[0, 0]).run(operation)
    assert [error() is None for error in seen] == [True, True, False]
    kept = outcome.report
    del outcome
    assert [error() is None for error in seen] == [True, True, True]
    assert [entry.error_text for entry in kept.history] == ["x", "x", "x"]


@pytest.mark.parametrize("accepted", [False, True])
def test_unwrapping_leaves_no_cycle(accepted: bool) -> None:
    """Neither through the outcome, nor through the frame that raised its error."""
    policy = Retry(on=lambda _: Verdict.accept() if accepted else False)

    def operation() -> None:
        raise Plain

    with nothing_left_over(), suppress(Plain):
        policy.run(operation).unwrap()
    with nothing_left_over(), suppress(Plain):
        outcome = policy.run(operation)
        assert outcome.ok == accepted
        with suppress(Plain):
            outcome.unwrap()
        outcome.unwrap()


@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_accepted_error_is_not_wrapped(shape: str, failures: int) -> None:
    """It counts as a success, in whichever attempt it was raised."""
    answers: list[bool | Verdict] = [*[True] * failures, Verdict.accept()]
    policy = Retry(on=lambda _: answers.pop(0), backoff=[1], wrap=True, clock=Virtual())

    def operation() -> None:
        raise Plain

    with pytest.raises(Plain) as caught:
        SHAPES[shape](policy, operation)
    assert report(caught.value) is None


@pytest.mark.parametrize("takes", [0.0, 0.04, 0.06, 2.0])
@pytest.mark.parametrize(("attempts", "counted"), [(1, "1 attempt"), (2, "2 attempts"), (7, "7 attempts")])
def test_the_note_counts_the_attempts_of_fast_and_slow_failures(
    attempts: int, counted: str, takes: float
) -> None:
    clock = Virtual()

    @Retry(on=Plain, attempts=attempts, backoff=[0] * 9, clock=clock)
    def fetch() -> None:
        clock.time += takes / attempts
        raise Plain

    with pytest.raises(Plain) as caught:
        fetch()
    assert caught.value.__notes__ == [
        f"redouble: gave up after {counted} in {takes:.1f} s (attempts exhausted)"
    ]


def test_an_operation_that_goes_on_after_a_failure_has_no_result_that_was_refused() -> None:
    """A redirected request goes on with its attempts: if no time is left then, nothing was returned."""
    run = run_of(timeout=1, backoff=[0.2], until="ok".__eq__)
    assert run.start(0.0) is None
    assert run.failed(Plain("x"), 0.1) == 0.2
    assert run.start(0.3) is None
    assert run.returned("ok", 0.4) is None
    run.repeat()
    run.last = None
    assert isinstance(run.start(1.5), errors.DeadlineExceeded)


def test_an_operation_that_goes_on_keeps_no_grant_that_was_credited() -> None:
    run = run_of(budget=RetryBudget())
    assert run.start(0.0) is None
    assert run.failed(Plain("x"), 0.1) == 1
    assert run.start(1.2) is None
    assert run.returned("moved", 1.3) is None
    run.repeat()
    assert run.spent_grant is None


class BrokenBackoff:
    def __iter__(self) -> Iterator[float]:
        raise KeyError("no delays")
        yield 0.0


def test_a_backoff_that_raises_means_stopped() -> None:
    clock = Virtual()
    ended = Retry(on=Exception, backoff=BrokenBackoff(), clock=clock).run(Operation([fail()], clock))
    assert isinstance(ended.error, KeyError)
    assert ended.report.reason == "stopped"


class Closed(ResendGuard):
    """The guard of a client that has been closed."""

    def veto(self, verdict: Verdict, /) -> Reason | None:
        return Reason.not_replayable


def test_the_guard_of_a_client_decides_about_a_run_without_one() -> None:
    """A `Retry` inside a layer of the user's, in the policy of a client, makes such runs."""
    run, error = run_of(), Plain("x")
    assert run.start(0.0) is None
    vars(error)[STAMP] = Closed()
    assert run.failed(error, 0.1) is None
    assert run.reason == "not_replayable"


def test_a_response_that_is_pickled_keeps_nothing_of_its_redirect() -> None:
    hop = PreviousHop(None, lambda: 0.0, 0.0, None, lambda: None, lambda: None)
    assert pickle.loads(pickle.dumps(hop)) is None
