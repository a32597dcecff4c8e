"""Budgets by host: one for each host, always the same one, in bounded memory."""

from __future__ import annotations

import pytest

from redouble import Kind, RetryBudget, presets
from redouble._engine.budgets.retry_budget import MAX_HOSTS, HostBudgets
from tests.support.thread_switching import run_in_threads, switching

NOW = 5.0
HOSTS = MAX_HOSTS + 100


def spent(budget: RetryBudget) -> int:
    """Use a budget up; return how many retries it granted."""
    return sum(budget.spend(Kind.server, NOW) is not None for _ in range(1000))


def test_a_host_has_one_budget() -> None:
    budgets = HostBudgets()
    assert budgets.of("a") is budgets.of("a")
    assert budgets.of("a") is not budgets.of("b")
    assert budgets.of(("a", 443)) is budgets.of(("a", 443))
    assert budgets.of(b"a") is not budgets.of("a")


def test_two_host_budgets_share_nothing() -> None:
    assert HostBudgets().of("a") is not HostBudgets().of("a")


@pytest.mark.parametrize("credit", ["success", "request"])
def test_the_budget_of_a_host_has_the_same_settings(credit: str) -> None:
    budgets = HostBudgets(0.5, 1, 2, "request" if credit == "request" else "success")
    of_host = budgets.of("a")
    assert type(of_host) is RetryBudget
    assert (of_host.ratio, of_host.per_second, of_host.window) == (0.5, 1, 2)
    for budget in (budgets, of_host):
        for _ in range(10):
            budget.start(NOW)
        assert spent(budget) == 2 + (5 if credit == "request" else 0)


def test_one_outage_does_not_use_up_the_retries_of_the_others() -> None:
    budgets = HostBudgets(ratio=0, per_second=3, window=1)
    assert [spent(budgets.of(host)) for host in ("down", "up")] == [3, 3]
    assert spent(budgets.of("down")) == 0
    assert spent(budgets) == 3  # it is a budget itself, for calls whose host is unknown


def test_the_number_of_hosts_is_bounded() -> None:
    budgets = HostBudgets()
    made = [budgets.of(host) for host in range(HOSTS)]
    assert len({id(budget) for budget in made}) == HOSTS
    kept = sum(budgets.of(host) is made[host] for host in range(HOSTS - MAX_HOSTS, HOSTS))
    assert kept == MAX_HOSTS
    assert budgets.of(0) is not made[0]


def test_the_http_preset_has_a_budget_for_each_host() -> None:
    budget = presets.http().budget
    assert isinstance(budget, HostBudgets)
    assert budget.of("a") is not budget.of("b")
    assert presets.http().budget is not budget


@pytest.mark.usefixtures(switching.__name__)
def test_concurrent_threads_get_the_same_budget_of_a_host() -> None:
    budgets = HostBudgets()
    found: dict[int, set[int]] = {host: set() for host in range(200)}

    def work(_: str) -> None:
        for host, seen in found.items():
            seen.add(id(budgets.of(host)))

    run_in_threads(work, threads=8)
    assert [len(seen) for seen in found.values()] == [1] * len(found)


@pytest.mark.stress
@pytest.mark.usefixtures(switching.__name__)
def test_concurrent_threads_may_use_more_hosts_than_are_kept() -> None:
    budgets = HostBudgets()

    def work(owner: str) -> None:
        for host in range(3 * MAX_HOSTS):
            assert isinstance(budgets.of((owner, host)), RetryBudget)

    run_in_threads(work, threads=8)
