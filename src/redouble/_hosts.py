"""Budgets by host: one outage must not use up the retries of everybody else.

To a policy it is a `RetryBudget` like any other. Clients that know which host they talk to ask for its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from redouble._budget import RetryBudget
from redouble._internal.bounded_cache import Kept

__all__ = ["MOST", "HostBudgets"]

MOST = 1000  # hosts to remember: a crawler meets more, and none of them often


class HostBudgets(RetryBudget):
    """A budget for calls whose host is not known, which has one of the same terms for each host."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._by_host = Kept[RetryBudget](MOST)

    def of(self, host: Hashable) -> RetryBudget:
        """Return the budget of a host: the same one for all who ask."""
        return self._by_host.have(host, self._made)

    def reconfigure(self, other: RetryBudget, /) -> None:
        """Take over the settings of another one, here and in the budgets of all hosts."""
        super().reconfigure(other)
        for budget in tuple(self._by_host._things.values()):
            budget.reconfigure(other)

    def _made(self) -> RetryBudget:
        return RetryBudget(self.ratio, self.per_second, self.window, self.settings.credit)
