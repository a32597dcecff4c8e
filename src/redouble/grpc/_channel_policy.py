"""The policy of one channel: a cache of call plans, one for each method and shape of call.

A channel accepts any layer or pipeline except a `Hedge`; `redouble._clients.plan` derives the time limits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from redouble._clients.plan import Plan, Send, make_plan
from redouble._clients.policy_binding import PolicyBinding
from redouble._engine.budgets.budget_protocol import traits_of
from redouble._failures.verdict import Ended, Kind, Verdict, judge
from redouble._internal.bounded_cache import BoundedCache
from redouble._layers.layer import Layer
from redouble._layers.retry.retry import Retry
from redouble._runtime.clock import SYSTEM, SystemClock
from redouble.grpc._attempt import aattempt_stream, aattempt_unary, attempt_stream, attempt_unary
from redouble.grpc._request_stream import RequestSource
from redouble.grpc._resend_guard import CURRENT_GUARD, RpcResendGuard, delay_of

MAX_PLANS = 1000  # cached plans


class ChannelPolicy:
    """The effective policy of one channel, shared by its interceptors."""

    def __init__(self, policy: Layer | None, *, aio: bool) -> None:
        send = aattempt_unary if aio else attempt_unary
        layers = make_plan(layer_of(policy), Plan, "redouble.grpc", send, aio=aio).layers
        # In async code cancelling the task interrupts its sleep anyway.
        self._layers = tuple(_adapt(layer, cancellable=not aio) for layer in layers)
        self._aio = aio
        self._plans = BoundedCache[Plan](MAX_PLANS)

    def begin_call(
        self, send: Send, continuation: Any, call_details: Any, requests: RequestSource
    ) -> RpcResendGuard:
        """Return the guard of a new call, whose attempts ``send`` makes."""
        name = name_of(call_details.method)
        key = name, send
        plan = self._plans.get(key) or self._plans.get_or_create(key, lambda: self._make_plan(name, send))
        return RpcResendGuard(plan, continuation, call_details, requests)

    def _make_plan(self, name: str, send: Send) -> Plan:
        plan = Plan(self._layers, name, send, aio=self._aio)
        if plan.reads_bodies and send in (attempt_stream, aattempt_stream):
            raise TypeError(f"until= judges one response, and {name} gives a stream of them: leave it out")
        return plan


def bind_policy(policy: Layer | None, *, aio: bool) -> PolicyBinding[ChannelPolicy]:
    """Return the effective policy of a channel; it follows reloads of a policy given by name."""
    return PolicyBinding(policy, lambda layer: ChannelPolicy(layer, aio=aio), "redouble.grpc")


def layer_of(policy: Layer | None) -> Layer:
    """Return the layer of the option ``policy``; None means a new `presets.grpc`."""
    from redouble.presets import grpc  # noqa: PLC0415  presets is a layer above

    return grpc() if policy is None else policy


def name_of(method: str | bytes) -> str:
    """Return the name of a method for events: without the leading slash."""
    text = method.decode("utf-8", "replace") if isinstance(method, bytes) else method
    return text.removeprefix("/")


def _adapt(layer: Layer, *, cancellable: bool) -> Layer:
    if not isinstance(layer, Retry):
        return layer
    layer = replace(layer, on=RequestedDelayRule(layer))
    return replace(layer, clock=CANCELLABLE) if cancellable and layer.clock is SYSTEM else layer


class RequestedDelayRule:
    """The rules of a policy, with the delay that the server asks for as the hint unless a rule sets one."""

    def __init__(self, policy: Retry) -> None:
        self._rules = policy._rules
        self._counts_pushback = policy.budget is not None and not traits_of(policy.budget).counts_stops

    def judge(self, ended: Ended, /) -> Verdict | None:
        """Return the verdict on one ended attempt."""
        error = cast("Exception", ended.error)
        delay = delay_of(error)
        forbidden = (delay or 0.0) < 0
        if forbidden and self._counts_pushback:
            # As in gRPC, a pushback that forbids retries counts for the throttling; the guard vetoes a retry.
            return Verdict.retry(kind=Kind.server, reason="pushback")
        verdict = judge(self._rules, error, lambda _: ended)
        if forbidden or verdict is None or verdict.action != "retry" or verdict.after is not None:
            return verdict
        return replace(verdict, after=delay)


class CancellableClock(SystemClock):
    """The system clock, or a test's, with a sleep that ends when the caller cancels the call."""

    def sleep(self, seconds: float) -> None:
        guard = CURRENT_GUARD.get()
        (SYSTEM if guard is None else guard).sleep(seconds)


CANCELLABLE = CancellableClock()
