"""`Plan`: each host has a budget, and time limits become deadlines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from redouble import Kind, Layer, RetryBudget, Timeout, Worker, presets, report
from redouble._engine.budgets.retry_budget import MAX_HOSTS, HostBudgets
from redouble.testing import VirtualClock, virtual_time
from tests.support.fakes import Boom
from tests.support.http.offline_clients import RecordingSender, new_call, retrying
from tests.support.thread_switching import run_in_threads, switching
from tests.support.virtual_time import at, no_real_waits

CLOCKED = ["sync", "asyncio around", "trio around"]

# ---------------------------------------------------------------------------- each host


def test_each_host_has_a_budget_that_all_clients_share(colour: str) -> None:
    policy = retrying(attempts=9, budget=HostBudgets(ratio=0, per_second=0.001, window=3000))  # 3 in all
    seen: list[tuple[str, int]] = []
    for host in ("a", "a", "b", "a"):
        sender = RecordingSender(fails=9)
        with pytest.raises(Boom) as caught:
            sender.call(colour, Timeout(60) | policy, host)
        call_report = report(caught.value)
        assert call_report is not None
        assert call_report.reason == "budget"
        seen.append((host, len(sender.sent)))
    assert seen == [("a", 4), ("a", 1), ("b", 4), ("a", 1)]
    of_all = policy.budget
    assert isinstance(of_all, HostBudgets)
    assert of_all.spend(Kind.server, 5.0) is not None


def test_any_other_budget_is_shared_by_all_hosts() -> None:
    plan = RecordingSender().plan(retrying(budget=RetryBudget()))
    assert plan.call_for("a") is plan.call_for("b")
    plan = RecordingSender().plan(presets.http())
    assert plan.call_for("a") is plan.call_for("a")
    assert plan.call_for("a") is not plan.call_for("b")


def test_the_number_of_cached_hosts_is_limited() -> None:
    plan = RecordingSender().plan(presets.http())
    first = plan.call_for("first")
    for host in range(MAX_HOSTS):
        plan.call_for(host)
    assert plan.call_for("first") is not first
    assert plan.call_for(MAX_HOSTS - 1) is plan.call_for(MAX_HOSTS - 1)


@pytest.mark.usefixtures(switching.__name__)
def test_threads_may_look_up_hosts_concurrently() -> None:
    sender = RecordingSender()
    plan = sender.plan(presets.http())

    def work(owner: str) -> None:
        for host in range(150):
            assert plan.call_for(host % 40 if host % 2 else (owner, host))(new_call()) == "x"

    run_in_threads(work, threads=8)


# --------------------------------------------------------------------------------- time


def timed(place: str, sender: RecordingSender, policy: Layer) -> object:
    aio = not place.startswith("sync")
    plan = sender.plan(policy, aio=aio)

    def blocking(_: VirtualClock) -> object:
        return plan.call_for("a")(new_call())

    async def waiting(_: VirtualClock) -> object:
        return await plan.call_for("a")(new_call())

    if not aio:
        with virtual_time() as clock:
            return blocking(clock)
    return at(place, blocking, waiting)


@pytest.mark.usefixtures(no_real_waits.__name__)
@pytest.mark.parametrize("place", CLOCKED)
@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (retrying(backoff=[3] * 9), [None, None, None]),
        (retrying(backoff=[3] * 9, attempt_timeout=2), [2, 2, 2]),
        (retrying(backoff=[3] * 9) | Timeout(2), [2, 2, 2]),
        (Timeout(20) | retrying(backoff=[3] * 9), [20, 17, 14]),
        (Timeout(20) | retrying(backoff=[3] * 9, attempt_timeout=15), [15, 15, 14]),
        (retrying(attempts=2, backoff=[3]) | retrying(attempts=2, backoff=[1], timeout=5), [5, 4, 5]),
    ],
)
def test_limits_become_deadlines(place: str, policy: Layer, left: list[float | None]) -> None:
    sender = RecordingSender(fails=2)
    assert timed(place, sender, policy) == "x"
    assert sender.time_left == left


def test_the_limit_of_a_worker_is_a_deadline_inside_it() -> None:
    """The code on the worker can read the time left."""
    sender = RecordingSender(fails=1)
    calls: list[Callable[[Any], Any]] = [
        sender.plan(policy).call_for("a")
        for policy in (
            retrying(worker=Worker(), attempt_timeout=60),
            retrying() | Timeout(60, worker=Worker()),
        )
    ]
    assert [call(new_call()) for call in calls] == ["x", "x"]
    assert all(left is not None and 0 < left <= 60 for left in sender.time_left)
