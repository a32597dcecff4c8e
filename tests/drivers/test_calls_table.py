"""Calls as a table of scripts: each row runs in every colour and in every shape."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from redouble import Verdict, errors
from redouble.types import Event
from tests.support.drivers.scripted_calls import Drive
from tests.support.fakes import ASYNC, Boom, Call, Operation, Panic, Virtual, always, fail, ok

CRASHES = [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), Panic()]
GONE = LookupError("gone")
RETRIED = "before_attempt:1 failure:1 retry:1 before_attempt:2"


def takes(seconds: float, attempt: int) -> Any:
    """Return an observer that takes this many seconds, in one attempt."""

    def observer(event: Event, clock: Virtual) -> None:
        clock.time += seconds if event.attempt == attempt else 0

    return observer


def _is_none(value: object) -> bool:
    return value is None


def _broken(_: object) -> bool:
    return 1 / 0 > 0


def fails(event: Event, clock: Virtual) -> None:
    raise RuntimeError("this observer fails")


@pytest.mark.parametrize(
    ("script", "options", "expected"),
    [
        ([ok("done")], {}, Call("done", attempts=1, sleeps=[], events="before_attempt:1 success:1")),
        ([ok(None)], {}, Call(None, attempts=1)),
        (
            ["fail", "fail", ok("done")],
            {"backoff": [1, 2]},
            Call(
                "done",
                attempts=3,
                sleeps=[1, 2],
                events=f"{RETRIED} failure:2 retry:2 before_attempt:3 success:3",
            ),
        ),
        (
            ["fail"],
            {"attempts": 2},
            Call(
                raises=Boom,
                attempts=2,
                reason="attempts",
                events=f"{RETRIED} failure:2 give_up:2",
            ),
        ),
        (["fail"], {}, Call(raises=Boom, attempts=4, reason="attempts")),
        (["fail"], {"attempts": 1}, Call(raises=Boom, attempts=1, reason="attempts", sleeps=[])),
        (["fail"], {"attempts": None, "backoff": [1] * 99}, Call(raises=Boom, attempts=30, reason="timeout")),
        (["fail"], {"backoff": [2], "give_up_after": 1}, Call(raises=Boom, attempts=1, reason="timeout")),
        (["fail"], {"backoff": [3]}, Call(raises=Boom, attempts=2, sleeps=[3], reason="backoff_ended")),
        (["fail"], {"on": KeyError}, Call(raises=Boom, attempts=1, reason="stopped")),
        (["fail", KeyError()], {"on": Boom}, Call(raises=KeyError, attempts=2, reason="stopped")),
        # limits
        ([fail(takes=5)], {"timeout": 12}, Call(raises=Boom, attempts=3, reason="timeout", limit="total")),
        ([fail(takes=5)], {"give_up_after": 12}, Call(raises=Boom, attempts=3, reason="timeout")),
        (
            [fail(takes=5)],
            {"work_timeout": 10, "backoff": [9, 9]},
            Call(raises=Boom, attempts=2, sleeps=[9], reason="work_timeout", limit="work"),
        ),
        ([ok(1, takes=99)], {"timeout": 1, "work_timeout": 1}, Call(1)),
        (
            [ok(1)],
            {"give_up_after": 0},
            Call(
                raises=errors.DeadlineExceeded,
                attempts=0,
                reason="timeout",
                limit="give_up_after",
                events="give_up:0",
            ),
        ),
        ([ok(1)], {"timeout": 0}, Call(raises=errors.DeadlineExceeded, attempts=0, reason="timeout")),
        (
            [ok(1)],
            {"work_timeout": 0},
            Call(raises=errors.DeadlineExceeded, attempts=0, reason="work_timeout", limit="work"),
        ),
        # results
        ([ok(0), ok(0), ok(1)], {"until": bool}, Call(1, attempts=3)),
        ([ok(0)], {"until": bool}, Call(raises=errors.NotAccepted, attempts=4, reason="attempts")),
        ([ok(1)], {"until": always(Verdict.stop())}, Call(raises=errors.NotAccepted, reason="stopped")),
        ([ok(0), "fail", ok(1)], {"until": bool}, Call(1, attempts=3)),
        ([ok(None)], {"until": _is_none}, Call(None, attempts=1)),
        # an exception can be the success
        (
            [ok(0), ok(0), GONE],
            {"on": always(Verdict.accept()), "until": always(False)},
            Call(raises=LookupError, attempts=3),
        ),
        (
            ["fail", GONE],
            {"on": [Boom, always(Verdict.accept())], "wrap": True},
            Call(raises=LookupError, attempts=2, events=f"{RETRIED} success:2"),
        ),
        # wrap
        ([ok(1)], {"wrap": True}, Call(1, attempts=1)),
        (["fail"], {"wrap": True}, Call(raises=errors.AttemptsExhausted, attempts=4, reason="attempts")),
        (
            ["fail"],
            {"wrap": True, "on": KeyError},
            Call(raises=errors.Stopped, attempts=1, reason="stopped"),
        ),
        (["fail"], {"wrap": True, "backoff": [99]}, Call(raises=errors.DeadlineExceeded, reason="timeout")),
        ([ok(0)], {"wrap": True, "until": bool}, Call(raises=errors.NotAccepted, reason="attempts")),
        # hints
        (["fail", ok(1)], {"on": always(7)}, Call(1, sleeps=[7])),
        (["fail"], {"on": always(70)}, Call(raises=Boom, reason="timeout", sleeps=[])),
        # a BaseException is raised unchanged, in the first attempt and later, whatever `on` is
        *(
            ([crash], {}, Call(raises=type(crash), attempts=1, events="before_attempt:1"))
            for crash in CRASHES
        ),
        *((["fail", crash], {}, Call(raises=type(crash), attempts=2)) for crash in CRASHES),
        # a rule that raises
        (["fail"], {"on": _broken}, Call(raises=ZeroDivisionError, attempts=1, reason="stopped")),
        (["fail"], {"on": always("yes")}, Call(raises=TypeError, attempts=1, reason="stopped")),
        ([ok(1)], {"until": _broken}, Call(raises=ZeroDivisionError, attempts=1, reason="stopped")),
        # absurd delays
        (["fail", ok(1)], {"backoff": [1e300], "give_up_after": None}, Call(1, sleeps=[1e300])),
        (["fail", ok(1)], {"backoff": [sys.float_info.max], "give_up_after": None}, Call(1, attempts=2)),
        (
            ["fail"],
            {"backoff": [sys.float_info.max], "give_up_after": None},
            Call(raises=Boom, attempts=2, reason="backoff_ended"),
        ),
        (["fail"], {"backoff": [sys.float_info.max]}, Call(raises=Boom, attempts=1, reason="timeout")),
    ],
)
def test_one_call(drive: Drive, script: Any, options: dict[str, Any], expected: Call) -> None:
    """Check the attempts, the delays, and the value or error of one row."""
    assert expected == drive(script, **options)


@pytest.mark.parametrize(
    ("hook", "events", "attempts", "sleeps"),
    [
        ("before_attempt", f"{RETRIED} give_up:1", 1, [1]),
        ("on_failure", f"{RETRIED} failure:2 give_up:2", 2, [1]),
        ("on_retry", f"{RETRIED} failure:2 retry:2 give_up:2", 2, [1]),
    ],
)
@pytest.mark.parametrize("limit", ["timeout", "give_up_after"])
def test_the_time_of_observers_counts_for_limits(
    drive: Drive, limit: str, hook: str, events: str, attempts: int, sleeps: list[float]
) -> None:
    """A retry that was emitted does not begin if an observer has used up the time."""
    given = {limit: 30, hook: takes(99, attempt=2), "backoff": [1] * 9}
    expected = Call(raises=Boom, reason="timeout", attempts=attempts, sleeps=sleeps, events=events)
    assert expected == drive(["fail"], silent=False, **given)


@pytest.mark.parametrize(("seconds", "attempts"), [(28.5, 2), (29, 1), (29.5, 1)])
@pytest.mark.parametrize("hook", ["on_failure", "on_retry"])
def test_a_delay_must_still_fit_after_observers(
    drive: Drive, hook: str, seconds: float, attempts: int
) -> None:
    """A delay that ends exactly at the limit is too long."""
    call = drive(["fail"], silent=False, backoff=[1, 9], **{hook: takes(seconds, attempt=1)})
    assert Call(raises=Boom, reason="timeout", attempts=attempts, sleeps=[1] * (attempts - 1)) == call


def test_a_late_observer_of_success_changes_nothing(drive: Drive) -> None:
    assert Call(1, attempts=1) == drive([ok(1)], silent=False, timeout=5, on_success=takes(99, attempt=1))


def test_the_last_error_is_raised_with_its_traceback(drive: Drive) -> None:
    """It is the same object; the errors of earlier attempts lose their tracebacks."""
    lost, last = Boom("lost"), Boom("last")
    drive([lost, last], attempts=2)
    assert last.__traceback__ is not None
    frames = [last.__traceback__]
    while (following := frames[-1].tb_next) is not None:
        frames.append(following)
    assert frames[-1].tb_frame.f_code.co_qualname.startswith(f"{Operation.__name__}.")
    assert lost.__traceback__ is None
    assert last.__context__ is None
    assert last.__notes__ == ["redouble: gave up after 2 attempts in 0.0 s (attempts exhausted)"]


def test_a_rule_that_raises_keeps_the_failure_as_its_context(drive: Drive) -> None:
    def rule(error: Exception) -> bool:
        assert error is lost
        raise broken

    lost, broken = Boom("lost"), ValueError("a bug in the rule")
    assert Call(raises=ValueError, attempts=1, reason="stopped") == drive([lost], on=rule)
    assert broken.__context__ is lost


def test_an_attempt_that_would_begin_too_late_is_refused(drive: Drive) -> None:
    lost = Boom("lost")

    class Oversleeping(Virtual):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 100)

    for wrap, raises in ((False, Boom), (True, errors.DeadlineExceeded)):
        call = drive([lost], backoff=[1], clock=Oversleeping, wrap=wrap)
        assert Call(raises=raises, attempts=1, sleeps=[101], reason="timeout") == call


@pytest.mark.parametrize("last", [StopIteration(), StopAsyncIteration()])
def test_deadline_exceeded_replaces_an_error_that_ends_loops(drive: Drive, last: Exception) -> None:
    """Python lets no such error leave a generator or a coroutine, so that ours is raised from it."""

    class Oversleeping(Virtual):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds + 100)

    if not (isinstance(last, StopIteration) and drive.colour in ASYNC):  # there Python raises a RuntimeError
        call = drive([last], backoff=[1], clock=Oversleeping)
        assert Call(raises=errors.DeadlineExceeded, attempts=1, reason="timeout") == call


def test_a_failing_observer_changes_nothing(drive: Drive, caplog: pytest.LogCaptureFixture) -> None:
    hooks = ("before_attempt", "on_success", "on_failure", "on_retry", "on_give_up")
    call = drive(["fail", "fail", ok(1)], silent=False, **dict.fromkeys(hooks, fails))
    assert Call(1, attempts=3) == call
