"""The plan of one policy for one HTTP client: which responses fail, which requests may be resent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from redouble._clients.plan import Plan, Send, make_plan
from redouble._layers.layer import Layer
from redouble._layers.retry.retry import Retry
from redouble.http._rule import FAILING, IDEMPOTENT, HttpRule

__all__ = ["HttpPlan", "http_plan"]


class HttpPlan(Plan):
    """A plan with the statuses and methods of the HTTP rules in its policy."""

    def __init__(self, layers: tuple[Layer, ...], name: str, send: Send, *, aio: bool) -> None:
        retries = (layer for layer in layers if isinstance(layer, Retry))
        rules = [rule for layer in retries for _, rule in layer._rules if isinstance(rule, HttpRule)]
        self.failing: frozenset[int] = FAILING.union(*(rule.statuses for rule in rules))
        self.methods = frozenset[str]().union(*(rule.methods for rule in rules)) if rules else IDEMPOTENT
        super().__init__(layers, name, send, aio=aio)

    def fails(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return True if a response with this status and these headers is a failure of the server.

        Looks up one header at most: the rule that judges the failure parses them.
        """
        if status in self.failing:
            return True
        return status >= 400 and headers.get("x-should-retry", "").strip().lower() == "true"


def http_plan(policy: object, name: str, send: Send, *, aio: bool) -> HttpPlan:
    """Return the plan of the option ``policy``; None means `presets.http`."""
    return make_plan(_default() if policy is None else policy, HttpPlan, name, send, aio=aio)


@cache
def _default() -> Retry:
    """Return the policy of all clients without one: a single object, so that they share its budgets."""
    from redouble.presets import http  # noqa: PLC0415  presets need not be loaded where each client has a policy

    return http()
