"""Limits of async attempts, in every shape: when the call ends, and with which result or error."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest
import trio

from redouble import Kind, Retry, deadline, errors
from redouble._runtime.backend import backend
from redouble.testing import VirtualClock
from tests.support.call_shapes import AsyncShape, AsyncWork
from tests.support.drivers.limited_calls import (
    COLOURS,
    LIMIT_NAMES,
    LONG,
    SHAPES,
    LimitedCall,
    call_in_virtual_time,
    policy_of,
    working,
)
from tests.support.fakes import Boom, always
from tests.support.fakes import options as defaults
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = pytest.mark.usefixtures(no_real_waits.__name__)


# ------------------------------------------------------------------------------ timeout


@COLOURS
@SHAPES
@pytest.mark.parametrize("observed", [True, False])
def test_the_timeout_cancels_the_first_attempt(colour: str, shape: AsyncShape, observed: bool) -> None:
    call = call_in_virtual_time(colour, shape, working((LONG, "never")), observed=observed, timeout=2)
    error = call.error
    assert type(error) is errors.DeadlineExceeded
    assert call.took == 2
    assert (error.last, error.__cause__, error.reason) == (None, None, "timeout")
    assert (call.report.attempts, call.report.elapsed, call.report.limit) == (1, 2, "total")
    assert call.event_texts == (["failure 1 total", "give_up 1 total"] if observed else [])


@COLOURS
@SHAPES
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("wrap", [False, True])
def test_the_timeout_cancels_a_later_attempt(
    colour: str, shape: AsyncShape, observed: bool, wrap: bool
) -> None:
    """The error is raised from the last failure, with the whole report."""
    boom = Boom("refused")
    work = working((0.5, OSError()), (0.5, boom), (LONG, "never"))
    call = call_in_virtual_time(colour, shape, work, observed=observed, wrap=wrap, timeout=4)
    error = call.error
    assert type(error) is errors.DeadlineExceeded
    assert call.took == 4
    assert error.last is error.__cause__ is boom
    assert "ScriptedError: refused" in str(error)
    history = [(one.error_type, one.started, one.elapsed, one.delay) for one in call.report.history]
    assert history == [
        ("OSError", 0, 0.5, 1),
        (f"{Boom.__module__}.{Boom.__qualname__}", 1.5, 0.5, 1),
        ("redouble.errors.AttemptTimeout", 3, 1, None),
    ]
    assert call.report.history[-1].kind is Kind.timeout
    assert error.report == call.report


@COLOURS
@SHAPES
def test_no_delay_begins_that_could_not_end_in_time(colour: str, shape: AsyncShape) -> None:
    """The call ends at once instead."""
    boom = Boom()
    call = call_in_virtual_time(colour, shape, working((0.4, boom)), timeout=1, backoff=[2] * 9)
    assert (call.error, call.took) == (boom, 0.4)
    assert (call.report.reason, call.report.limit) == ("timeout", "total")


@COLOURS
@SHAPES
def test_nothing_is_cancelled_after_success(colour: str, shape: AsyncShape) -> None:
    async def patient(policy: Retry, work: AsyncWork) -> object:
        value = await shape(policy, work)
        await backend().sleep(LONG)
        return value

    call = call_in_virtual_time(
        colour, patient, working((0.5, Boom()), (0.25, "done")), timeout=2, attempt_timeout=0.75
    )
    assert (call.value, call.error, call.took) == ("done", None, 1.75 + LONG)


@SHAPES
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_no_attempt_begins_if_an_observer_used_up_the_time(colour: str, shape: AsyncShape) -> None:
    calls: list[None] = []

    async def work() -> None:
        calls.append(None)

    async def waiting(clock: VirtualClock) -> None:
        def slow(_: object) -> None:
            clock.advance(3)

        with pytest.raises(errors.DeadlineExceeded) as caught:
            await shape(Retry(timeout=2, before_attempt=slow), work)
        assert caught.value.report is not None
        assert (caught.value.report.attempts, caught.value.report.limit) == (0, "total")

    in_virtual_time(colour, waiting)
    assert calls == []


# ---------------------------------------------------------------------- the other limits


@COLOURS
@SHAPES
@pytest.mark.parametrize("on", [KeyError, TimeoutError, errors.AttemptTimeout, always(None)])
def test_an_attempt_that_is_too_slow_is_a_failure(colour: str, shape: AsyncShape, on: Any) -> None:
    call = call_in_virtual_time(
        colour, shape, working((LONG, "never"), (0.5, "done")), attempt_timeout=2, on=on
    )
    assert (call.value, call.took) == ("done", 3.5)
    assert call.event_texts == ["failure 1 attempt", "retry 1 attempt", "success 2"]
    failure = call.events[0]
    assert (failure.kind, failure.elapsed, failure.reason) == ("timeout", 2, None)
    assert isinstance(failure.error, errors.AttemptTimeout)
    assert (failure.error.limit, failure.error.seconds) == ("attempt", 2)


@COLOURS
@SHAPES
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("wrap", [False, True])
def test_a_call_whose_attempts_are_all_too_slow_is_given_up(
    colour: str, shape: AsyncShape, observed: bool, wrap: bool
) -> None:
    work, limits = working((LONG, "never")), defaults(attempts=2, attempt_timeout=2)
    call = call_in_virtual_time(colour, shape, work, observed=observed, wrap=wrap, **limits)
    assert type(call.error) is (errors.AttemptsExhausted if wrap else errors.AttemptTimeout)
    assert call.took == 5
    assert isinstance(call.error.__cause__, errors.AttemptTimeout) is wrap
    assert (call.report.reason, call.report.limit, call.report.attempts) == ("attempts", "attempt", 2)


@COLOURS
@SHAPES
def test_a_rule_may_stop_at_a_slow_attempt(colour: str, shape: AsyncShape) -> None:
    call = call_in_virtual_time(colour, shape, working((LONG, "never")), attempt_timeout=2, on=always(False))
    assert type(call.error) is errors.AttemptTimeout
    assert (call.took, call.report.reason, call.report.limit) == (2, "stopped", "attempt")


@COLOURS
@SHAPES
def test_the_work_timeout_does_not_count_delays(colour: str, shape: AsyncShape) -> None:
    boom = Boom()
    call = call_in_virtual_time(
        colour, shape, working((0.5, boom), (LONG, "never")), work_timeout=2, backoff=[60] * 9
    )
    error = call.error
    assert type(error) is errors.DeadlineExceeded
    assert call.took == 0.5 + 60 + 1.5
    assert (error.reason, error.last, call.report.limit) == ("work_timeout", boom, "work")
    assert (call.report.work_elapsed, call.report.elapsed) == (2, 62)


@COLOURS
@SHAPES
def test_a_deadline_is_a_limit_of_the_call(colour: str, shape: AsyncShape) -> None:
    async def under(policy: Retry, work: AsyncWork) -> object:
        with deadline(3):
            return await shape(policy, work)

    call = call_in_virtual_time(
        colour, under, working((0.5, Boom()), (LONG, "never")), timeout=4, attempt_timeout=2
    )
    assert type(call.error) is errors.DeadlineExceeded
    assert (call.took, call.report.reason, call.report.limit) == (3, "timeout", "deadline")


@COLOURS
@SHAPES
@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("other", ["timeout", "work_timeout"])
def test_on_a_tie_the_attempt_timeout_is_reported(
    colour: str, shape: AsyncShape, observed: bool, other: str
) -> None:
    """Its error is raised, because no time is left for another attempt."""
    limits: dict[str, Any] = {"attempt_timeout": 2, other: 2}
    call = call_in_virtual_time(colour, shape, working((LONG, "never")), observed=observed, **limits)
    assert type(call.error) is errors.AttemptTimeout
    assert (call.took, call.report.reason, call.report.limit) == (2, other, "attempt")


# ------------------------------------------------------------- timeouts of the operation


@COLOURS
@SHAPES
@pytest.mark.parametrize("limit", ["timeout", "attempt_timeout", "work_timeout"])
def test_a_timeout_error_of_the_operation_is_no_limit(colour: str, shape: AsyncShape, limit: str) -> None:
    """It is retried like any error, and raised unchanged."""
    own = TimeoutError("the server took too long")
    given: dict[str, Any] = {"attempts": 2, limit: 9}
    call = call_in_virtual_time(colour, shape, working((0.5, own)), **given)
    assert (call.error, call.took) == (own, 2)
    assert (call.report.reason, call.report.limit) == ("attempts", None)
    assert call.event_texts == ["failure 1", "retry 1", "failure 2", "give_up 2"]


@COLOURS
@SHAPES
def test_the_shorter_of_two_nested_limits_applies(colour: str, shape: AsyncShape) -> None:
    """Their errors are distinguished: only one of them is ours."""

    async def impatient() -> None:
        if colour == "asyncio":
            async with asyncio.timeout(1):
                await asyncio.sleep(LONG)
        else:
            with trio.fail_after(1):
                await trio.sleep(LONG)

    call = call_in_virtual_time(colour, shape, impatient, attempts=2, attempt_timeout=2, timeout=3.5)
    assert isinstance(call.error, TimeoutError | trio.TooSlowError)
    assert not isinstance(call.error, errors.RedoubleError)
    assert (call.took, call.report.reason, call.report.limit) == (3, "attempts", None)
    call = call_in_virtual_time(colour, shape, impatient, attempts=2, attempt_timeout=0.5)
    assert type(call.error) is errors.AttemptTimeout
    assert call.took == 2


@COLOURS
@SHAPES
@pytest.mark.parametrize("limit", ["timeout", "attempt_timeout", "work_timeout"])
def test_nested_equal_limits_report_the_outer_one_only(colour: str, shape: AsyncShape, limit: str) -> None:
    inner = LimitedCall()
    same: dict[str, Any] = {limit: 2}

    async def work() -> object:
        return await shape(policy_of(inner, observed=True, **same), working((LONG, "never")))

    call = call_in_virtual_time(colour, shape, work, attempts=1, **same)
    assert (call.took, call.report.limit) == (2, LIMIT_NAMES[limit])
    assert inner.event_texts == []
    assert call.event_texts == [f"failure 1 {LIMIT_NAMES[limit]}", f"give_up 1 {LIMIT_NAMES[limit]}"]


@COLOURS
@SHAPES
@pytest.mark.parametrize("limits", [{"timeout": 2}, {"attempt_timeout": 2}], ids=["total", "own"])
def test_nothing_keeps_an_error_alive(colour: str, shape: AsyncShape, limits: dict[str, Any]) -> None:
    """The error and the frames of its traceback form no cycle, so that no garbage collection is needed."""

    async def dropped(policy: Retry, work: AsyncWork) -> object:
        try:
            return await shape(policy, work)
        except TimeoutError as error:
            return weakref.ref(error)

    gc.disable()
    try:
        error: Any = call_in_virtual_time(
            colour, dropped, working((LONG, "never")), observed=False, attempts=2, **limits
        ).value
        assert error() is None
    finally:
        gc.enable()
