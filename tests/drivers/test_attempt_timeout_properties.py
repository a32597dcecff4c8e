"""For any attempts and any limits, calls end as a model predicts, on asyncio and on Trio."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redouble import Report, Retry, deadline, report
from redouble.testing import VirtualClock
from tests.support.call_shapes import EVERY_ASYNC_SHAPE, AsyncShape, AsyncWork
from tests.support.drivers.limited_calls import working
from tests.support.fakes import Boom
from tests.support.virtual_time import in_virtual_time, no_real_waits

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures(no_real_waits.__name__)]

# Limits and delays are whole seconds, and attempts take a little more than that: so no attempt ends at the
# very moment of a limit, where either may win.
LITTLE = 1 / 64
SECONDS = st.integers(0, 12)
LIMIT = st.none() | st.integers(1, 20)


@dataclass
class Plan:
    """One call: how long each attempt takes and whether it fails, and the policy."""

    steps: list[tuple[float, bool]]
    delays: list[int]
    attempts: int
    timeout: int | None
    attempt_timeout: int | None
    work_timeout: int | None
    deadline: int | None
    shape: str

    def policy(self) -> Retry:
        return Retry(
            on=Exception,
            backoff=self.delays,
            attempts=self.attempts,
            give_up_after=None,
            timeout=self.timeout,
            attempt_timeout=self.attempt_timeout,
            work_timeout=self.work_timeout,
        )

    def work(self) -> AsyncWork:
        return working(*((takes, Boom() if fails else "done") for takes, fails in self.steps))

    def around(self, shape: AsyncShape) -> AsyncShape:
        async def under(policy: Retry, work: AsyncWork) -> object:
            if self.deadline is None:
                return await shape(policy, work)
            with deadline(self.deadline):
                return await shape(policy, work)

        return under


PLANS = st.builds(
    Plan,
    steps=st.lists(st.tuples(SECONDS.map(LITTLE.__add__), st.booleans()), min_size=1, max_size=6),
    delays=st.lists(SECONDS, max_size=6),
    attempts=st.integers(1, 6),
    timeout=LIMIT,
    attempt_timeout=LIMIT,
    work_timeout=LIMIT,
    deadline=LIMIT,
    shape=st.sampled_from(list(EVERY_ASYNC_SHAPE)),
)


class End(NamedTuple):
    """How a call ended, and when."""

    out: str
    took: float
    reason: str | None = None
    limit: str | None = None
    attempts: int | None = None


def predicted(plan: Plan) -> End:
    """Compute from the documented rules how the call has to end."""
    total, own, most, ambient = (
        inf if limit is None else limit
        for limit in (plan.timeout, plan.attempt_timeout, plan.work_timeout, plan.deadline)
    )
    now = work = 0.0
    until = min(total, ambient)
    for number in range(plan.attempts):
        takes, fails = plan.steps[min(number, len(plan.steps) - 1)]
        times_left = {"attempt": own, "work": most - work, "total": total - now, "deadline": ambient - now}
        limit = min(times_left, key=times_left.__getitem__)
        took = min(takes, times_left[limit])
        now, work = now + took, work + took
        cut = took < takes
        if not (cut or fails):
            return End("done", now)
        if cut and limit != "attempt":
            reason = "work_timeout" if limit == "work" else "timeout"
            return End("DeadlineExceeded", now, reason, limit, number + 1)
        end = partial(End, "AttemptTimeout" if cut else "ScriptedError", now, attempts=number + 1)
        tied = cut and list(times_left.values()).count(own) > 1
        over = "total" if total <= ambient else "deadline"
        delay = plan.delays[number] if number < len(plan.delays) else None
        if number + 1 == plan.attempts:
            return end("attempts", "attempt" if cut else None)
        if work >= most:
            return end("work_timeout", "attempt" if tied else "work")
        if now >= until:
            return end("timeout", "attempt" if tied else over)
        if delay is None:
            return end("backoff_ended", "attempt" if cut else None)
        if now + delay >= until:
            return end("timeout", over)
        now += delay
    raise AssertionError


async def observed(plan: Plan, clock: VirtualClock) -> tuple[End, Report | None]:
    """Make the call; return how it ended, and its report if it failed."""
    began = clock.now()
    try:
        out = str(await plan.around(EVERY_ASYNC_SHAPE[plan.shape])(plan.policy(), plan.work()))
    except Exception as error:
        reported = report(error)
        assert reported is not None
        took = clock.now() - began
        return End(type(error).__name__, took, reported.reason, reported.limit, reported.attempts), reported
    return End(out, clock.now() - began), None


@given(plan=PLANS)
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_every_call_ends_as_predicted(colour: str, plan: Plan) -> None:
    """It ends no later than any of its limits allows."""
    end, reported = in_virtual_time(colour, partial(observed, plan))
    assert end == predicted(plan)
    for limit in (plan.timeout, plan.deadline):
        assert limit is None or end.took <= limit
    if reported is not None:
        check_limits(plan, reported)


def check_limits(plan: Plan, reported: Report) -> None:
    """Check by the report that no attempt and no delay exceeded a limit."""
    until = min(inf if limit is None else limit for limit in (plan.timeout, plan.deadline))
    for attempt in reported.history:
        assert attempt.started < until
        waited = 0 if attempt.delay is None or attempt.number == reported.attempts else attempt.delay
        assert attempt.started + attempt.elapsed + waited <= until
        assert plan.attempt_timeout is None or attempt.elapsed <= plan.attempt_timeout
    assert reported.work_elapsed == sum(attempt.elapsed for attempt in reported.history)
    assert plan.work_timeout is None or reported.work_elapsed <= plan.work_timeout


@given(plans=st.lists(st.tuples(SECONDS, PLANS), max_size=8))
def test_concurrent_calls_end_as_if_each_were_alone(plans: list[tuple[int, Plan]]) -> None:
    """They share only a timer."""

    async def waiting(clock: VirtualClock) -> list[Any]:
        async def one(begins: int, plan: Plan) -> End:
            await asyncio.sleep(begins)
            end, _ = await observed(plan, clock)
            return end

        return await asyncio.gather(*(one(*plan) for plan in plans))

    assert in_virtual_time("asyncio", waiting) == [predicted(plan) for _, plan in plans]


@given(plan=PLANS, moment=st.integers(0, 30))
def test_a_cancellation_by_the_caller_is_always_delivered(plan: Plan, moment: int) -> None:
    """If it is requested before the end of the call; and no cancellation request of ours is left behind."""

    async def waiting(clock: VirtualClock) -> None:
        task = asyncio.create_task(observed(plan, clock))
        asyncio.get_running_loop().call_later(moment + LITTLE / 2, task.cancel)
        await asyncio.wait([task])
        early = moment < predicted(plan).took
        assert task.cancelled() is early
        assert task.cancelling() == early

    in_virtual_time("asyncio", waiting)
