"""The policy of one channel: a cache of call plans, one for each method and shape of call.

A channel accepts any layer or pipeline except a `Hedge`; `redouble._clients.plan` derives the time limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypeAlias, cast

from redouble._clients.plan import Plan, Send, layers_of, make_plan
from redouble._clients.policy_binding import PolicyBinding
from redouble._engine.budget_protocol import traits_of
from redouble._failures.verdict import Ended, Kind, Verdict, judge
from redouble._internal.bounded_cache import BoundedCache
from redouble._internal.callables import display_name
from redouble._layers.layer import Layer, Pipeline
from redouble._layers.retry.retry import Retry
from redouble._layers.timeout import Timeout
from redouble._runtime.clock import SYSTEM, Clock
from redouble.grpc._resend_guard import CURRENT_GUARD, pushback

__all__ = ["MAX_PLANS", "ChannelPolicy", "Shape", "channel_policy_of", "layer_of"]


MAX_PLANS = 1000  # cached plans
Shape: TypeAlias = Literal["unary", "future", "stream"]


class ChannelPolicy:
    """The effective policy of one channel, shared by its interceptors."""

    def __init__(self, policy: object, sends: Mapping[Shape, Send], *, aio: bool) -> None:
        policy = layer_of(policy)
        if any(layer.traits().concurrent for layer in layers_of(policy)):
            raise TypeError(
                f"policy={policy!r} has a Hedge, and the attempts of a call share its requests: hedge the "
                "call instead, as in Hedge(0.1)(stub.Method)"
            )
        make_plan(policy, Plan, "redouble.grpc", sends["unary"], aio=aio)
        self._layers = layers_of(policy)
        self._sends, self._aio = sends, aio
        self._plans = BoundedCache[Plan](MAX_PLANS)
        # True if a stream may start before it is read: no layer has to admit its first attempt.
        self.eager = all(isinstance(layer, Retry | Timeout) for layer in self._layers)
        self._judges_results = any(
            isinstance(layer, Retry) and layer.until is not None for layer in self._layers
        )

    def plan(self, name: str, shape: Shape) -> Plan:
        """Return the plan for the calls of this method."""
        key = (name, shape)
        return self._plans.get(key) or self._plans.get_or_create(key, lambda: self._make_plan(name, shape))

    def _make_plan(self, name: str, shape: Shape) -> Plan:
        if shape == "stream" and self._judges_results:
            raise TypeError(f"until= judges one response, and {name} gives a stream of them: leave it out")
        cancellable = shape != "unary" and not self._aio  # cancelling a task interrupts its sleep anyway
        layers = (_adapt(layer, cancellable=cancellable) for layer in self._layers)
        return make_plan(Pipeline(*layers), Plan, name, self._sends[shape], aio=self._aio)


def layer_of(policy: object) -> Layer:
    """Validate the ``policy`` option and return its layer; None means `presets.grpc`."""
    if policy is None:
        from redouble.presets import grpc  # noqa: PLC0415  presets is a layer above

        return grpc()
    if isinstance(policy, type) or not isinstance(policy, Layer):
        is_layer_class = isinstance(policy, type) and issubclass(policy, Layer)
        fix = (
            f"write {display_name(cast('Any', policy))}()"
            if is_layer_class
            else "write a redouble.Retry or a pipeline"
        )
        raise TypeError(f"policy={policy!r} is no layer: {fix}, or None for presets.grpc()")
    return policy


def _adapt(layer: Layer, *, cancellable: bool) -> Layer:
    if not isinstance(layer, Retry):
        return layer
    layer = replace(layer, on=PushbackRule(layer))
    return replace(layer, clock=CANCELLABLE) if cancellable and layer.clock is SYSTEM else layer


class PushbackRule:
    """The rules of a policy, with the server's pushback as the delay of a retry unless a rule sets one."""

    def __init__(self, policy: Retry) -> None:
        self._rules = policy._rules
        self._counts_pushback = policy.budget is not None and not traits_of(policy.budget).counts_stops

    def judge(self, ended: Ended, /) -> Verdict | None:
        """Return the verdict on one ended attempt."""
        error = cast("Exception", ended.error)
        delay = pushback(error)
        if delay is not None and delay < 0 and self._counts_pushback:
            # As in gRPC, a pushback that forbids retries counts for the throttling; the guard vetoes a retry.
            return Verdict.retry(kind=Kind.server, reason="pushback")
        verdict = judge(self._rules, error, lambda _: ended)
        if (
            delay is None
            or delay < 0
            or verdict is None
            or verdict.action != "retry"
            or verdict.after is not None
        ):
            return verdict
        return replace(verdict, after=delay)


class CancellableClock(Clock):
    """The system clock, or a test's, with a sleep that ends when the caller cancels the call."""

    def now(self) -> float:
        return SYSTEM.now()

    def sleep(self, seconds: float) -> None:
        guard = CURRENT_GUARD.get()
        (SYSTEM if guard is None else guard).sleep(seconds)

    def __repr__(self) -> str:
        return repr(SYSTEM)


CANCELLABLE = CancellableClock()


def channel_policy_of(
    policy: Layer | None, sends: Mapping[Shape, Send], *, aio: bool
) -> Callable[[], ChannelPolicy]:
    """Return a function for the effective channel policy; it follows reloads of a policy given by name."""
    binding = PolicyBinding(policy, lambda layer: ChannelPolicy(layer, sends, aio=aio), "redouble.grpc")
    return lambda: binding.current
