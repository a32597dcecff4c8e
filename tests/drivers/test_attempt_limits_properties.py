"""Whatever attempts do and whatever the limits are: time holds, and asyncio and Trio agree on how."""

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
from tests.support.call_shapes import AsyncShape, AsyncWork
from tests.support.fakes import Boom
from tests.support.limited_calls import LIMITED, in_virtual_time, working
from tests.support.virtual_time import unwaiting

pytestmark = [pytest.mark.one_python, pytest.mark.usefixtures(unwaiting.__name__)]

# Limits and delays are whole seconds, and attempts take a little more than that: so no attempt ends at the
# very moment of a limit, where either may win.
LITTLE = 1 / 64
AWHILE = st.integers(0, 12)
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
    steps=st.lists(st.tuples(AWHILE.map(LITTLE.__add__), st.booleans()), min_size=1, max_size=6),
    delays=st.lists(AWHILE, max_size=6),
    attempts=st.integers(1, 6),
    timeout=LIMIT,
    attempt_timeout=LIMIT,
    work_timeout=LIMIT,
    deadline=LIMIT,
    shape=st.sampled_from(list(LIMITED)),
)


class End(NamedTuple):
    """How a call ended, and when."""

    out: str
    took: float
    reason: str | None = None
    limit: str | None = None
    attempts: int | None = None


def foretold(plan: Plan) -> End:
    """Work out, from the words of the contract, how a call has to end."""
    total, own, most, ambient = (
        inf if limit is None else limit
        for limit in (plan.timeout, plan.attempt_timeout, plan.work_timeout, plan.deadline)
    )
    now = work = 0.0
    until = min(total, ambient)
    for number in range(plan.attempts):
        takes, fails = plan.steps[min(number, len(plan.steps) - 1)]
        rooms = {"attempt": own, "work": most - work, "total": total - now, "deadline": ambient - now}
        limit = min(rooms, key=rooms.__getitem__)
        took = min(takes, rooms[limit])
        now, work = now + took, work + took
        cut = took < takes
        if not (cut or fails):
            return End("done", now)
        if cut and limit != "attempt":
            reason = "work_timeout" if limit == "work" else "timeout"
            return End("DeadlineExceeded", now, reason, limit, number + 1)
        end = partial(End, "AttemptTimeout" if cut else "ScriptedError", now, attempts=number + 1)
        tied = cut and list(rooms.values()).count(own) > 1
        over = "total" if total <= ambient else "deadline"
        delay = plan.delays[number] if number < len(plan.delays) else None
        if number + 1 == plan.attempts:
            return end("attempts", "attempt" if cut else None)
        if now >= until:
            return end("timeout", "attempt" if tied else over)
        if work >= most:
            return end("work_timeout", "attempt" if tied else "work")
        if delay is None:
            return end("backoff_ended", "attempt" if cut else None)
        if now + delay >= until:
            return end("timeout", over)
        now += delay
    raise AssertionError


async def came(plan: Plan, clock: VirtualClock) -> tuple[End, Report | None]:
    """Make the call; return how it ended, and its report if it failed."""
    began = clock.now()
    try:
        out = str(await plan.around(LIMITED[plan.shape])(plan.policy(), plan.work()))
    except Exception as error:
        said = report(error)
        assert said is not None
        took = clock.now() - began
        return End(type(error).__name__, took, said.reason, said.limit, said.attempts), said
    return End(out, clock.now() - began), None


@given(plan=PLANS)
@pytest.mark.parametrize("colour", ["asyncio", "trio"])
def test_every_call_ends_as_predicted(colour: str, plan: Plan) -> None:
    """Not a moment later than any of its limits, whatever it was doing then."""
    end, said = in_virtual_time(colour, partial(came, plan))
    assert end == foretold(plan)
    for limit in (plan.timeout, plan.deadline):
        assert limit is None or end.took <= limit
    if said is not None:
        kept(plan, said)


def kept(plan: Plan, said: Report) -> None:
    """See that no attempt and no delay went past a limit, by the report."""
    until = min(inf if limit is None else limit for limit in (plan.timeout, plan.deadline))
    for attempt in said.history:
        assert attempt.started < until
        assert attempt.started + attempt.elapsed + (attempt.delay or 0) <= until
        assert plan.attempt_timeout is None or attempt.elapsed <= plan.attempt_timeout
    assert said.work_elapsed == sum(attempt.elapsed for attempt in said.history)
    assert plan.work_timeout is None or said.work_elapsed <= plan.work_timeout


@given(plans=st.lists(st.tuples(AWHILE, PLANS), max_size=8))
def test_calls_side_by_side_end_as_if_each_were_alone(plans: list[tuple[int, Plan]]) -> None:
    """They share a timer, and nothing else."""

    async def waiting(clock: VirtualClock) -> list[Any]:
        async def one(begins: int, plan: Plan) -> End:
            await asyncio.sleep(begins)
            end, _ = await came(plan, clock)
            return end

        return await asyncio.gather(*(one(*plan) for plan in plans))

    assert in_virtual_time("asyncio", waiting) == [foretold(plan) for _, plan in plans]


@given(plan=PLANS, moment=st.integers(0, 30))
def test_the_callers_cancellation_always_comes_through(plan: Plan, moment: int) -> None:
    """If it comes before the end, whatever the call is doing; and no cancellation of ours is left behind."""

    async def waiting(clock: VirtualClock) -> None:
        task = asyncio.create_task(came(plan, clock))
        asyncio.get_running_loop().call_later(moment + LITTLE / 2, task.cancel)
        await asyncio.wait([task])
        early = moment < foretold(plan).took
        assert task.cancelled() is early
        assert task.cancelling() == early

    in_virtual_time("asyncio", waiting)
