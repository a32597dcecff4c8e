"""The plan of one policy for one client: a function that sends, and the facts that the client needs.

The policy may be any layer or pipeline. The plan derives from it the time limit of a call and whether there
is a retry budget for each host. A client that ends its own wait knows whether the request was sent; therefore
the time limits of attempts become deadlines, at which the client ends its wait.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, replace
from functools import partial
from math import inf
from typing import Any, Self, TypeAlias, TypeVar, cast

from redouble._engine.retry_budget import MAX_HOSTS, HostBudgets, RetryBudget
from redouble._internal.bounded_cache import BoundedCache
from redouble._internal.callables import display_name
from redouble._layers.layer import Layer, LayerProxy, Pipeline
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout import Timeout
from redouble._runtime.clock import SYSTEM
from redouble._runtime.deadline import deadline

__all__ = ["RETRY_OPTIONS", "Credit", "Plan", "Send", "is_named", "layers_of", "make_plan"]


Send: TypeAlias = Callable[[Any], Any]
Credit: TypeAlias = Callable[[float], object]

RETRY_OPTIONS = frozenset(field.name for field in fields(Retry))


class Plan:
    """One policy compiled for one client."""

    def __init__(self, layers: tuple[Layer, ...], name: str, send: Send, *, aio: bool) -> None:
        retries = [layer for layer in layers if isinstance(layer, Retry)]
        self.layers = layers
        # Limits outside the outermost Retry hold for the whole call; inner ones restart with each attempt.
        around = layers[: layers.index(retries[0])] if retries else layers
        limits = [cast("float", layer.seconds) for layer in around if isinstance(layer, Timeout)]
        self.total = min([retries[0]._total if retries else inf, *limits])
        self.labels: Mapping[str, str] = retries[0].labels if retries else {}
        self.name = (retries[0].name if retries else "") or name
        self.reads_bodies = any(layer.until is not None for layer in retries)  # a rule for results reads them
        self.max_attempts = _product(layer.attempts for layer in retries)
        self._name, self._send, self._aio = name, send, aio
        self._by_host = any(isinstance(layer.budget, HostBudgets) for layer in retries)
        self._calls = BoundedCache[Send](MAX_HOSTS)
        # True if a first attempt may be made without the policy: nothing in it acts before an attempt ends.
        self.fast_path = len(layers) == 1 and _is_transparent(layers[0])
        self.budget: Any = retries[0].budget if self.fast_path else None
        self._call = self._wrap_send(None)  # here, so that an impossible policy raises at construction

    def call_for(self, host: Hashable) -> Send:
        """Return the function that sends a request to this host under the policy."""
        if not self._by_host:
            return self._call
        return self._calls.get(host) or self._calls.get_or_create(host, lambda: self._wrap_send(host))

    def credit_for(self, host: Hashable) -> Credit:
        """Return the callable that credits a success at a given time to this host; for the fast path."""
        budget = self.budget.of(host) if self._by_host else self.budget
        plain = type(budget) in (RetryBudget, HostBudgets) and budget._credited_by == "success"
        return cast("Credit", budget._record_credit) if plain else partial(budget.credit, None)

    def with_options(self, options: Mapping[str, Any]) -> Self:
        """Return a plan in which these options of the outermost `Retry` are replaced."""
        outermost = next((layer for layer in self.layers if isinstance(layer, Retry)), None)
        if outermost is None:
            raise TypeError(f"{', '.join(sorted(options))}: the policy has no Retry whose options could vary")
        layers = tuple(
            replace(outermost, **options) if layer is outermost else layer for layer in self.layers
        )
        return type(self)(layers, self._name, self._send, aio=self._aio)

    def for_policy(self, policy: Layer) -> Self:
        """Return the plan of another policy."""
        return type(self)(layers_of(policy), self._name, self._send, aio=self._aio)

    def _wrap_send(self, host: Hashable | None) -> Send:
        layers = [part for layer in self.layers for part in self._client_layers(layer, host)]
        return Pipeline(*layers)(self._send) if layers else self._send

    def _client_layers(self, layer: Layer, host: Hashable | None) -> tuple[Layer, ...]:
        if isinstance(layer, Timeout) and layer.worker is None:
            return (DeadlineLayer(cast("float", layer.seconds)),)
        if not isinstance(layer, Retry):
            return (layer,)
        parts: list[Layer] = []
        if layer._total < inf and layer is not next(each for each in self.layers if isinstance(each, Retry)):
            parts.append(DeadlineLayer(layer._total))
        retry = replace(layer, name=layer.name or self._name)
        if self._aio and layer._total < inf:
            # The client cancels its own attempt cleanly; the policy only has to start none after the limit.
            retry = replace(retry, timeout=None, give_up_after=layer._limit)
        if host is not None and isinstance(layer.budget, HostBudgets):
            retry = replace(retry, budget=layer.budget.of(host))
        if layer._attempt_limit < inf and layer.worker is None:
            return *parts, replace(retry, attempt_timeout=None), DeadlineLayer(layer._attempt_limit)
        return *parts, retry


def _is_transparent(layer: Layer) -> bool:
    """Return True if a call that succeeds at once needs nothing from the layer but a credit to its budget."""
    if not isinstance(layer, Retry) or layer.worker is not None or layer.clock is not SYSTEM:
        return False
    return layer._afirst in ("plain", "credited")


class DeadlineLayer(Layer):
    """A layer that sets a deadline around each call; the client inside ends its waits at the deadline."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def around(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` with a deadline, for a plain function."""

        def with_deadline(exchange: object) -> Any:
            with deadline(self._seconds):
                return fn(exchange)

        return with_deadline

    def around_async(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Return ``fn`` with a deadline, for a coroutine function."""

        async def with_deadline(exchange: object) -> Any:
            with deadline(self._seconds):
                return await fn(exchange)

        return with_deadline


P = TypeVar("P", bound=Plan)


def make_plan(policy: object, plan: type[P], name: str, send: Send, *, aio: bool) -> P:
    """Return the plan of the option ``policy``, or raise a TypeError that names the fix."""
    if isinstance(policy, type) or not isinstance(policy, Layer):
        fix = (
            f"write {display_name(policy)}()" if callable(policy) else "write a redouble.Retry or a pipeline"
        )
        raise TypeError(f"policy={policy!r} is no layer: {fix}, or None for the default")
    if isinstance(policy, Pipeline) and any(map(is_named, policy.layers)):
        raise TypeError(
            f"policy={policy!r}: a client follows one name, so name the whole pipeline in the configuration"
        )
    if any(layer.traits().concurrent for layer in layers_of(policy)):
        raise TypeError(
            f"policy={policy!r} has a Hedge, and the attempts of a client share one request: hedge the call "
            "instead, as in Hedge(0.1)(client.get)"
        )
    return plan(layers_of(policy), name, send, aio=aio)


def is_named(policy: object) -> bool:
    """Return True if `redouble.policies` made the policy; does not import the configuration package."""
    return isinstance(policy, LayerProxy) and policy.resolved_by_name


def layers_of(policy: Layer) -> tuple[Layer, ...]:
    """Return the layers of a policy, outermost first."""
    return policy.layers if isinstance(policy, Pipeline) else (policy,)


def _product(counts: Any) -> float:
    product = 1.0
    for count in counts:
        product *= inf if count is None else count
    return product
