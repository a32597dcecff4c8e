"""The plan of one policy for one HTTP client: which responses fail, which requests may be resent."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeAlias, cast

from redouble._clients.client_call import ClientCall
from redouble._clients.held_gate import held_gate
from redouble._clients.plan import Plan, Send, layers_of, make_plan
from redouble._clients.refused_response import RefusedResponse
from redouble._engine.budgets.retry_budget import MAX_HOSTS, HostBudgets, RetryBudget
from redouble._failures.codes import IDEMPOTENT
from redouble._failures.verdict import Ended, On
from redouble._internal.bounded_cache import BoundedCache
from redouble._internal.logger import call_hook
from redouble._layers.keyed import Keyed
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.results.fallback import Fallback
from redouble._layers.retry.retry import Retry
from redouble._runtime.ambient import credited_call
from redouble.http._rule import FAILING, HttpRule, StatusRule

Credit: TypeAlias = Callable[[float], object]

MAX_VARIANTS = 100  # cached plans of per-request options


class HttpPlan(Plan):
    """A plan with the statuses and methods of the HTTP rules in its policy."""

    def __init__(self, layers: tuple[Layer, ...], name: str, send: Send, *, aio: bool) -> None:
        retries = [layer for layer in layers if isinstance(layer, Retry)]
        rules = [rule for layer in retries for _, rule in layer._rules if isinstance(rule, HttpRule)]
        self.failing: frozenset[int] = FAILING.union(*(rule.statuses for rule in rules))
        self.methods = frozenset[str]().union(*(rule.methods for rule in rules)) if rules else IDEMPOTENT
        status_rules = [(layer, StatusRule(layer)) for layer in retries]
        self._status_rules = [(layer, rule) for layer, rule in status_rules if rule.judges_statuses]
        self.judges_statuses = bool(self._status_rules)
        keyed = [cast("Keyed[Layer]", layer) for layer in layers if isinstance(layer, Keyed)]
        self._keyed = keyed[0] if keyed else None
        super().__init__(layers, name, send, aio=aio)
        if self._keyed is not None:
            self._resolve = self._keyed.resolver(send, self._resolver_for)
        self.credits = BoundedCache[Credit](MAX_HOSTS)  # keyed by the client's own key for a host
        self._variants = BoundedCache[HttpPlan](MAX_VARIANTS)

    def resolved(self, client_call: ClientCall, /) -> HttpPlan:
        """Return the plan of a call: the same, or that with the layers of its key in place of a `Keyed`.

        So the policies that a `Keyed` makes have the same effect as a policy of the client.
        """
        if self._keyed is None:
            return self
        entry, resolved = self._resolve(client_call)
        client_call.entries = (*client_call.entries, entry)
        return resolved(client_call)

    def _resolver_for(self, made: Layer) -> Callable[[ClientCall], HttpPlan]:
        """Return how a call is resolved whose `Keyed` has made these layers."""
        at = next(place for place, layer in enumerate(self.layers) if layer is self._keyed)
        policy = Pipeline(*self.layers[:at], made, *self.layers[at + 1 :])
        return make_plan(policy, HttpPlan, self._name, self._send, aio=self._aio).resolved

    def _wrap_send(self, host: Hashable | None) -> Send:
        # A keyed plan sends nothing, but the plans it is resolved to do.
        return self._send if self._keyed is not None else super()._wrap_send(host)

    def _client_layer(self, layer: Layer, host: Hashable | None) -> Layer:
        per_attempt = self.outermost is not None and not any(layer is outer for outer in self._around)
        own = held_gate(layer, per_attempt=per_attempt) or super()._client_layer(layer, host)
        if isinstance(layer, Fallback) and layer.until is not None:
            return Pipeline(own, RefusedResponse(layer.on, layer.until))
        return own

    def fails(self, status: int, headers: Mapping[str, str]) -> bool:
        """Return True if a response with this status and these headers is a failure of the server.

        Looks up one header at most: the rule that judges the failure parses them.
        """
        if status in self.failing:
            return True
        return status >= 400 and headers.get("x-should-retry", "").strip().lower() == "true"

    def retries_status(self, client_call: ClientCall, ended: Ended) -> bool:
        """Return True if a rule of the caller's retries a status that is no failure by itself."""
        answers = [
            rule.retries(client_call, ended) for _, rule in self._status_rules
        ]  # all: each keeps its own
        return any(answers)

    def _reads_body(self, until: object) -> bool:
        return until is not None and not isinstance(until, HttpRule)

    def _rules_of(self, layer: Retry) -> On:
        return next((rule for each, rule in self._status_rules if each is layer), layer.on)

    def credit_for(self, key: Hashable, host: str) -> Credit:
        """Return the callable that credits a success at a given time to the host, cached by this key."""
        budget = self._budget_of(host)
        plain = type(budget) in (RetryBudget, HostBudgets) and budget._credited_by == "success"
        credit: Credit = budget._record_credit if plain else partial(call_hook, budget, "credit", None)
        return self.credits.get_or_create(key, lambda: credit)

    def leaves_credit(self, host: str) -> bool:
        """Return True if a call around the request credits the budget of this host."""
        return credited_call(self._budget_of(host)) is not None

    def _budget_of(self, host: str) -> Any:
        return self.budget.of(host) if self._by_host else self.budget

    def variant(self, policy: Layer | None, options: Mapping[str, Any]) -> HttpPlan:
        """Return the plan of one request: of another policy, or with other options of the outer `Retry`."""
        if policy is None and not options:
            return self
        key: Any = (policy, *((name, value.__class__, value) for name, value in options.items()))
        try:
            cached = self._variants.get(key)
        except TypeError:  # an option is unhashable
            return self._make_variant(policy, options)
        return cached or self._variants.get_or_create(key, partial(self._make_variant, policy, options))

    def _make_variant(self, policy: Layer | None, options: Mapping[str, Any]) -> HttpPlan:
        layers = self.layers if policy is None else layers_of(policy)
        if options:
            outermost = next((layer for layer in layers if isinstance(layer, Retry)), None)
            if outermost is None:
                names = ", ".join(sorted(options))
                raise TypeError(f"{names}: the policy has no Retry whose options could vary")
            layers = tuple(replace(outermost, **options) if layer is outermost else layer for layer in layers)
        return HttpPlan(layers, self._name, self._send, aio=self._aio)


def http_plan(policy: object, name: str, send: Send, *, aio: bool) -> HttpPlan:
    """Return the plan of the option ``policy``; None means `presets.http`."""
    return make_plan(_default() if policy is None else policy, HttpPlan, name, send, aio=aio)


@cache
def _default() -> Retry:
    """Return the policy of all clients without one: a single object, so that they share its budgets."""
    from redouble.presets import http  # noqa: PLC0415  presets need not be loaded where each client has a policy

    return http()
